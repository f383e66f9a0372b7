from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from orchestration.commands import options
from schemas.errors import UsageError
from schemas.overrides import override

Scores = Annotated[
    Path | None, typer.Option(metavar="FILE", callback=options.existing_file, help="Score matrices: JSON Lines.")
]
CalibrationOutput = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Write a calibration, fitted to the data set's validation links, for link --calibration.",
    ),
]
EvaluateSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Columns of baselines, samples of retrieval; position=true for the ablation of positions.",
    ),
]


def evaluate_command(
    model: Annotated[str | None, typer.Option(help=f"{options.ADDRESSES}.")] = None,
    dataset: Annotated[str | None, typer.Option(help="NAME or NAME@VERSION.")] = None,
    split: options.Split = "test",
    lake: options.LakePath = "",
    report: options.Report = None,
    scores: Scores = None,
    calibration: CalibrationOutput = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            help="Instead of a model: random, nearest-sentence, object-detection, joint-embeddings or class-names."
        ),
    ] = None,
    with_baselines: Annotated[
        bool, typer.Option("--baselines/--no-baselines", help="Score baselines on the same documents, too.")
    ] = True,
    settings: EvaluateSettings = None,
    workers: options.ShardWorkers = 1,
    tracking: options.Tracking = None,
    *,
    say: options.Progress,
) -> options.Summaries:
    """Score a model's links on a data set: AUC and precision at 1 and 5, each with its 95% interval.

    Retrieval, relations, calibration and baselines are measured if the data set permits. All numbers are stored as a
    table with the model's run, and with the report.

    With --scores, a file is scored: a line of JSON each, {"id", "scores": [[...]], "links": [[text, image], ...]}.
    """
    given = {"--model": model, "--dataset": dataset, "--lake": lake, "--scores": scores, "--report": report}
    given |= {"--calibration": calibration}
    _check_options(given, baseline=baseline, settings=settings)
    reference = "" if scores is not None else options.known_dataset(lake, dataset or "")
    from training.evaluation.evaluate import STANDARD_CONFIG
    from training.workflows.evaluate import run_baseline, run_evaluate, run_evaluate_scores
    from training.workflows.report import run_report
    from training.workflows.workers import by_workers

    config = override(STANDARD_CONFIG, settings or [])
    if baseline is not None:
        summary = run_baseline(baseline=baseline, dataset=reference, lake=lake, split=split, config=config)
    elif scores is not None:
        summary = run_evaluate_scores(scores)
    else:
        with by_workers(workers):
            summary = run_evaluate(
                model=model or "", dataset=reference, lake=lake, split=split, tracking=tracking, config=config,
                with_baselines=with_baselines, say=say,
            )  # fmt: skip
        if calibration is not None:
            summary.write_calibration(calibration)
    if report is None:
        yield summary.lines(), summary
    else:
        yield options.with_file(summary.lines(), summary, run_report(summary, report, lake=lake, tracking=tracking))


def _check_options(given: Mapping[str, object], *, baseline: str | None, settings: list[str] | None) -> None:
    """Raise a UsageError where options do not go together."""
    if settings and given["--scores"] is not None:
        raise UsageError(
            "--set: expected no --scores; settings of baselines and retrieval do not apply to a file of scores"
        )
    if baseline is not None:
        _check(
            "--baseline",
            given,
            needed=["--dataset", "--lake"],
            refused=["--model", "--scores", "--report", "--calibration"],
        )
    elif given["--scores"] is not None:
        _check("--scores", given, refused=["--model", "--dataset", "--report", "--calibration"])
    else:
        _check("", given, needed=["--model", "--dataset", "--lake"])


def _check(
    option: str, given: Mapping[str, object], *, needed: Sequence[str] = (), refused: Sequence[str] = ()
) -> None:
    """Raise a UsageError where an option lacks others, or is given beside some that it excludes."""
    command_ = f"evaluate {option}".rstrip()
    if missing := [name for name in needed if not given[name]]:
        raise UsageError(f"{command_}: expected {', '.join(missing)} as well")
    if unwanted := [name for name in refused if given[name]]:
        raise UsageError(f"{command_}: expected no {', '.join(unwanted)}")
