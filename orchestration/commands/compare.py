from typing import Annotated

import typer

from orchestration.commands import options
from schemas.errors import UsageError


def command(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN_OR_MODEL...", help="Models, or baselines by name; each is compared with the first."
        ),
    ],
    lake: options.LakePath,
    dataset: Annotated[str | None, typer.Option(help="NAME or NAME@VERSION; the first model's by default.")] = None,
    split: options.Split = "test",
    report: options.Report = None,
    workers: options.ShardWorkers = 1,
    tracking: options.Tracking = None,
    *,
    say: options.Progress,
) -> options.Summaries:
    """Put models side by side on the same documents: means, paired differences to the first, and agreement."""
    if len(models) < 2:
        raise UsageError(f"compare: expected at least two models, found {len(models)}")
    if dataset is not None:
        dataset = options.known_dataset(lake, dataset)
    from training.report.pages import comparison_lines, comparison_page
    from training.workflows.studies import run_compare
    from training.workflows.workers import by_workers

    with by_workers(workers):
        found = run_compare(models=models, dataset=dataset, lake=lake, split=split, tracking=tracking, say=say)
    yield options.with_report(comparison_lines(found), found, report, lambda: comparison_page(found))
