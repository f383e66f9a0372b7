"""Models: trained, evaluated, and several beside each other (comparisons, sweeps, transfers)."""

from pathlib import Path
from typing import Annotated

import typer

from orchestration.commands import options
from orchestration.steps import compare, evaluate, train
from schemas.documents import Split
from schemas.messages import UsageError
from schemas.overrides import override
from training.config import Device, check_driver
from training.project import command
from training.recipes import DEFAULT_RECIPE, known_recipe


def train_command(
    lake: options.LakePath,
    dataset: Annotated[
        str | None, typer.Option(help="NAME or NAME@VERSION; not with --resume.", autocompletion=options.datasets)
    ] = None,
    recipe: options.Recipe = None,
    settings: options.Settings = None,
    workers: options.TrainWorkers = 1,
    resume: Annotated[
        str | None, typer.Option(metavar="RUN", help="Continue this run from its last checkpoint.")
    ] = None,
    reuse: Annotated[
        bool,
        typer.Option("--reuse", help="Use the model of an earlier run with these settings, or continue a stopped one."),
    ] = False,
    with_report: Annotated[
        bool,
        typer.Option(
            "--report/--no-report", help="Evaluate the trained model, and store its report and scores with it."
        ),
    ] = True,
    tracking: options.NewTracking = None,
    *,
    say: options.Progress,
) -> options.Summaries:
    """Train on a data set, log the run in MLflow, and register the trained model as the challenger."""
    if reuse and resume is not None:
        raise UsageError("--reuse finds the run to continue by its settings: expected no --resume")
    if f"training.device={Device.CUDA}" in (settings or ()):
        check_driver()
    if resume is None:
        make = known_recipe(recipe or DEFAULT_RECIPE)
        dataset = options.known_dataset(lake, dataset or "")
        override(make(), settings or []).check_workers(workers)
    made = train(
        say,
        lake=lake,
        dataset=dataset,
        recipe=recipe,
        settings=tuple(settings or ()),
        workers=workers,
        resume=resume,
        reuse=reuse,
        with_report=with_report,
        tracking_uri=tracking,
    )
    lines, version = made.summary.lines(), made.summary.version
    if made.evaluation is not None:
        lines += ["", *made.evaluation.outcome(lake, tracking)]
    elif not with_report:
        about = ("--model", version.uri, "--dataset", version.dataset, "--lake", lake)
        advice = command("evaluate", *about, tracking=tracking)
        lines.append(f"not evaluated, so its links have no probability: {advice}")
    yield lines, made


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
    model: Annotated[str | None, typer.Option(help=f"{options.ADDRESSES}.", autocompletion=options.models)] = None,
    dataset: Annotated[str | None, typer.Option(help="NAME or NAME@VERSION.", autocompletion=options.datasets)] = None,
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


def compare_command(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN_OR_MODEL...", help="Models, or baselines by name; each is compared with the first."
        ),
    ],
    lake: options.LakePath,
    dataset: Annotated[str | None, typer.Option(help="NAME or NAME@VERSION; the first model's by default.")] = None,
    split: options.Split = Split.TEST,
    workers: options.ShardWorkers = 1,
    tracking: options.Tracking = None,
    *,
    say: options.Progress,
) -> options.Summaries:
    """Compare models on the same documents: means, paired differences to the first, and agreement."""
    if len(models) < 2:
        raise UsageError(f"compare: expected at least two models, found {len(models)}")
    if dataset is not None:
        dataset = options.known_dataset(lake, dataset)
    found = compare(
        say,
        models=tuple(models),
        dataset=dataset,
        lake=lake,
        split=split,
        workers=workers,
        tracking_uri=tracking,
    )
    from training.report.sections import comparison_lines

    yield comparison_lines(found), found


def sweep_command(
    lake: options.LakePath,
    dataset: options.Dataset,
    recipe: options.Recipe = None,
    settings: options.Settings = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE,VALUE,...",
            help="Try each of these values; may be repeated, for every combination. By default 10, 20 and 30 "
            "negative documents, of which the hardest or the mean counts (Hessel 2019, tables S1-S4).",
        ),
    ] = None,
    workers: options.TrainWorkers = 1,
    split: options.Split = Split.VAL,
    tracking: options.NewTracking = None,
    *,
    say: options.Progress,
) -> options.Summaries:
    """Train every combination of some settings as `train` does, and compare the models.

    A repeated call continues: models with the same settings are not trained again.
    """
    make = known_recipe(recipe or DEFAULT_RECIPE)
    dataset = options.known_dataset(lake, dataset)
    override(make(), settings or [])
    from training.report.sections import sweep_lines
    from training.workflows.studies import PAPER, run_sweep

    found = run_sweep(
        lake=lake,
        dataset=dataset,
        recipe=recipe,
        overrides=settings or [],
        vary=vary or PAPER,
        workers=workers,
        split=split,
        tracking=tracking,
        say=say,
    )
    yield [*sweep_lines(found), f"run {found.run}"], found


def transfer_command(
    lake: options.LakePath,
    models: Annotated[str, typer.Option(help="Addresses of models, as for evaluate, separated by commas.")],
    datasets: Annotated[str, typer.Option(help="NAME or NAME@VERSION of data sets, separated by commas.")],
    split: options.Split = Split.TEST,
    workers: options.ShardWorkers = 1,
    tracking: options.Tracking = None,
    *,
    say: options.Progress,
) -> options.Summaries:
    """Evaluate models on other data sets: AUC of every model on every data set."""
    addresses = options.items(models, "--models")
    references = [options.known_dataset(lake, dataset) for dataset in options.items(datasets, "--datasets")]
    from training.report.sections import transfer_lines
    from training.workflows.studies import run_transfer
    from training.workflows.workers import by_workers

    with by_workers(workers):
        cells = run_transfer(models=addresses, datasets=references, lake=lake, split=split, tracking=tracking, say=say)
    yield transfer_lines(cells), {"split": split, "cells": cells}
