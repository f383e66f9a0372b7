"""The commands that train, compare and promote: they parse, delegate, and print one summary.

`evaluate` is in `evaluate_cli.py`, what measures and registers nothing in `study_cli.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from schemas.console import Console
from schemas.errors import GateError, UsageError
from schemas.lake import Lake
from training import evaluate_cli, study_cli

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
    evaluate_cli.register(app)
    app.command()(compare)
    app.command()(promote)
    app.command()(rollback)
    app.command()(copy)
    app.command()(serve)
    study_cli.register(app)


def train(
    lake: LakeOption,
    dataset: Annotated[str | None, typer.Option(help="NAME or NAME@VERSION; a resumed run knows its own.")] = None,
    recipe: Annotated[str | None, typer.Option(help="Named settings; `multilink settings` lists them.")] = None,
    settings: SetOption = None,
    workers: Annotated[int, typer.Option(help="Training processes.")] = 1,
    resume: Annotated[
        str | None, typer.Option(metavar="RUN", help="Continue this run from its last checkpoint.")
    ] = None,
    with_report: Annotated[
        bool, typer.Option("--report/--no-report", help="Judge the kept model, and keep its report and scores with it.")
    ] = True,
    tracking: TrackingOption = None,
    is_json: JsonOption = False,
) -> None:
    """Train on a data set with Ray, log the run in MLflow, and register the kept model as the challenger."""
    if workers < 1:
        raise UsageError(f"--workers {workers}: expected at least 1")
    from training.tracked_training import run_train

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
    values = summary.to_json()
    if with_report:
        from training.reporting import run_training_report

        judged = run_training_report(summary, lake=lake, tracking=tracking, say=console.say)
        lines += [] if judged is None else evaluate_cli.summary_lines(judged)
        values["evaluation"] = None if judged is None else judged.to_json()
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
    from training.report.pages import comparison_lines

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
        Path | None, typer.Option(metavar="FILE", help="Settings of the gate: TOML; see training/mlflow/gate.py.")
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

    Without a policy: it must beat random, not be worse than the champion, on at least 20 documents of the validation
    split of the latest version.
    """
    from training.mlflow.gate import read_policy
    from training.mlflow.promotion import promote as promote_version
    from training.mlflow.runs import open_tracking

    console = Console(is_json=is_json)
    promotion = promote_version(
        open_tracking(tracking),
        model,
        version,
        lake=None if lake is None else Lake.at(lake),
        dataset=dataset,
        policy=read_policy(policy),
        is_dry_run=is_dry_run,
        say=console.say,
    )
    candidate, decision = promotion.candidate, promotion.decision
    verb = "would be" if is_dry_run else "is"
    verdict = f"{candidate.uri} {verb} {'' if decision.is_promoted else 'not '}the champion"
    console.summarise([verdict, *(f"  {reason}" for reason in decision.reasons)], promotion.to_json())
    if not decision.is_promoted:
        raise GateError(f"{candidate.uri} was not promoted: {'; '.join(decision.reasons)}")


def rollback(
    model: Annotated[str, typer.Option(help="Registered model.")],
    champion: Annotated[
        str | None, typer.Option("--from", metavar="VERSION", help="Only if this version is the champion.")
    ] = None,
    tracking: TrackingOption = None,
    is_json: JsonOption = False,
) -> None:
    """Make the previous champion the champion again; exit status 1 where there is none."""
    from training.mlflow.promotion import rollback as roll_back
    from training.mlflow.runs import open_tracking

    restored, replaced = roll_back(open_tracking(tracking), model, champion=champion)
    line = f"{restored.uri} is the champion again, in place of version {replaced}"
    values = {"model": restored.name, "version": restored.version, "champion_before": replaced}
    Console(is_json=is_json).summarise([line], values)


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
    from training.mlflow.copying import copy_version
    from training.mlflow.runs import open_tracking, tracking_uri

    console = Console(is_json=is_json)
    source, target = open_tracking(tracking).tracking_uri, tracking_uri(to)
    done = copy_version(source, model, version, to=target, new_name=name, say=console.say)
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
    """Answer documents with their links over HTTP, until interrupted.

    A document is given as the model reads it: its sentences, and the vectors of the extractors it was trained on, or
    its pictures; `multilink link --input` takes raw documents.
    """
    from training.mlflow.serving import run_serve

    run_serve(
        model=model,
        host=host,
        port=port,
        calibration_path=calibration,
        tracking=tracking,
        announce=Console(is_json=is_json).summarise,
    )
