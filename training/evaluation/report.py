"""The evaluation report: one HTML file that needs nothing else, for people to read.

`write_report` renders `report.html.j2` with what `ReportContent` says. Here the content is turned into rows, panels
and words; figures are drawn in `figures.py`, documents in `example_graph.py`. Every text is escaped by the template,
and the page forbids itself scripts and outside resources. The same content gives the same bytes.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from schemas.configs import Json
from schemas.manifest import SplitStatistics
from training.config import Select
from training.evaluation.axes import Axis, tick_text
from training.evaluation.example_graph import EdgeKind, ExampleGraph, draw_example
from training.evaluation.figures import Series, histogram, interval_axis, interval_plot, interval_scale, line_chart
from training.evaluation.measure_parts import loss_and_auc, measure_parts
from training.evaluation.published import PublishedResult, published_results
from training.evaluation.published_retrieval import PublishedRetrieval, published_retrieval
from training.evaluation.report_content import ReportContent, RowKind, Score, ScoreRow
from training.evaluation.retrieval import Direction
from training.evaluation.score_kinds import ScoreKind

FILE_NAME = "index.html"
SELECT_RULES: Mapping[Select, str] = {
    Select.LOSS: "At this epoch the validation loss is lowest.",
    Select.LAST: "It is the last epoch.",
    Select.RETRIEVAL: (
        "At this epoch a validation document's own images rank best for its sentences, among the images of other "
        "documents."
    ),
}
EDGE_MEANINGS: Mapping[EdgeKind, str] = {
    EdgeKind.RIGHT: "predicted, true",
    EdgeKind.WRONG: "predicted, not true",
    EdgeKind.MISSED: "true, not predicted",
    EdgeKind.PREDICTED: "predicted, truth unknown",
}
_PANELS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    ("Loss", (("validation_loss", "validation"), ("train_loss", "training"))),
    ("Validation AUC", (("validation_auc", "AUC"),)),
    ("Validation p@1", (("validation_precision_at_1", "p@1"),)),
    ("Validation rank of the own image set, 1 being best", (("validation_rank", "rank"),)),
)


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawing and the heading above it."""

    title: str
    drawing: Markup


@dataclass(frozen=True, slots=True)
class Distribution:
    """Where the documents' AUC lie, in percent."""

    figure: Figure
    facts: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ScoreTable:
    """The score table: rows in order, an axis per metric, and the plot of each known score by row and metric."""

    rows: tuple[ScoreRow, ...]
    scales: Mapping[str, Markup]
    plots: Mapping[tuple[int, str], Markup]


def write_report(content: ReportContent, directory: Path) -> Path:
    """Write `index.html` to a directory, made if missing, and return its path."""
    return write_page(directory, render_report(content))


def write_page(directory: Path, page: str) -> Path:
    """Write `index.html` to a directory, made if missing, and return its path; readers see the old one or the new."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / FILE_NAME
    partial = directory / f"{FILE_NAME}.partial"
    partial.write_text(page, encoding="utf-8", newline="\n")
    partial.replace(path)
    return path


def render_report(content: ReportContent) -> str:
    """Return the report's HTML."""
    groups = [(group.title, [draw_example(document) for document in group.documents]) for group in content.examples]
    model = next((row for row in content.scores if row.kind is RowKind.MODEL), None)
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            heading=content.heading,
            model=model,
            metrics=content.heading.scored_by.metrics,
            table=report_table(content),
            absent_baselines=content.absent_baselines,
            select_rule=SELECT_RULES[content.heading.select],
            panels=training_panels(content.history, kept_epoch=content.heading.kept_epoch),
            together=loss_with_auc(content),
            distribution=distribution(content.document_auc),
            parts=None
            if content.measures is None
            else measure_parts(content.measures, content.pictures, dataset=content.heading.dataset),
            groups=groups,
            legend=edge_legend(graph for _, graphs in groups for graph in graphs),
            splits=list(content.statistics),
            statistics=statistics_rows(content.statistics.values()),
            config=list(dotted(content.config)),
        )
    )


def report_table(content: ReportContent) -> ScoreTable:
    """Return the score table of a report: its own rows, then the published ones of its data set."""
    kind = content.heading.scored_by
    return score_table((*content.scores, *published_rows(content.heading.dataset, kind)), kind)


def published_rows(
    dataset: str, kind: ScoreKind = ScoreKind.LINKS, *, results: Sequence[PublishedResult] | None = None
) -> tuple[ScoreRow, ...]:
    """Return the papers' own results for a data set as rows of the score table; of retrieval, an image for a text.

    `results` are other ones than those of the data set's own table.
    """
    if kind is ScoreKind.LINKS:
        return tuple(_published(row, kind) for row in (published_results(dataset) if results is None else results))
    rows = (row for row in published_retrieval(dataset) if row.direction == Direction.TEXT_TO_IMAGE)
    return tuple(_published(row, kind) for row in rows)


def score_table(rows: Sequence[ScoreRow], kind: ScoreKind = ScoreKind.LINKS) -> ScoreTable:
    """Return the rows with their plots; all plots of a metric share an axis."""
    plots: dict[tuple[int, str], Markup] = {}
    scales: dict[str, Markup] = {}
    for metric, name in kind.metrics.items():
        known = {index: score for index, row in enumerate(rows) if (score := row.scores.get(metric)) is not None}
        axis = interval_axis(
            end for score in known.values() for end in (score.value, score.low, score.high) if end is not None
        )
        scales[metric] = interval_scale(f"Scale of {name}, percent", axis)
        plots |= {(index, metric): _plot(rows[index].name, name, score, axis) for index, score in known.items()}
    return ScoreTable(tuple(rows), scales, plots)


def training_panels(history: Sequence[Mapping[str, float | None]], *, kept_epoch: int) -> list[Figure]:
    """Return a chart for each measure that was recorded in at least one epoch."""
    panels = []
    for title, measures in _PANELS:
        lines = [Series(name, tuple((_epoch(row), row.get(key)) for row in history)) for key, name in measures]
        lines = [line for line in lines if line.known()]
        if lines:
            chart = line_chart(f"{title} by epoch", lines, x_label="epoch", marked=kept_epoch)
            panels.append(Figure(title, chart))
    return panels


def loss_with_auc(content: ReportContent) -> Figure | None:
    """Return validation AUC against validation loss by epoch (Hessel 2019, figure 3); None without both."""
    found = loss_and_auc(content.history, kept_epoch=content.heading.kept_epoch)
    if found is None:
        return None
    chart, correlation = found
    note = "" if correlation is None else f", rank correlation {tick_text(correlation, 2)}"
    return Figure(f"AUC inside documents against the loss between them{note}", chart)


def distribution(document_auc: Sequence[float]) -> Distribution | None:
    """Return the histogram of per-document AUC and its summary; None where there is no document."""
    if not document_auc:
        return None
    chart = histogram(
        "Documents by AUC", document_auc, x_label="AUC of a document", reference=50.0, reference_name="chance"
    )
    below = sum(value < 50 for value in document_auc) / len(document_auc)
    perfect = sum(value >= 100 for value in document_auc) / len(document_auc)
    facts = (
        ("mean", f"{statistics.fmean(document_auc):.1f}"),
        ("median", f"{statistics.median(document_auc):.1f}"),
        ("below chance", f"{below:.1%}"),
        ("perfect", f"{perfect:.1%}"),
    )
    return Distribution(Figure("Documents by AUC", chart), facts)


def edge_legend(graphs: Iterable[ExampleGraph]) -> list[tuple[EdgeKind, str]]:
    """Return the kinds of edge that the graphs have, each with its meaning."""
    found = {edge.kind for graph in graphs for edge in graph.edges}
    return [(kind, meaning) for kind, meaning in EDGE_MEANINGS.items() if kind in found]


def statistics_rows(splits: Iterable[SplitStatistics]) -> list[tuple[str, list[str]]]:
    """Return the columns of Hessel 2019's table 1 as rows: a name, and a text per split."""
    known = list(splits)
    return [
        ("documents", [f"{split.documents:,}" for split in known]),
        ("sentences: median", [f"{split.median_sentences:g}" for split in known]),
        ("sentences: mean", [f"{split.mean_sentences:.1f}" for split in known]),
        ("sentences: most", [f"{split.max_sentences:,}" for split in known]),
        ("images: median", [f"{split.median_images:g}" for split in known]),
        ("images: mean", [f"{split.mean_images:.1f}" for split in known]),
        ("images: most", [f"{split.max_images:,}" for split in known]),
        ("unique images", [f"{split.unique_images:,}" for split in known]),
        ("documents with known links", [f"{split.documents_with_known_links:,}" for split in known]),
        ("density of links", ["–" if split.density is None else f"{split.density:.1%}" for split in known]),
    ]


def dotted(config: Mapping[str, Json], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield each setting of a resolved configuration as (dotted key, JSON text), in order."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from dotted(value, f"{prefix}{key}.")
        else:
            yield prefix + key, json.dumps(value, ensure_ascii=False)


def environment() -> Environment:
    return Environment(
        loader=PackageLoader("training.evaluation", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _published(result: PublishedResult | PublishedRetrieval, kind: ScoreKind) -> ScoreRow:
    values = {metric: getattr(result, metric, None) for metric in kind.metrics}
    scores = {metric: None if value is None else Score(value) for metric, value in values.items()}
    return ScoreRow(name=result.model, scores=scores, kind=RowKind.PUBLISHED, note=result.source)


def _plot(row: str, metric: str, score: Score, axis: Axis) -> Markup:
    interval = "" if score.low is None else f", 95% interval {score.low:.1f} to {score.high:.1f}"
    title = f"{row}, {metric}: {score.value:.1f}{interval}"
    return interval_plot(title, score.value, axis, low=score.low, high=score.high)


def _epoch(row: Mapping[str, float | None]) -> float:
    epoch = row.get("epoch")
    if epoch is None:
        raise ValueError(f"history: a row without epoch (it has {', '.join(row) or 'nothing'})")
    return epoch
