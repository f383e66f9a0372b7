"""The pages of `multilink supervised` and `multilink transfer`, in the report's looks, published rows beside ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from training.evaluation.contents import score_row
from training.evaluation.evaluate import MeanScores
from training.evaluation.figures import Series, line_chart
from training.evaluation.measure_parts import Grid, interval_text
from training.evaluation.published import published_transfer
from training.evaluation.report import ScoreTable, environment, published_rows, score_table, write_page
from training.evaluation.report_content import RowKind, ScoreRow
from training.evaluation.score_kinds import ScoreKind
from training.evaluation.transfer import TransferCell

METRICS = ScoreKind.LINKS.metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class StudiedRun:
    """A run of the supervised curve: what it minimised, the share of labels it was shown (None: none), its scores."""

    objective: str
    share: float | None
    labelled: int
    means: MeanScores


@dataclass(frozen=True, slots=True)
class TransferSection:
    """A data set, and the scores of every model on it."""

    dataset: str
    table: ScoreTable


def write_supervised(runs: Sequence[StudiedRun], directory: Path, *, dataset: str, split: str) -> Path:
    """Write `index.html` of a supervised curve to a directory, made if missing, and return its path.

    Args:
        runs: the unsupervised one first, then by share.
        directory: for the page.
        dataset: NAME@VERSION.
        split: that was judged.
    """
    name = dataset.partition("@")[0]
    rows = [_run_row(run) for run in runs]
    page = (
        environment()
        .get_template("supervised.html.j2")
        .render(
            dataset=dataset,
            name=name,
            split=split,
            objective=runs[0].objective,
            metrics=METRICS,
            table=score_table((*rows, *published_rows(name))),
            charts=[(title, share_chart(runs, metric)) for metric, title in METRICS.items()],
            enough=first_share_above(runs),
        )
    )
    return write_page(directory, page)


def share_chart(runs: Sequence[StudiedRun], metric: str) -> Markup:
    """Return a metric by share of labelled documents, with the unsupervised run as a level (Li 2022, figure 5)."""
    shown = sorted((100 * run.share, getattr(run.means, metric).mean) for run in runs if run.share is not None)
    level = getattr(runs[0].means, metric).mean
    ends = [share for share, _ in (shown[0], shown[-1])] if shown else []
    lines = [Series("supervised", tuple(shown)), Series("no links", tuple((share, level) for share in ends))]
    return line_chart(f"{METRICS[metric]} by share of labels", lines, x_label="documents with labels, percent")


def first_share_above(runs: Sequence[StudiedRun]) -> float | None:
    """Return the smallest share whose mean AUC is above that of the run without links; None where none is."""
    level = runs[0].means.auc.mean
    above = [run.share for run in runs if run.share is not None and run.means.auc.mean > level]
    return min(above, default=None)


def write_transfer(cells: Sequence[TransferCell], directory: Path, *, split: str) -> Path:
    """Write `index.html` of models judged on data sets to a directory, made if missing, and return its path."""
    datasets = list(dict.fromkeys(cell.dataset for cell in cells))
    page = (
        environment()
        .get_template("transfer.html.j2")
        .render(
            split=split,
            models=len({cell.model for cell in cells}),
            datasets=datasets,
            metrics=METRICS,
            grid_of_auc=transfer_grid(cells),
            sections=[_section(dataset, cells) for dataset in datasets],
            problems=[cell for cell in cells if cell.scores is None],
        )
    )
    return write_page(directory, page)


def transfer_grid(cells: Sequence[TransferCell]) -> Grid:
    """Return AUC of every model (down) on every data set (across); a model's own data set is marked."""
    datasets = list(dict.fromkeys(cell.dataset for cell in cells))
    rows: dict[str, list[str]] = {}
    for cell in cells:
        text = "–" if cell.scores is None else interval_text(cell.scores.auc)
        rows.setdefault(_title(cell), []).append(text if cell.is_transfer else f"{text} ⌂")
    return Grid(("AUC", *datasets), tuple((title, tuple(row)) for title, row in rows.items()))


def _section(dataset: str, cells: Sequence[TransferCell]) -> TransferSection:
    name = dataset.partition("@")[0]
    rows = [
        score_row(
            cell.model,
            cell.scores,
            kind=RowKind.BASELINE if cell.is_transfer else RowKind.MODEL,
            note=f"trained on {cell.trained_on}",
        )
        for cell in cells
        if cell.dataset == dataset and cell.scores is not None
    ]
    published = published_rows(name, results=published_transfer(name)) + published_rows(name)
    return TransferSection(dataset, score_table((*rows, *published)))


def _run_row(run: StudiedRun) -> ScoreRow:
    if run.share is None:
        return score_row(run.objective, run.means, kind=RowKind.MODEL, note="no link was shown")
    note = f"links of {run.labelled:,} documents"
    return score_row(f"{run.objective}, {100 * run.share:g}%", run.means, kind=RowKind.BASELINE, note=note)


def _title(cell: TransferCell) -> str:
    return f"{cell.model}, of {cell.trained_on}"
