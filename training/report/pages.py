"""The pages: one HTML file each that needs nothing else, for people to read.

Words and order are in the templates, numbers come from the rows of an evaluation, charts from `figures.py`. Every text
is escaped, and a page forbids itself scripts and outside resources. The same content gives the same bytes. Here is what
all pages share, and the pages of documents; `evaluation.py` has the page of an evaluation, `studies.py` those of
studies.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from schemas.lake import Folder
from training.metrics.scores import Score
from training.report.examples import (
    Edge,
    EdgeKind,
    ExampleDocument,
    ExampleGraph,
    ExampleGroups,
    clip,
    draw_example,
    emphasised,
    sure_text,
    thumbnail_uri,
)
from training.report.figures import axes_of
from training.report.sections import Table, cell_text, is_clear, range_text, value_text

FILE_NAME = "index.html"
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
    found = Environment(
        loader=PackageLoader("training.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found.globals["axes_of"] = axes_of
    found.filters |= {"cell": cell_text, "value": value_text, "range": range_text}
    found.filters |= {"clip": clip, "thumbnail": thumbnail_uri, "emphasised": emphasised, "sure": sure_text}
    found.tests |= {"clear": is_clear, "score": _has_value, "under": Edge.is_under}
    return found


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


def documents_page(groups: ExampleGroups, *, kicker: str, title: str, about: str, table: Table | None = None) -> str:
    """Return the page of documents of a data set with the links they have.

    Args:
        groups: documents under their titles.
        kicker: what kind of page it is.
        title: of the page.
        about: which documents they are.
        table: above them.
    """
    drawings = draw_groups(groups)
    legend = edge_legend(graph for _, graphs in drawings for graph in graphs)
    return render("documents", kicker=kicker, title=title, about=about, groups=drawings, legend=legend, table=table)


def linked_page(documents: Iterable[ExampleDocument], *, model: str, about: str) -> str:
    """Return the page of some documents with the links that the model of an address predicts.

    Args:
        documents: to be drawn.
        model: its address.
        about: which documents they are.
    """
    graphs = [draw_example(document) for document in documents]
    has_probabilities = any(isinstance(edge.sureness, float) for graph in graphs for edge in graph.edges)
    legend = edge_legend(graphs)
    return render("linked", model=model, about=about, graphs=graphs, legend=legend, has_probabilities=has_probabilities)


def own_documents_page(documents: Sequence[ExampleDocument], *, model: str, count: int, fitted: str = "") -> str:
    """Return the page of the first of a user's own documents, of which `count` were linked.

    `fitted` says what of the model's steps was chosen on the documents, in words.
    """
    first = "" if count == len(documents) else f" They are the first {len(documents):,} of {count:,}."
    chosen = f" Chosen on these documents, without links: {fitted}." if fitted else ""
    return linked_page(documents, model=model, about=f"The documents came without links.{first}{chosen}")


def examples_page(
    documents: Iterable[ExampleDocument], *, model: str, dataset: str, split: str, loss: float | None
) -> str:
    """Return the page of the documents of a split whose images and sentences differ most, with the loss there."""
    known_loss = "" if loss is None else f" The loss of its objective is {loss:.4f} there."
    about = (
        f"They are those of {dataset}, {split} split, whose images and sentences differ most among themselves "
        f"(Hessel et al. 2019, figure 5).{known_loss}"
    )
    return linked_page(documents, model=model, about=about)


def _has_value(cell: object) -> bool:
    return isinstance(cell, Score) and cell.value is not None
