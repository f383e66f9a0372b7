"""The pages: one HTML file each that needs nothing else, for people to read.

Words and order are in the templates, numbers come from the rows of an evaluation, charts from `figures.py`. Every text
is escaped, and a page forbids itself scripts and outside resources. The same content gives the same bytes.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from schemas.configs import flatten, resolve
from schemas.evaluation import Score
from schemas.lake import Folder
from schemas.manifest import SplitStatistics
from training.config import Select, TrainConfig
from training.data.requirements import described, similarities
from training.evaluation.evaluate import (
    DOCUMENT,
    EvaluationReport,
    candidates_of,
    documents_of,
    kind_of,
    left_out_of,
    means_of,
)
from training.evaluation.judge import CALIBRATION, CONFUSION, ConfusedImages
from training.evaluation.studies import CurvePoint, ModelComparison, ModelResult, Sweep, TransferCell
from training.metrics.calibration import Calibration
from training.metrics.links import ScoreKind
from training.metrics.spread import spearman
from training.report.examples import (
    Edge,
    EdgeKind,
    ExampleDocument,
    ExampleGraph,
    ExampleGroup,
    clip,
    draw_example,
    emphasised,
    thumbnail_uri,
)
from training.report.figures import histogram, line_chart, path_chart, reliability_chart, scatter, share_columns
from training.report.sections import (
    Row,
    RowKind,
    Table,
    absent_baselines,
    cell_text,
    columns_of,
    difference,
    is_clear,
    models_table,
    published_rows,
    range_text,
    score_row,
    score_table,
    sections,
    value_text,
)

FILE_NAME = "index.html"
LINKS = ScoreKind.LINKS.metrics
SELECT_RULES: Mapping[Select, str] = {
    Select.LOSS: "At this epoch the validation loss is lowest.",
    Select.LAST: "It is the last epoch.",
    Select.RETRIEVAL: (
        "At this epoch a validation document's own images rank best for its sentences, among the images of other "
        "documents."
    ),
    Select.MEDIAN_RANK: (
        "At this epoch the median rank of a validation document's own images for its sentences, among the images of "
        "other documents, is lowest."
    ),
}
EDGE_MEANINGS: Mapping[EdgeKind, str] = {
    EdgeKind.RIGHT: "predicted, true",
    EdgeKind.WRONG: "predicted, not true",
    EdgeKind.MISSED: "true, not predicted",
    EdgeKind.PREDICTED: "predicted, truth unknown",
    EdgeKind.KNOWN: "a link of the data set",
    EdgeKind.AGREED: "given and predicted",
    EdgeKind.OTHERWISE: "predicted, not given",
    EdgeKind.GIVEN: "given, not predicted",
}
_PANELS: Mapping[str, Mapping[str, str]] = {
    "Loss": {"validation_loss": "validation", "train_loss": "training"},
    "Validation AUC": {"validation_auc": "AUC"},
    "Validation p@1": {"validation_precision_at_1": "p@1"},
    "Validation rank of the own image set, 1 being best": {
        "validation_rank": "mean",
        "validation_median_rank": "median",
    },
}

Epoch = Mapping[str, float | None]
Figures = list[tuple[str, Markup]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportContent:
    """Everything on the page of an evaluation. No date: equal evaluations give equal pages.

    Attributes:
        table: what was evaluated on what, and every number.
        config: resolved configuration the model was trained with.
        kept_epoch: the epoch whose weights are the model, counted as in the history.
        history: one mapping an epoch, with `epoch` and any of `train_loss`, `validation_loss`, `validation_auc`,
            `validation_precision_at_1` (both percentages), `validation_rank` and `validation_median_rank`; absent,
            None and NaN are gaps.
        examples: documents to draw, in groups.
        statistics: split -> statistics, from the data set's manifest.
        calibration: the one that was judged.
        confused: the most alike images that were confused.
        pictures: JPEGs by content hash, of those images.
    """

    table: EvaluationReport
    config: TrainConfig
    kept_epoch: int
    history: Sequence[Epoch] = ()
    examples: tuple[ExampleGroup, ...] = ()
    statistics: Mapping[str, SplitStatistics] = field(default_factory=dict)
    calibration: Calibration | None = None
    confused: tuple[ConfusedImages, ...] = ()
    pictures: Mapping[str, bytes | None] = field(default_factory=dict)


def write_page(directory: Path, page: str) -> Path:
    """Write `index.html` to a directory, made if missing, and return its path; readers see the old one or the new."""
    Folder(str(directory)).write(FILE_NAME, page.encode())
    return directory / FILE_NAME


def render(template: str, **content: Any) -> str:
    """Return a page of a template of this folder."""
    return environment().get_template(f"{template}.html.j2").render(**content)


def environment() -> Environment:
    """Return what templates are rendered with: how numbers are written, and nothing that is not said."""
    found = Environment(
        loader=PackageLoader("training.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found.filters |= {"cell": cell_text, "value": value_text, "range": range_text}
    found.filters |= {"clip": clip, "thumbnail": thumbnail_uri, "emphasised": emphasised, "percent": "{:.0%}".format}
    found.tests |= {"clear": is_clear, "score": _is_known, "under": Edge.is_under}
    return found


def drawn(graph: ExampleGraph, title: str, *, threshold: float | None = None, beside: Markup | None = None) -> Markup:
    """Return one document as the pages draw it, for another page whose style sheet is `drawing_style`.

    Args:
        graph: the document, laid out.
        title: above it.
        threshold: predicted edges that are less sure are there, hidden.
        beside: what else the page has of the document; below the drawing.
    """
    parts: Any = environment().get_template("parts.html.j2").module
    return Markup(parts.example(title, graph, threshold, beside))


def drawing_style() -> str:
    """Return the style sheet of `drawn`; the page's own has the colours."""
    return environment().get_template("drawing.css.j2").render()


def report_page(content: ReportContent) -> str:
    """Return the page of an evaluation."""
    table, rows, config = content.table, content.table.rows, content.config
    kind = kind_of(rows)
    auc = [row.value for row in rows if (row.measure, row.metric) == (DOCUMENT, "auc") and row.value is not None]
    groups = [(group.title, [draw_example(document) for document in group.documents]) for group in content.examples]
    return render(
        "report",
        table=table,
        config=config,
        candidates=candidates_of(rows) if kind is ScoreKind.PAIRS else None,
        documents=documents_of(rows),
        left_out=left_out_of(rows),
        told=described(config),
        similarity=similarities(config),
        epochs=len(content.history) or config.training.epochs,
        kept_epoch=content.kept_epoch,
        means=means_of(rows, kind),
        metrics=kind.metrics,
        scores=score_table(rows, table.model, dataset=table.dataset),
        absent_baselines=absent_baselines(rows),
        distribution=_distribution(auc),
        sections=sections(rows, dataset=table.dataset),
        spread=_spread_charts(rows),
        spread_note=next((row.note for row in rows if row.metric == "image_spread"), ""),
        confusion=_confusion_chart(rows),
        confused=content.confused,
        pictures=content.pictures,
        reliability=_reliability_chart(rows),
        calibration={row.metric: row for row in rows if row.measure == CALIBRATION and not row.group},
        fitted=content.calibration,
        select_rule=SELECT_RULES[config.training.select],
        panels=training_panels(content.history, kept_epoch=content.kept_epoch),
        groups=groups,
        legend=edge_legend(graph for _, graphs in groups for graph in graphs),
        statistics=statistics_table(f"{table.dataset}@{table.dataset_version}", content.statistics),
        settings={key: json.dumps(value, ensure_ascii=False) for key, value in flatten(resolve(config)).items()},
    )


def training_panels(history: Sequence[Epoch], *, kept_epoch: int) -> Figures:
    """Return a chart for each measure that was recorded in at least one epoch, and AUC against loss last."""
    panels = []
    for title, measures in _PANELS.items():
        lines = {name: [(_epoch(row), row.get(key)) for row in history] for key, name in measures.items()}
        lines = {name: points for name, points in lines.items() if any(_is_finite(y) for _, y in points)}
        if lines:
            panels.append((title, line_chart(f"{title} by epoch", lines, x_label="epoch", marked=kept_epoch)))
    return panels + loss_with_auc(history, kept_epoch=kept_epoch)


def loss_with_auc(history: Sequence[Epoch], *, kept_epoch: int) -> Figures:
    """Return validation AUC against validation loss, a dot an epoch, with their rank correlation (Hessel 2019, fig. 3).

    Nothing without two epochs that have both.
    """
    points = {
        f"epoch {row['epoch']:g}": (float(row["validation_loss"] or 0), float(row["validation_auc"] or 0))
        for row in history
        if all(_is_finite(row.get(name)) for name in ("epoch", "validation_loss", "validation_auc"))
    }
    if len(points) < 2:
        return []
    correlation = spearman(*zip(*points.values(), strict=True))
    note = "" if correlation is None else f", rank correlation {correlation:.2f}".replace("-", "−")
    title = "Validation AUC against validation loss"
    chart = path_chart(title, points, x_label="inter-document loss", marked=f"epoch {kept_epoch:g}")
    return [(f"AUC inside documents against the loss between them{note}", chart)]


def comparison_page(found: ModelComparison) -> str:
    """Return the page of several models on the same documents."""
    metrics, first = found.kind.metrics, found.models[0]
    dataset = found.dataset.partition("@")[0]
    rows = [
        score_row(each.name, each.means, metrics, RowKind.BASELINE if number else RowKind.MODEL)
        for number, each in enumerate(found.models)
    ]
    return render(
        "compare",
        found=found,
        name=dataset,
        leading=metrics[found.kind.leading],
        table=models_table([*rows, *published_rows(dataset, found.kind)], found.kind),
        differences=difference_table(found),
        agreement=agreement_table(found),
        pairs=[(other.name, _document_scatter(first, other, found.kind)) for other in found.models[1:]],
    )


def comparison_lines(found: ModelComparison) -> list[str]:
    """Return the comparison as aligned text: means, differences to the first model, agreement."""
    metrics = found.kind.metrics
    means = models_table((score_row(each.name, each.means, metrics) for each in found.models), found.kind)
    left_out = f"; {found.left_out} were not scored with every model" if found.left_out else ""
    return [
        *means.lines(),
        f"minus {found.models[0].name}, paired:",
        *difference_table(found).lines()[1:],
        f"rank correlation of per-document {metrics[found.kind.leading]}:",
        *agreement_table(found).lines()[1:],
        f"{len(found.documents)} documents{left_out}",
    ]


def difference_table(found: ModelComparison) -> Table:
    """Return each model's paired difference to the first."""
    rows = []
    for each in found.models[1:]:
        cells = (difference(metric, each.differences[metric].difference) for metric in found.kind.metrics)
        rows.append(Row(each.name, tuple(cells)))
    return models_table(rows, found.kind)


def agreement_table(found: ModelComparison) -> Table:
    """Return the rank correlations, models numbered in the heads."""
    rows = (
        Row(
            f"{number}  {result.name}",
            tuple(Score("spearman", value, unit="correlation", note="none") for value in own),
        )
        for number, (result, own) in enumerate(zip(found.models, found.agreement, strict=True), start=1)
    )
    return Table(("Model", *map(str, range(1, len(found.models) + 1))), tuple(rows))


def supervised_page(points: Sequence[CurvePoint], *, dataset: str, split: str) -> str:
    """Return the page of a supervised curve.

    Args:
        points: the unsupervised one first, then by share.
        dataset: NAME@VERSION.
        split: that was judged.
    """
    name = dataset.partition("@")[0]
    return render(
        "supervised",
        dataset=dataset,
        name=name,
        split=split,
        objective=points[0].objective,
        table=models_table([*map(_point_row, points), *published_rows(name)], head="Run"),
        charts=[(title, share_chart(points, metric)) for metric, title in LINKS.items()],
        enough=first_share_above(points),
    )


def curve_table(points: Sequence[CurvePoint]) -> Table:
    """Return a row for each run: what it minimised, how many documents were labelled, its scores."""
    rows = (
        score_row(f"{row.name} ({row.note})", point.means, LINKS)
        for row, point in zip(map(_point_row, points), points, strict=True)
    )
    return models_table(rows, head="Run")


def share_chart(points: Sequence[CurvePoint], metric: str) -> Markup:
    """Return a metric by share of labelled documents, with the unsupervised run as a level (Li 2022, figure 5)."""
    shown = sorted((100 * point.share, point.means[metric].value) for point in points if point.share is not None)
    level = points[0].means[metric].value
    lines = {"supervised": shown, "no links": [(share, level) for share, _ in (shown[0], shown[-1])] if shown else []}
    return line_chart(f"{LINKS[metric]} by share of labels", lines, x_label="documents with labels, percent")


def first_share_above(points: Sequence[CurvePoint]) -> float | None:
    """Return the smallest share whose mean AUC is above that of the run without links; None where none is."""
    level = points[0].means["auc"].value or 0.0
    above = [p.share for p in points if p.share is not None and (p.means["auc"].value or 0.0) > level]
    return min(above, default=None)


def sweep_page(found: Sweep) -> str:
    """Return the page of a sweep."""
    return render("sweep", found=found, name=found.dataset.partition("@")[0], table=sweep_table(found, is_page=True))


def sweep_table(found: Sweep, *, is_page: bool = False) -> Table:
    """Return a row for each combination, on a page with the published ones of the data set below."""
    kind = next((cell.kind for cell in found.cells if cell.means), ScoreKind.LINKS)
    rows = [score_row(", ".join(cell.settings), cell.means, kind.metrics, note=cell.model) for cell in found.cells]
    below = published_rows(found.dataset.partition("@")[0], kind) if is_page else []
    return models_table([*rows, *below], kind, head="Settings")


def transfer_page(cells: Sequence[TransferCell], *, split: str) -> str:
    """Return the page of models judged on data sets."""
    datasets = list(dict.fromkeys(cell.dataset for cell in cells))
    return render(
        "transfer",
        split=split,
        models=len({cell.model for cell in cells}),
        datasets=datasets,
        matrix=transfer_table(cells),
        sections=[(dataset, _transfer_section(dataset, cells)) for dataset in datasets],
        problems=[cell for cell in cells if cell.problem],
    )


def transfer_table(cells: Sequence[TransferCell]) -> Table:
    """Return AUC of every model (down) on every data set (across); a model's own data set is marked."""
    rows: dict[str, list[str]] = {}
    for cell in cells:
        text = "–" if cell.problem else cell_text(cell.means["auc"])
        rows.setdefault(f"{cell.model}, of {cell.trained_on}", []).append(text if cell.is_transfer else f"{text} ⌂")
    datasets = dict.fromkeys(cell.dataset for cell in cells)
    return Table(("AUC", *datasets), tuple(Row(title, tuple(row)) for title, row in rows.items()))


def linked_page(documents: Iterable[ExampleDocument], *, model: str, about: str) -> str:
    """Return the page of some documents with the links that the model of an address predicts.

    Args:
        documents: to be drawn.
        model: its address.
        about: which documents they are.
    """
    graphs = [draw_example(document) for document in documents]
    is_sure = any(edge.probability is not None for graph in graphs for edge in graph.edges)
    return render(
        "linked", model=model, about=about, graphs=graphs, legend=edge_legend(graphs), has_probabilities=is_sure
    )


def own_documents_page(documents: Sequence[ExampleDocument], *, model: str, count: int) -> str:
    """Return the page of the first of a user's own documents, of which `count` were linked."""
    drawn = "" if count == len(documents) else f" They are the first {len(documents):,} of {count:,}."
    return linked_page(documents, model=model, about=f"The documents came without links.{drawn}")


def examples_page(
    documents: Iterable[ExampleDocument], *, model: str, dataset: str, split: str, loss: float | None
) -> str:
    """Return the page of the documents of a split whose images and sentences differ most, with the loss there."""
    told = "" if loss is None else f" The loss of its objective is {loss:.4f} there."
    about = (
        f"They are those of {dataset}, {split} split, whose images and sentences differ most among themselves "
        f"(Hessel et al. 2019, figure 5).{told}"
    )
    return linked_page(documents, model=model, about=about)


def shown_page(
    groups: Sequence[ExampleGroup], *, kicker: str, title: str, about: str, table: Table | None = None
) -> str:
    """Return the page of documents of a data set with the links they have.

    Args:
        groups: documents under their titles.
        kicker: what kind of page it is.
        title: of the page.
        about: which documents they are.
        table: shown above them.
    """
    drawn = [(group.title, [draw_example(document) for document in group.documents]) for group in groups]
    legend = edge_legend(graph for _, graphs in drawn for graph in graphs)
    return render("shown", kicker=kicker, title=title, about=about, groups=drawn, legend=legend, table=table)


def edge_legend(graphs: Iterable[ExampleGraph]) -> list[tuple[EdgeKind, str]]:
    """Return the kinds of edge that the graphs have, each with its meaning."""
    found = {edge.kind for graph in graphs for edge in graph.edges}
    return [(kind, meaning) for kind, meaning in EDGE_MEANINGS.items() if kind in found]


def statistics_table(title: str, splits: Mapping[str, SplitStatistics]) -> Table:
    """Return the columns of Hessel 2019's table 1 as rows, a column a split."""
    known = splits.values()
    rows = {
        "documents": [f"{split.documents:,}" for split in known],
        "sentences: median": [f"{split.median_sentences:g}" for split in known],
        "sentences: mean": [f"{split.mean_sentences:.1f}" for split in known],
        "sentences: most": [f"{split.max_sentences:,}" for split in known],
        "images: median": [f"{split.median_images:g}" for split in known],
        "images: mean": [f"{split.mean_images:.1f}" for split in known],
        "images: most": [f"{split.max_images:,}" for split in known],
        "unique images": [f"{split.unique_images:,}" for split in known],
        "documents with known links": [f"{split.documents_with_known_links:,}" for split in known],
        "density of links": ["–" if split.density is None else f"{split.density:.1%}" for split in known],
    }
    return Table((title, *splits), tuple(Row(name, tuple(cells)) for name, cells in rows.items()))


def _distribution(auc: Sequence[float]) -> tuple[Markup, dict[str, str]] | None:
    """Return the histogram of per-document AUC and its summary; None where there is no document."""
    if not auc:
        return None
    title = "Documents by AUC"
    chart = histogram(title, auc, x_label="AUC of a document", reference=50.0, reference_name="chance")
    return chart, {
        "mean": f"{statistics.fmean(auc):.1f}",
        "median": f"{statistics.median(auc):.1f}",
        "below chance": f"{sum(value < 50 for value in auc) / len(auc):.1%}",
        "perfect": f"{sum(value >= 100 for value in auc) / len(auc):.1%}",
    }


def _spread_charts(rows: Iterable[Score]) -> Figures:
    """Return AUC against the spread of images, and against that of sentences."""
    metrics = {"image_spread": "images", "text_spread": "sentences"}
    known = (row for row in rows if row.measure == DOCUMENT)
    documents = [each for each in columns_of(known, ["auc", *metrics]).values() if len(each) == 1 + len(metrics)]
    charts = []
    for metric, name in metrics.items() if documents else ():
        x, y = ([each[column].value or 0.0 for each in documents] for column in (metric, "auc"))
        title = f"AUC of a document against the spread of its {name}"
        chart = scatter(title, x, y, x_label=f"spread of the {name}", level=50.0)
        charts.append((f"AUC against the spread of the {name}", chart))
    return charts


def _confusion_chart(rows: Iterable[Score]) -> Markup | None:
    """Return what was chosen for sentences, by how much their image looks like another one."""
    names = ("right", "confused", "elsewhere")
    groups = columns_of((row for row in rows if row.measure == CONFUSION), names)
    if not groups:
        return None
    columns = {
        "–".join(f"{float(end):.2f}".replace("-", "−") for end in group.removeprefix("nearness ").split(" to ")): [
            shares[name].value or 0.0 for name in names
        ]
        for group, shares in groups.items()
    }
    label = "cosine of the true image and the nearest other one"
    words = ("right", "the nearest image", "another")
    return share_columns("Image chosen for a sentence", columns, x_label=label, names=words)


def _reliability_chart(rows: Iterable[Score]) -> Markup | None:
    """Return the expected and the true share of links of a calibration."""
    bins = columns_of((row for row in rows if row.measure == CALIBRATION), ["expected", "true_share"]).values()
    expected, true = ([each[name].value or 0.0 for each in bins] for name in ("expected", "true_share"))
    links = [each["expected"].n for each in bins]
    return reliability_chart("Expected and true share of links", expected, true, links) if links else None


def _document_scatter(first: ModelResult, other: ModelResult, kind: ScoreKind) -> Markup:
    """Return a dot per document at its leading metric with either model."""
    label = f"{kind.metrics[kind.leading]} of {first.name}"
    level = 50.0 if kind is ScoreKind.LINKS else None
    return scatter(f"{other.name} against {first.name}", first.leading, other.leading, x_label=label, level=level)


def _transfer_section(dataset: str, cells: Iterable[TransferCell]) -> Table | None:
    rows = [
        score_row(
            cell.model,
            cell.means,
            LINKS,
            RowKind.BASELINE if cell.is_transfer else RowKind.MODEL,
            f"trained on {cell.trained_on}",
        )
        for cell in cells
        if cell.dataset == dataset and not cell.problem
    ]
    name = dataset.partition("@")[0]
    return models_table([*rows, *published_rows(name, table="transfer"), *published_rows(name)]) if rows else None


def _point_row(point: CurvePoint) -> Row:
    if point.share is None:
        return score_row(point.objective, point.means, LINKS, RowKind.MODEL, "no link was shown")
    note = f"links of {point.labelled:,} documents"
    return score_row(f"{point.objective}, {100 * point.share:g}%", point.means, LINKS, note=note)


def _epoch(row: Epoch) -> float:
    epoch = row.get("epoch")
    if epoch is None:
        raise ValueError(f"history: a row without epoch (it has {', '.join(row) or 'nothing'})")
    return epoch


def _is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _is_known(cell: object) -> bool:
    return isinstance(cell, Score) and cell.value is not None
