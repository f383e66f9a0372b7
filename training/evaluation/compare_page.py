"""The page of a comparison: the report's look, for several models on the same documents."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from training.evaluation.axes import Axis, tick_text
from training.evaluation.bootstrap import Interval
from training.evaluation.charts import Point, scatter
from training.evaluation.compare import ModelComparison, ModelResult, correlation_text
from training.evaluation.contents import score_row
from training.evaluation.figures import interval_axis, interval_plot, interval_scale
from training.evaluation.measure_parts import Grid
from training.evaluation.report import environment, published_rows, score_table, write_page
from training.evaluation.report_content import RowKind
from training.evaluation.score_kinds import ScoreKind


@dataclass(frozen=True, slots=True)
class DifferenceCell:
    """A paired difference: in words, whether its interval leaves zero out, and drawn."""

    text: str
    is_clear: bool
    plot: Markup


@dataclass(frozen=True, slots=True)
class DifferenceTable:
    """Rows of (model, cell per metric), and the scale under each column."""

    rows: tuple[tuple[str, tuple[DifferenceCell, ...]], ...]
    scales: tuple[Markup, ...]


def write_comparison(found: ModelComparison, directory: Path, *, dataset: str, version: str, split: str) -> Path:
    """Write `index.html` of a comparison to a directory, made if missing, and return its path."""
    page = render_comparison(found, dataset=dataset, version=version, split=split)
    return write_page(directory, page)


def render_comparison(found: ModelComparison, *, dataset: str, version: str, split: str) -> str:
    """Return the comparison's HTML."""
    kinds = [RowKind.MODEL] + [RowKind.BASELINE] * (len(found.models) - 1)
    rows = [score_row(result.name, result.means, kind=kind) for result, kind in zip(found.models, kinds, strict=True)]
    return (
        environment()
        .get_template("compare.html.j2")
        .render(
            found=found,
            dataset=dataset,
            version=version,
            split=split,
            metrics=found.kind.metrics,
            leading=found.kind.metrics[found.kind.leading],
            table=score_table((*rows, *published_rows(dataset, found.kind)), found.kind),
            differences=difference_table(found),
            agreement=agreement_grid(found),
            pairs=[document_scatter(found.models[0], other, found.kind) for other in found.models[1:]],
        )
    )


def difference_table(found: ModelComparison) -> DifferenceTable:
    """Return each model's paired difference to the first; all plots of a metric share an axis that holds zero."""
    axes: list[Axis] = []
    titles = found.kind.metrics
    for metric in titles:
        intervals = [result.differences[metric].difference for result in found.models[1:]]
        axes.append(interval_axis([0.0, *(end for cell in intervals for end in (cell.low, cell.mean, cell.high))]))
    rows = tuple(
        (
            result.name,
            tuple(
                _difference(f"{result.name}, {name}", result.differences[metric].difference, axis)
                for (metric, name), axis in zip(titles.items(), axes, strict=True)
            ),
        )
        for result in found.models[1:]
    )
    scales = tuple(interval_scale(f"Scale of {name}", axis) for name, axis in zip(titles.values(), axes, strict=True))
    return DifferenceTable(rows, scales)


def agreement_grid(found: ModelComparison) -> Grid:
    """Return the rank correlations, models numbered in the heads."""
    heads = ("Model", *(str(place) for place in range(1, len(found.models) + 1)))
    rows = tuple(
        (f"{place}  {result.name}", tuple(correlation_text(value) for value in row))
        for place, (result, row) in enumerate(zip(found.models, found.agreement, strict=True), start=1)
    )
    return Grid(heads, rows)


def document_scatter(first: ModelResult, other: ModelResult, kind: ScoreKind) -> tuple[str, Markup]:
    """Return a title, and a dot per document at its leading metric with either model."""
    points = [Point(x, y, f"{x:.1f} and {y:.1f}") for x, y in zip(first.leading, other.leading, strict=True)]
    label = f"{kind.metrics[kind.leading]} of {first.name}"
    level = 50.0 if kind is ScoreKind.LINKS else None
    return other.name, scatter(f"{other.name} against {first.name}", points, x_label=label, level=level)


def _difference(title: str, cell: Interval, axis: Axis) -> DifferenceCell:
    low, high = _signed(cell.low), _signed(cell.high)
    text = f"{_signed(cell.mean)} ({low} to {high})"
    plot = interval_plot(f"{title}: {text}", cell.mean, axis, low=cell.low, high=cell.high)
    return DifferenceCell(text, cell.low > 0 or cell.high < 0, plot)


def _signed(value: float) -> str:
    return ("+" if round(value, 1) > 0 else "") + tick_text(value, 1)
