from typing import Annotated

import typer

from orchestration.commands import options
from schemas.overrides import override
from training.recipes import DEFAULT_RECIPE, known_recipe


def command(
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
    at_once: Annotated[int, typer.Option(help="Number of combinations trained at the same time, a process each.")] = 1,
    split: options.Split = "val",
    report: options.Report = None,
    tracking: options.NewTracking = None,
    *,
    say: options.Progress,
) -> options.Summaries:
    """Train every combination of some settings as `train` does, and judge the models side by side.

    A repeated call continues: what was trained with the same settings is not trained again.
    """
    make = known_recipe(recipe or DEFAULT_RECIPE)
    dataset = options.known_dataset(lake, dataset)
    override(make(), settings or [])
    from training.report.pages import sweep_page, sweep_table
    from training.workflows.studies import PAPER, run_sweep

    found = run_sweep(
        lake=lake,
        dataset=dataset,
        recipe=recipe,
        overrides=settings or [],
        vary=vary or PAPER,
        workers=workers,
        at_once=at_once,
        split=split,
        tracking=tracking,
        say=say,
    )
    problems = [f"- {', '.join(cell.settings)}: {cell.problem}" for cell in found.cells if cell.problem]
    lines = [f"{found.dataset}, {found.split}", *sweep_table(found).lines(), *problems, f"run {found.run}"]
    yield options.with_report(lines, found, report, lambda: sweep_page(found))
