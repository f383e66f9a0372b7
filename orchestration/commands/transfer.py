from typing import Annotated

import typer

from orchestration.commands import options
from schemas.console import Console


def command(
    lake: options.LakePath,
    models: Annotated[str, typer.Option(help="Addresses of models, separated by commas, as for evaluate.")],
    datasets: Annotated[str, typer.Option(help="NAME or NAME@VERSION of data sets, separated by commas.")],
    split: options.Split = "test",
    report: options.Report = None,
    tracking: options.Tracking = None,
) -> options.Summaries:
    """Judge models on data sets they were not trained on: AUC of every model on every data set."""
    addresses = options.items(models, "--models")
    references = [options.known_dataset(lake, dataset) for dataset in options.items(datasets, "--datasets")]
    from training.report.pages import transfer_page, transfer_table, write_page
    from training.workflows.compare import run_transfer

    cells = run_transfer(
        models=addresses, datasets=references, lake=lake, split=split, tracking=tracking, say=Console().say
    )
    problems = [f"- {cell.model} on {cell.dataset}: {cell.problem}" for cell in cells if cell.problem]
    page = None if report is None else write_page(report, transfer_page(cells, split=split))
    values = {"split": split, "cells": [cell.to_json() for cell in cells]}
    yield options.with_report([*transfer_table(cells).lines(), *problems], values, page)
