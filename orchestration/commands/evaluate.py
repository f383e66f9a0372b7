from pathlib import Path
from typing import Annotated

import typer

from orchestration.commands import options
from orchestration.steps import evaluate
from schemas.documents import Split
from schemas.errors import UsageError

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
    wanted = {"--model": model, "--dataset": dataset}
    if scores is not None:
        refused = wanted | {"--report": report, "--calibration": calibration, "--set": settings}
        if unwanted := [name for name, value in refused.items() if value]:
            raise UsageError(f"evaluate --scores: expected no {', '.join(unwanted)}")
        from training.workflows.evaluate import run_evaluate_scores

        scored = run_evaluate_scores(scores)
        yield scored.lines(), scored
        return
    if missing := [name for name, value in (wanted | {"--lake": lake}).items() if not value]:
        raise UsageError(f"evaluate: expected {', '.join(missing)} as well")
    summary = evaluate(
        say,
        model=model or "",
        dataset=options.known_dataset(lake, dataset or ""),
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
