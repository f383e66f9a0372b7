"""The commands that train, judge and promote: they parse, delegate, and print one summary."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from schemas.console import Console
from schemas.errors import GateError, UsageError
from training import study_cli

if TYPE_CHECKING:
    from training.commands import EvaluateSummary
    from training.evaluation.bootstrap import Interval

LakeOption = Annotated[str, typer.Option("--lake", envvar="MULTILINK_LAKE", help="Path or URI of the lake.")]
TrackingOption = Annotated[
    str | None,
    typer.Option("--tracking-uri", help="MLflow's address; MLFLOW_TRACKING_URI, else ./mlflow.db, by default."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the summary as JSON, as the last line.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of the recipe.")
]


def register(app: typer.Typer) -> None:
    """Add this module's commands to the one command."""
    app.command()(train)
    app.command()(evaluate)
    app.command()(promote)
    study_cli.register(app)


def train(
    lake: LakeOption,
    dataset: Annotated[str | None, typer.Option(help="NAME or NAME@VERSION; a resumed run knows its own.")] = None,
    recipe: Annotated[str | None, typer.Option(help="Named settings: tiny, hessel-2019.")] = None,
    settings: SetOption = None,
    workers: Annotated[int, typer.Option(help="Training processes.")] = 1,
    resume: Annotated[
        str | None, typer.Option(metavar="RUN", help="Continue this run from its last checkpoint.")
    ] = None,
    tracking: TrackingOption = None,
    is_json: JsonOption = False,
) -> None:
    """Train on a data set with Ray, log the run in MLflow, and register the kept model as the challenger."""
    if workers < 1:
        raise UsageError(f"--workers {workers}: expected at least 1")
    from training.commands import run_train

    console = Console(is_json=is_json)
    summary = run_train(
        lake=lake,
        dataset=dataset,
        recipe=recipe,
        overrides=settings or [],
        workers=workers,
        resume=resume,
        tracking=tracking,
        say=console.say,
    )
    loss = summary.best_validation_loss
    kept = f"epoch {summary.best_epoch} of {summary.epochs} kept"
    lines = [
        f"{summary.model_uri}: {kept}" + (f", validation loss {loss:.4f}" if loss is not None else ""),
        f"run {summary.run_id} in {summary.tracking_uri}",
    ]
    console.summarise(lines, summary.to_json())


def evaluate(
    model: Annotated[
        str | None, typer.Option(help="models:/NAME/VERSION, models:/NAME@ALIAS, runs:/RUN/model or a folder.")
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="NAME or NAME@VERSION.")] = None,
    split: Annotated[str, typer.Option(help="train, val or test.")] = "test",
    lake: Annotated[str, typer.Option("--lake", envvar="MULTILINK_LAKE", help="Path or URI of the lake.")] = "",
    report: Annotated[Path | None, typer.Option(metavar="DIR", help="Write the HTML report to this folder.")] = None,
    scores: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Score matrices made elsewhere instead: JSON Lines.")
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(help="Instead of a model: random, object-detection, joint-embeddings.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Of a baseline: word_vectors, columns.")
    ] = None,
    tracking: TrackingOption = None,
    is_json: JsonOption = False,
) -> None:
    """Score a model's links on a data set: AUC and precision at 1 and 5, each with its 95% bootstrap interval.

    With --scores, the matrices of a file are scored: one JSON line a document, {"id", "scores": [[...]], "links":
    [[sentence, image], ...]}.
    """
    from training.commands import run_evaluate, run_evaluate_scores

    console = Console(is_json=is_json)
    if settings and baseline is None:
        raise UsageError("--set: of a baseline alone; a model has its settings")
    if baseline is not None:
        if not dataset or not lake or model is not None or scores is not None or report is not None:
            raise UsageError("--baseline: takes --dataset and --lake beside it, no --model, --scores or --report")
        from training.study_commands import run_baseline

        found = run_baseline(baseline=baseline, dataset=dataset, lake=lake, split=split, settings=settings or [])
        study_cli.print_baseline(found, console)
        return
    if scores is not None:
        if model is not None or dataset is not None or report is not None:
            raise UsageError("--scores: takes no --model, --dataset or --report beside it")
        summary = run_evaluate_scores(str(scores))
    else:
        for name, value in (("--model", model), ("--dataset", dataset), ("--lake", lake)):
            if not value:
                raise UsageError(f"{name}: expected a value; evaluate takes --model, --dataset and --lake, or --scores")
        summary = run_evaluate(
            model=model or "", dataset=dataset or "", lake=lake, split=split, tracking=tracking, say=console.say
        )
    lines = summary_lines(summary)
    values = summary.to_json()
    if report is not None:
        from training.reporting import run_report

        path = run_report(summary, lake=lake, directory=report, tracking=tracking)
        lines.append(f"report: {path}")
        values["report"] = str(path)
    console.summarise(lines, values)


def promote(
    model: Annotated[str, typer.Option(help="Registered model.")],
    version: Annotated[str, typer.Option(help="Its version, or an alias such as challenger.")],
    is_dry_run: Annotated[bool, typer.Option("--dry-run", help="Decide, but move and record nothing.")] = False,
    lake: Annotated[str | None, typer.Option("--lake", help="Lake of the data set; the model knows its own.")] = None,
    tracking: TrackingOption = None,
    is_json: JsonOption = False,
) -> None:
    """Make a version the champion if it beats random and is not worse than the champion; exit status 1 where not."""
    from training.commands import run_promote

    console = Console(is_json=is_json)
    promotion = run_promote(
        model=model, version=version, lake=lake, is_dry_run=is_dry_run, tracking=tracking, say=console.say
    )
    verb = "would be" if is_dry_run else "is"
    verdict = f"{promotion.candidate.uri} {verb} {'' if promotion.is_champion else 'not '}the champion"
    console.summarise([verdict, *(f"  {reason}" for reason in promotion.reasons)], promotion.to_json())
    if not promotion.is_champion:
        raise GateError(f"{promotion.candidate.uri} was not promoted: {'; '.join(promotion.reasons)}")


def summary_lines(summary: EvaluateSummary) -> list[str]:
    """Return scores as an aligned table, random's below, and what was left out."""
    lines = [f"{'':10}{'AUC':>22}{'p@1':>22}{'p@5':>22}"]
    for title, means in (("model", summary.evaluation.mean), ("random", summary.evaluation.random)):
        cells = (means.auc, means.precision_at_1, means.precision_at_5)
        lines.append(f"{title:10}" + "".join(interval_text(cell).rjust(22) for cell in cells))
    left_out = ", ".join(f"{count} {reason}" for reason, count in summary.evaluation.left_out.items()) or "none"
    return [*lines, f"{len(summary.evaluation.scored)} documents; left out: {left_out}"]


def interval_text(interval: Interval) -> str:
    """Return a mean with its 95% bootstrap interval."""
    return f"{interval.mean:.1f} ({interval.low:.1f}-{interval.high:.1f})"
