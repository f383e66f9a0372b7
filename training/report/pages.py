"""The pages: one HTML file each that needs nothing else, for people to read.

Words and order are in the templates, numbers come from the rows of an evaluation, charts from `figures.py`. Every text
is escaped, and a page forbids itself scripts and outside resources. The same content gives the same bytes. Here are
what all pages share and the page of documents; `evaluation.py` has the page of an evaluation.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from schemas.lake import Folder
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
from training.report.sections import cell_text, range_text, value_text

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
    templates.filters |= {"cell": cell_text, "value": value_text, "range": range_text}
    templates.filters |= {"clip": clip, "thumbnail": thumbnail_uri, "sure": sure_text}
    templates.tests |= {"under": Edge.is_under}
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
