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
    from training.evaluation.measures import Measures

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
    app.command()(compare)
    app.command()(promote)
    app.command()(rollback)
    app.command()(copy)
    app.command()(serve)
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
    with_captions: Annotated[bool, typer.Option("--captions", help="Caption metrics, too; most need Java.")] = False,
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

    Retrieval, relations, calibration and the rest are measured where they apply, and all numbers are kept as a table
    with the model's run and beside the report.

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
            model=model or "",
            dataset=dataset or "",
            lake=lake,
            split=split,
            tracking=tracking,
            with_captions=with_captions,
            say=console.say,
        )
    lines = summary_lines(summary)
    values = summary.to_json()
    if report is not None:
        from training.reporting import run_report

        path = run_report(summary, lake=lake, directory=report, tracking=tracking)
        lines.append(f"report: {path}")
        values["report"] = str(path)
    console.summarise(lines, values)


def compare(
    models: Annotated[list[str], typer.Argument(metavar="RUN_OR_MODEL...", help="The first is the yardstick.")],
    lake: LakeOption,
    dataset: Annotated[str | None, typer.Option(help="NAME or NAME@VERSION; the first model's by default.")] = None,
    split: Annotated[str, typer.Option(help="train, val or test.")] = "test",
    report: Annotated[Path | None, typer.Option(metavar="DIR", help="Write the HTML page to this folder.")] = None,
    tracking: TrackingOption = None,
    is_json: JsonOption = False,
) -> None:
    """Put models side by side on the same documents: means, paired differences to the first, and agreement."""
    from training.comparing import run_compare
    from training.evaluation.compare import comparison_lines

    console = Console(is_json=is_json)
    summary = run_compare(
        models=models, dataset=dataset, lake=lake, split=split, directory=report, tracking=tracking, say=console.say
    )
    page = [] if summary.page is None else [f"report: {summary.page}"]
    console.summarise([*comparison_lines(summary.comparison), *page], summary.to_json())


def promote(
    model: Annotated[str, typer.Option(help="Registered model.")],
    version: Annotated[str, typer.Option(help="Its version, or an alias such as challenger.")],
    policy: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Settings of the gate: TOML; see training/registry/policy.py.")
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="NAME or NAME@VERSION to score on; what the model was trained on, by default.")
    ] = None,
    is_dry_run: Annotated[bool, typer.Option("--dry-run", help="Decide, but move and record nothing.")] = False,
    lake: Annotated[str | None, typer.Option("--lake", help="Lake of the data set; the model knows its own.")] = None,
    tracking: TrackingOption = None,
    is_json: JsonOption = False,
) -> None:
    """Make a version the champion if the policy allows it; exit status 1 where not.

    Without a policy: it must beat random, not be worse than the champion, and be scored on the latest version.
    """
    from training.commands import run_promote
    from training.registry.policy import STANDARD_POLICY, read_policy

    console = Console(is_json=is_json)
    promotion = run_promote(
        model=model,
        version=version,
        lake=lake,
        dataset=dataset,
        is_dry_run=is_dry_run,
        tracking=tracking,
        policy=STANDARD_POLICY if policy is None else read_policy(policy),
        say=console.say,
    )
    verb = "would be" if is_dry_run else "is"
    verdict = f"{promotion.candidate.uri} {verb} {'' if promotion.is_champion else 'not '}the champion"
    console.summarise([verdict, *(f"  {reason}" for reason in promotion.reasons)], promotion.to_json())
    if not promotion.is_champion:
        raise GateError(f"{promotion.candidate.uri} was not promoted: {'; '.join(promotion.reasons)}")


def rollback(
    model: Annotated[str, typer.Option(help="Registered model.")],
    champion: Annotated[
        str | None, typer.Option("--from", metavar="VERSION", help="Only if this version is the champion.")
    ] = None,
    tracking: TrackingOption = None,
    is_json: JsonOption = False,
) -> None:
    """Make the previous champion the champion again; exit status 1 where there is none."""
    from training.commands import run_rollback

    done = run_rollback(model=model, champion=champion, tracking=tracking)
    line = f"{done.champion.uri} is the champion again, in place of version {done.replaced}"
    Console(is_json=is_json).summarise([line], done.to_json())


def copy(
    model: Annotated[str, typer.Option(help="Registered model.")],
    version: Annotated[str, typer.Option(help="Its version, or an alias such as champion.")],
    to: Annotated[str, typer.Option(metavar="URI", help="MLflow's address of the other registry.")],
    name: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="Its name there; the same by default.")
    ] = None,
    tracking: TrackingOption = None,
    is_json: JsonOption = False,
) -> None:
    """Copy a version with its run to another registry, such as staging's to production's: the challenger there."""
    from training.commands import run_copy

    console = Console(is_json=is_json)
    done = run_copy(model=model, version=version, to=to, name=name, tracking=tracking, say=console.say)
    verb = "is a copy" if done.is_new else "has been a copy before"
    lines = [f"{done.version.uri} {verb} of {done.copied_from}", f"sha256 {done.digest}"]
    console.summarise(lines, done.to_json())


def serve(
    model: Annotated[
        str,
        typer.Option(
            help="models:/NAME/VERSION, models:/NAME@ALIAS, NAME (its champion), runs:/RUN/model or a folder."
        ),
    ],
    host: Annotated[str, typer.Option(help="Address to listen on; who reaches it is answered.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0: one that is free.")] = 5050,
    calibration: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Calibration of the model; its run's by default.")
    ] = None,
    tracking: TrackingOption = None,
    is_json: JsonOption = False,
) -> None:
    """Answer documents with their links over HTTP, by MLflow's scoring server, until interrupted.

    A document is given as the model reads it: its sentences, and the vectors of the extractors it was trained on, or
    its pictures; `multilink link --input` takes raw documents.
    """
    from training.serving_command import run_serve

    run_serve(
        model=model,
        host=host,
        port=port,
        calibration_path=calibration,
        tracking=tracking,
        announce=Console(is_json=is_json).summarise,
    )


def summary_lines(summary: EvaluateSummary) -> list[str]:
    """Return scores as an aligned table, random's below, what was left out, and the other measures in a line each."""
    evaluation = summary.evaluation
    lines = []
    if evaluation.link_means is not None:
        lines.append(f"{'':10}{'AUC':>22}{'p@1':>22}{'p@5':>22}")
        for title, means in (("model", evaluation.mean), ("random", evaluation.random)):
            cells = (means.auc, means.precision_at_1, means.precision_at_5)
            lines.append(f"{title:10}" + "".join(interval_text(cell).rjust(22) for cell in cells))
    left_out = ", ".join(f"{count} {reason}" for reason, count in evaluation.left_out.items()) or "none"
    lines.append(f"{len(evaluation.scored)} documents; left out: {left_out}")
    return lines if summary.measures is None else [*lines, *measure_lines(summary.measures)]


def measure_lines(measures: Measures) -> list[str]:
    """Return the other measures, a line each."""
    lines = []
    for name, rows in (("retrieval", measures.retrieval), ("refined", measures.refined)):
        for row in rows:
            recall = ", ".join(f"R@{cutoff} {found.value:.1f}" for cutoff, found in row.recall.items())
            pool = f"{row.samples} samples of {row.candidates:.0f}" if row.samples else f"pool of {row.candidates:.0f}"
            lines.append(f"{name} {row.direction}, {pool}: {recall}, median rank {row.median_rank.value:g}")
    for score in measures.relations:
        if score.average_precision is not None:
            lines.append(f"relation {score.name}: average precision {score.average_precision:.1f}")
    if measures.calibration is not None:
        for kept in measures.calibration.kept:
            at = "not reached" if kept.threshold is None else f"similarity {kept.threshold:.3f}, keeps {kept.kept:.1f}%"
            lines.append(f"links at {kept.wanted:.0%} precision: {at}")
    if measures.captions is not None:
        values = ", ".join(f"{name} {value:.1f}" for name, value in measures.captions.values.items())
        lines.append(f"captions of {measures.captions.images} images: {values or 'none'}")
        lines += [f"{name}: {reason}" for name, reason in measures.captions.absent.items()]
    return lines


def interval_text(interval: Interval) -> str:
    """Return a mean with its 95% bootstrap interval."""
    return f"{interval.mean:.1f} ({interval.low:.1f}-{interval.high:.1f})"
