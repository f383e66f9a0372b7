"""The commands that measure and register nothing: the supervised upper bound, and transfer between data sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from schemas.console import Console
from schemas.errors import UsageError

if TYPE_CHECKING:
    from training.evaluation.bootstrap import Interval
    from training.evaluation.transfer import TransferCell
    from training.study_commands import CurveSummary

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
    from training.study_commands import run_supervised

    console = Console(is_json=is_json)
    summary = run_supervised(
        dataset=dataset,
        lake=lake,
        recipe=recipe,
        overrides=settings or [],
        shares=_numbers(shares),
        split=split,
        say=console.say,
    )
    page = None if report is None else summary.write(report)
    console.summarise([*curve_lines(summary), *_page_lines(page)], summary.to_json() | _page_values(page))


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
    from training.evaluation.study_pages import write_transfer
    from training.study_commands import run_transfer

    console = Console(is_json=is_json)
    cells = run_transfer(
        models=_names(models, "--models"),
        datasets=_names(datasets, "--datasets"),
        lake=lake,
        split=split,
        tracking=tracking,
        say=console.say,
    )
    page = None if report is None else write_transfer(cells, report, split=split)
    values = {"split": split, "cells": [_cell_values(cell) for cell in cells]}
    console.summarise([*transfer_lines(cells), *_page_lines(page)], values | _page_values(page))


def curve_lines(summary: CurveSummary) -> list[str]:
    """Return a row for each run: what it minimised, how many documents were labelled, its scores."""
    lines = [
        f"{summary.dataset}, {summary.split}",
        f"{'objective':28}{'labelled':>16}{'AUC':>22}{'p@1':>22}{'p@5':>22}",
    ]
    for point in summary.points:
        labelled = "none" if point.share is None else f"{point.labelled} ({100 * point.share:g}%)"
        means = point.evaluation.mean
        cells = (means.auc, means.precision_at_1, means.precision_at_5)
        lines.append(f"{point.objective:28}{labelled:>16}" + "".join(_text(cell).rjust(22) for cell in cells))
    return lines


def transfer_lines(cells: Sequence[TransferCell]) -> list[str]:
    """Return the matrix of AUCs, models down and data sets across, and below it why a cell has none."""
    datasets = list(dict.fromkeys(cell.dataset for cell in cells))
    wide = max(map(len, datasets)) + 2
    rows: dict[str, list[str]] = {}
    for cell in cells:
        title = f"{cell.model} (of {cell.trained_on})"
        rows.setdefault(title, []).append("-" if cell.scores is None else _text(cell.scores.auc))
    first = max(map(len, rows)) + 2
    lines = ["AUC".ljust(first) + "".join(name.rjust(max(wide, 22)) for name in datasets)]
    lines += [title.ljust(first) + "".join(text.rjust(max(wide, 22)) for text in row) for title, row in rows.items()]
    return lines + [f"- {cell.model} on {cell.dataset}: {cell.problem}" for cell in cells if cell.scores is None]


def _page_lines(page: Path | None) -> list[str]:
    return [] if page is None else [f"report: {page}"]


def _page_values(page: Path | None) -> dict[str, str]:
    return {} if page is None else {"report": str(page)}


def _cell_values(cell: TransferCell) -> dict[str, Any]:
    scores = {} if cell.scores is None else asdict(cell.scores)
    return {
        "model": cell.model,
        "trained_on": cell.trained_on,
        "dataset": cell.dataset,
        "is_transfer": cell.is_transfer,
        "problem": cell.problem,
        **scores,
    }


def _text(interval: Interval) -> str:
    return f"{interval.mean:.1f} ({interval.low:.1f}-{interval.high:.1f})"


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
