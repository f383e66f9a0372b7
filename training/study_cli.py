"""The commands that measure and register nothing: the supervised upper bound, and transfer between data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from schemas.console import Console
from schemas.errors import UsageError

LakeOption = Annotated[str, typer.Option("--lake", envvar="MULTILINK_LAKE", help="Path or URI of the lake.")]
TrackingOption = Annotated[
    str | None,
    typer.Option("--tracking-uri", help="MLflow's address; MLFLOW_TRACKING_URI, else ./mlflow.db, by default."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the summary as JSON, as the last line.")]
ReportOption = Annotated[Path | None, typer.Option("--report", metavar="DIR", help="Write the page to this folder.")]
SplitOption = Annotated[str, typer.Option(help="train, val or test.")]


def register(app: typer.Typer) -> None:
    """Add this module's commands to the one command."""
    app.command()(supervised)
    app.command()(transfer)


def supervised(
    lake: LakeOption,
    dataset: Annotated[str, typer.Option(help="NAME or NAME@VERSION.")],
    recipe: Annotated[str, typer.Option(help="Named settings, whose objective is the one compared with.")] = "tiny",
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of the recipe.")
    ] = None,
    shares: Annotated[str, typer.Option(help="Shares of labelled documents, separated by commas.")] = "0.1,0.2,0.4,1",
    split: SplitOption = "test",
    report: ReportOption = None,
    is_json: JsonOption = False,
) -> None:
    """Show how many labelled documents a supervised model needs to match what is learnt without links.

    Trains in this process; nothing is registered.
    """
    from training.report.pages import curve_table, supervised_page, write_page
    from training.study_commands import run_supervised

    console = Console(is_json=is_json)
    found = run_supervised(
        dataset=dataset,
        lake=lake,
        recipe=recipe,
        overrides=settings or [],
        shares=_numbers(shares),
        split=split,
        say=console.say,
    )
    lines, values = [f"{found.dataset}, {found.split}", *curve_table(found.points).lines()], found.to_json()
    if report is not None:
        page = write_page(report, supervised_page(found.points, dataset=found.dataset, split=found.split))
        lines, values = [*lines, f"report: {page}"], values | {"report": str(page)}
    console.summarise(lines, values)


def transfer(
    lake: LakeOption,
    models: Annotated[str, typer.Option(help="Addresses of models, separated by commas, as for evaluate.")],
    datasets: Annotated[str, typer.Option(help="NAME or NAME@VERSION of data sets, separated by commas.")],
    split: SplitOption = "test",
    report: ReportOption = None,
    tracking: TrackingOption = None,
    is_json: JsonOption = False,
) -> None:
    """Judge models on data sets they were not trained on: AUC of every model on every data set."""
    from training.report.pages import transfer_page, transfer_table, write_page
    from training.study_commands import cell_json, run_transfer

    console = Console(is_json=is_json)
    cells = run_transfer(
        models=_names(models, "--models"),
        datasets=_names(datasets, "--datasets"),
        lake=lake,
        split=split,
        tracking=tracking,
        say=console.say,
    )
    lines = transfer_table(cells).lines()
    lines += [f"- {cell.model} on {cell.dataset}: {cell.problem}" for cell in cells if cell.problem]
    values = {"split": split, "cells": [cell_json(cell) for cell in cells]}
    if report is not None:
        page = write_page(report, transfer_page(cells, split=split))
        lines, values = [*lines, f"report: {page}"], values | {"report": str(page)}
    console.summarise(lines, values)


def _names(text: str, option: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise UsageError(f"{option} {text!r}: expected at least one name")
    return names


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in _names(text, "--shares")]
    except ValueError:
        raise UsageError(f"--shares {text!r}: expected numbers in (0, 1], separated by commas") from None
