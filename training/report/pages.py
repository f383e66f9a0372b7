"""The pages: one HTML file each that needs nothing else, for people to read.

Words and order are in the templates, numbers come from the rows of an evaluation, charts from `figures.py`. Every text
is escaped, and a page forbids itself scripts and outside resources. The same content gives the same bytes. Here is what
all pages share, the pages of documents and those of studies with their tables; `evaluation.py` has the page of an
evaluation.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from schemas.lake import Folder
from training.evaluation.studies import ModelComparison, ModelResult, StudyCell, Sweep
from training.metrics.links import ScoreKind
from training.metrics.scores import Score
from training.report.examples import (
    Edge,
    EdgeKind,
    ExampleDocument,
    ExampleGraph,
    ExampleGroups,
    clip,
    draw_example,
    sure_text,
    thumbnail_uri,
)
from training.report.figures import axes_of, scatter
from training.report.sections import (
    POINTS,
    Row,
    RowKind,
    Table,
    cell_text,
    is_clear,
    models_table,
    published_rows,
    range_text,
    score_row,
    value_text,
)

FILE_NAME = "index.html"
EDGE_MEANINGS: Mapping[EdgeKind, str] = {
    EdgeKind.RIGHT: "predicted, true",
    EdgeKind.WRONG: "predicted, not true",
    EdgeKind.MISSED: "true, not predicted",
    EdgeKind.PREDICTED: "predicted, truth unknown",
}

Drawings = list[tuple[str, list[ExampleGraph]]]


def write_page(directory: Path, page: str) -> Path:
    """Write `index.html` to a directory, made if missing, and return its path; readers see the old one or the new."""
    Folder(str(directory)).write(FILE_NAME, page.encode())
    return directory / FILE_NAME


def render(template: str, **content: Any) -> str:
    """Return a page of a template of this folder."""
    return environment().get_template(f"{template}.html.j2").render(**content)


@cache
def environment() -> Environment:
    """Return what templates are rendered with: how numbers are written; a name that is not defined is an error.

    It keeps the templates that it has compiled: compiling takes far longer than drawing a document.
    """
    templates = Environment(
        loader=PackageLoader("training.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.globals["axes_of"] = axes_of
    templates.filters |= {"cell": cell_text, "value": value_text, "range": range_text}
    templates.filters |= {"clip": clip, "thumbnail": thumbnail_uri, "sure": sure_text}
    templates.tests |= {"clear": is_clear, "score": _has_value, "under": Edge.is_under}
    return templates


def drawn(graph: ExampleGraph, title: str, *, threshold: float | None = None, beside: Markup | None = None) -> Markup:
    """Return one document as the pages draw it, for another page whose style sheet is `drawing_style`.

    Args:
        graph: the document, laid out.
        title: above it.
        threshold: predicted edges of a lower similarity are there, hidden.
        beside: other elements of the page about the document; below the drawing.
    """
    parts: Any = environment().get_template("parts.html.j2").module
    return Markup(parts.example(title, graph, threshold, beside))


def drawing_style() -> str:
    """Return the style sheet of `drawn`; the page's own has the colours."""
    return environment().get_template("drawing.css.j2").render()


def draw_groups(groups: ExampleGroups) -> Drawings:
    """Return the title of each group with its documents, laid out."""
    return [(title, [draw_example(document) for document in documents]) for title, documents in groups.items()]


def edge_legend(graphs: Iterable[ExampleGraph]) -> list[tuple[EdgeKind, str]]:
    """Return the kinds of edge that the graphs have, each with its meaning."""
    kinds = {edge.kind for graph in graphs for edge in graph.edges}
    return [(kind, meaning) for kind, meaning in EDGE_MEANINGS.items() if kind in kinds]


def own_documents_page(documents: Sequence[ExampleDocument], *, model: str, count: int, fitted: str = "") -> str:
    """Return the page of the first of a user's own documents with the links that a model predicts.

    Args:
        documents: to be drawn.
        model: its address.
        count: how many were linked.
        fitted: what of the model's steps was chosen on the documents, in words.
    """
    graphs = [draw_example(document) for document in documents]
    first = "" if count == len(documents) else f" They are the first {len(documents):,} of {count:,}."
    chosen = f" Chosen on these documents, without links: {fitted}." if fitted else ""
    return render(
        "linked",
        model=model,
        about=f"The documents came without links.{first}{chosen}",
        graphs=graphs,
        legend=edge_legend(graphs),
        has_probabilities=any(isinstance(edge.sureness, float) for graph in graphs for edge in graph.edges),
    )


def _has_value(cell: object) -> bool:
    return isinstance(cell, Score) and cell.value is not None


LINKS = ScoreKind.LINKS.metrics


def comparison_page(found: ModelComparison) -> str:
    """Return the page of several models on the same documents."""
    metrics, first = found.kind.metrics, found.models[0]
    name = found.dataset.partition("@")[0]
    return render(
        "compare",
        found=found,
        name=name,
        leading=metrics[found.kind.leading],
        table=means_table(found).above(published_rows(name, found.kind)),
        differences=difference_table(found),
        agreement=agreement_table(found),
        pairs=[(other.name, _document_scatter(first, other, found.kind)) for other in found.models[1:]],
    )


def comparison_lines(comparison: ModelComparison) -> list[str]:
    """Return the comparison as aligned text: means, differences to the first model, agreement."""
    left_out = f"; {comparison.left_out} were not scored with every model" if comparison.left_out else ""
    return [
        *means_table(comparison).lines(),
        f"minus {comparison.models[0].name}, paired:",
        *difference_table(comparison).lines()[1:],
        f"rank correlation of per-document {comparison.kind.metrics[comparison.kind.leading]}:",
        *agreement_table(comparison).lines()[1:],
        f"{len(comparison.documents)} documents{left_out}",
    ]


def means_table(comparison: ModelComparison) -> Table:
    """Return each model's means, the first of them marked."""
    kinds = [RowKind.MODEL, *[RowKind.BASELINE] * len(comparison.models)]
    rows = zip(comparison.models, kinds, strict=False)
    return models_table(
        (score_row(each.name, each.means, comparison.kind.metrics, kind) for each, kind in rows), comparison.kind
    )


def difference_table(comparison: ModelComparison) -> Table:
    """Return each model's paired difference to the first."""
    rows = (
        Row(
            each.name,
            tuple(each.differences[metric].score(metric, n=0, unit=POINTS) for metric in comparison.kind.metrics),
        )
        for each in comparison.models[1:]
    )
    return models_table(rows, comparison.kind)


def agreement_table(comparison: ModelComparison) -> Table:
    """Return the rank correlations, models numbered in the heads."""
    rows = (
        Row(
            f"{number}  {result.name}",
            tuple(Score("spearman", value, unit="correlation", note="none") for value in own),
        )
        for number, (result, own) in enumerate(zip(comparison.models, comparison.agreement, strict=True), start=1)
    )
    return Table(("Model", *map(str, range(1, len(comparison.models) + 1))), tuple(rows))


def sweep_page(found: Sweep) -> str:
    """Return the page of a sweep, with the published rows of the data set below ours."""
    name = found.dataset.partition("@")[0]
    return render("sweep", found=found, name=name, table=sweep_table(found).above(published_rows(name, found.kind)))


def sweep_table(sweep: Sweep) -> Table:
    """Return a row for each combination."""
    metrics = sweep.kind.metrics
    rows = (score_row(cell.title, cell.means, metrics, note=cell.model) for cell in sweep.cells)
    return models_table(rows, sweep.kind, head="Settings")


def transfer_page(cells: Sequence[StudyCell], *, split: str) -> str:
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


def transfer_table(cells: Sequence[StudyCell]) -> Table:
    """Return AUC of every model (down) on every data set (across); a model's own data set is marked."""
    rows: dict[str, list[str]] = {}
    for cell in cells:
        text = "–" if cell.problem else cell_text(cell.means["auc"])
        rows.setdefault(f"{cell.model}, of {cell.trained_on}", []).append(text if cell.is_transfer else f"{text} ⌂")
    datasets = dict.fromkeys(cell.dataset for cell in cells)
    return Table(("AUC", *datasets), tuple(Row(title, tuple(row)) for title, row in rows.items()))


def _document_scatter(first: ModelResult, other: ModelResult, kind: ScoreKind) -> Markup:
    """Return a dot per document at its leading metric with either model."""
    label = f"{kind.metrics[kind.leading]} of {first.name}"
    level = 50.0 if kind is ScoreKind.LINKS else None
    return scatter(f"{other.name} against {first.name}", first.leading, other.leading, x_label=label, level=level)


def _transfer_section(dataset: str, cells: Iterable[StudyCell]) -> Table | None:
    """Return the scores on one data set, with the published ones; None where no model could be judged on it."""
    name, judged = dataset.partition("@")[0], [cell for cell in cells if cell.dataset == dataset and not cell.problem]
    kinds = [RowKind.BASELINE if cell.is_transfer else RowKind.MODEL for cell in judged]
    rows = [
        score_row(cell.model, cell.means, LINKS, kind, f"trained on {cell.trained_on}")
        for cell, kind in zip(judged, kinds, strict=True)
    ]
    published = [*published_rows(name, table="transfer"), *published_rows(name)]
    return models_table([*rows, *published]) if rows else None
