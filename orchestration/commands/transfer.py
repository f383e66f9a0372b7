from typing import Annotated

import typer

from orchestration.commands import options


def command(
    lake: options.LakePath,
    models: Annotated[str, typer.Option(help="Addresses of models, as for evaluate, separated by commas.")],
    datasets: Annotated[str, typer.Option(help="NAME or NAME@VERSION of data sets, separated by commas.")],
    split: options.Split = "test",
    report: options.Report = None,
    workers: options.ShardWorkers = 1,
    tracking: options.Tracking = None,
    *,
    say: options.Progress,
) -> options.Summaries:
    """Judge models on data sets they were not trained on: AUC of every model on every data set."""
    addresses = options.items(models, "--models")
    references = [options.known_dataset(lake, dataset) for dataset in options.items(datasets, "--datasets")]
    from training.report.pages import transfer_page, transfer_table
    from training.workflows.studies import run_transfer
    from training.workflows.workers import by_workers

    with by_workers(workers):
        cells = run_transfer(models=addresses, datasets=references, lake=lake, split=split, tracking=tracking, say=say)
    problems = [f"- {cell.model} on {cell.dataset}: {cell.problem}" for cell in cells if cell.problem]
    values = {"split": split, "cells": cells}
    lines = [*transfer_table(cells).lines(), *problems]
    yield options.with_report(lines, values, report, lambda: transfer_page(cells, split=split))
