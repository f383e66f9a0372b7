from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from orchestration.commands import options
from orchestration.steps import evaluate
from schemas.documents import Split
from schemas.errors import UsageError
from schemas.overrides import override

Scores = Annotated[
    Path | None, typer.Option(metavar="FILE", exists=True, dir_okay=False, help="Score matrices: JSON Lines.")
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
    split: options.Split = Split.TEST,
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
    _check_options(given | {"--calibration": calibration, "--baseline": baseline, "--set": settings})
    reference = "" if scores is not None else options.known_dataset(lake, dataset or "")
    if scores is None and baseline is None:
        summary = evaluate(
            say,
            model=model or "",
            dataset=reference,
            lake=lake,
            split=split,
            settings=tuple(settings or ()),
            with_baselines=with_baselines,
            report=str(report or ""),
            workers=workers,
            tracking_uri=tracking,
        )
        if calibration is not None:
            summary.write_calibration(calibration)
        yield summary.lines(), summary
        return
    from training.evaluation.evaluate import STANDARD_CONFIG
    from training.workflows.evaluate import run_baseline, run_evaluate_scores

    if scores is not None:
        summary = run_evaluate_scores(scores)
    else:
        config = override(STANDARD_CONFIG, settings or [])
        summary = run_baseline(baseline=baseline or "", dataset=reference, lake=lake, split=split, config=config)
    yield summary.lines(), summary


# Of which mode -> the options that it needs, and those that it refuses.
_MODES: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    "--baseline": (["--dataset", "--lake"], ["--model", "--scores", "--report", "--calibration"]),
    "--scores": ([], ["--model", "--dataset", "--report", "--calibration", "--set"]),
    "": (["--model", "--dataset", "--lake"], []),
}


def _check_options(given: Mapping[str, object]) -> None:
    """Raise a UsageError where an option lacks others, or is given beside some that it excludes."""
    mode = next(each for each in _MODES if given.get(each, True))
    needed, refused = _MODES[mode]
    command = f"evaluate {mode}".rstrip()
    if missing := [name for name in needed if not given[name]]:
        raise UsageError(f"{command}: expected {', '.join(missing)} as well")
    if unwanted := [name for name in refused if given[name]]:
        raise UsageError(f"{command}: expected no {', '.join(unwanted)}")
