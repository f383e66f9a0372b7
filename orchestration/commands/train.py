from typing import Annotated

import typer

from orchestration.commands import options
from orchestration.steps import train
from schemas.messages import UsageError
from schemas.overrides import override
from training.recipes import DEFAULT_RECIPE, known_recipe


def train_command(
    lake: options.LakePath,
    dataset: Annotated[str | None, typer.Option(help="NAME or NAME@VERSION; not with --resume.")] = None,
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
    if workers < 1:
        raise UsageError(f"--workers {workers}: expected at least 1")
    if reuse and resume is not None:
        raise UsageError("--reuse finds the run to continue by its settings: expected no --resume")
    if resume is None:
        make = known_recipe(recipe or DEFAULT_RECIPE)
        dataset = options.known_dataset(lake, dataset or "")
        override(make(), settings or [])
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
    lines, model = made.summary.lines(), made.summary.version.uri
    if made.evaluation is not None:
        lines += ["", *made.evaluation.outcome(lake)]
    elif not with_report:
        lines.append(f"not evaluated, so its links have no probability: multilink evaluate --model {model}")
    yield lines, made
