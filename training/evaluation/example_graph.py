"""A document drawn as a graph, as in figure 4 of Hessel 2019: sentences left, images right, links between them.

Both columns have the same height and rows of equal height, so that the place of every end of an edge is known here
and the page needs no script:

    sentence 1 ---.      .--- image 1        y = (row + 0.5) x height / rows
    sentence 2 ----`----'
    sentence 3 ----------`--- image 2        x = 0 and 100, stretched to whatever lies between the columns

The page itself is in `report.html.j2`; which documents are drawn, in `examples.py`.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from markupsafe import Markup
from PIL import Image

from training.evaluation.examples import ExampleDocument
from training.evaluation.svg import drawing, element, number

THUMBNAIL_PX = 128
THUMBNAIL_QUALITY = 80
MAX_SENTENCE_CHARACTERS = 280
MAX_ROWS = 40
LINE_PX = 18
_ROW_MARGIN_PX = 12
_WIDEST_PX, _THINNEST_PX = 8.0, 1.5


class EdgeKind(StrEnum):
    """What an edge says; the value is its class in the drawing."""

    RIGHT = "right"
    WRONG = "wrong"
    MISSED = "missed"
    PREDICTED = "predicted"


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge between a sentence and an image (from 0); a missed link has no weight."""

    sentence: int
    image: int
    kind: EdgeKind
    weight: float | None = None


@dataclass(frozen=True, slots=True)
class SentenceRow:
    """A sentence as shown: its number from 1, its text in full and clipped."""

    number: int
    text: str
    shown: str


@dataclass(frozen=True, slots=True)
class ImageRow:
    """An image as shown: its number from 1 and a data URI; None where there is no picture."""

    number: int
    uri: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleGraph:
    """All that the page needs to show one document."""

    id: str
    auc: float | None
    height_px: int
    sentence_lines: int
    image_px: int
    sentences: tuple[SentenceRow, ...]
    images: tuple[ImageRow, ...]
    edges: tuple[Edge, ...]
    drawing: Markup
    all_sentences: tuple[str, ...]
    image_count: int
    links_known: bool

    def count(self, kind: str) -> int:
        """Return how many edges are of a kind."""
        return sum(edge.kind == kind for edge in self.edges)


def draw_example(document: ExampleDocument) -> ExampleGraph:
    """Return a document laid out for the page.

    Columns of more than forty rows show only the sentences or images that an edge touches.
    """
    edges = classify_edges(document)
    sentences = _shown_rows(len(document.sentences), {edge.sentence for edge in edges})
    images = _shown_rows(len(document.images), {edge.image for edge in edges})
    height_px = max(_column_px(len(sentences), _sentence_row_px), _column_px(len(images), _image_row_px))
    texts = (document.sentences[index] for index in sentences)
    return ExampleGraph(
        id=document.id,
        auc=document.auc,
        height_px=height_px,
        sentence_lines=max(1, (height_px // max(1, len(sentences)) - _ROW_MARGIN_PX) // LINE_PX),
        image_px=_image_row_px(len(images)) - 8,
        sentences=tuple(SentenceRow(i + 1, text, clip(text)) for i, text in zip(sentences, texts, strict=True)),
        images=tuple(ImageRow(i + 1, thumbnail_uri(document.images[i])) for i in images),
        edges=edges,
        drawing=_draw_edges(document.id, edges, sentences, images, height_px),
        all_sentences=document.sentences,
        image_count=len(document.images),
        links_known=document.links is not None,
    )


def classify_edges(document: ExampleDocument) -> tuple[Edge, ...]:
    """Return predicted edges by decreasing weight, then the true links that were missed, in order."""
    predicted = sorted(document.predicted, key=lambda edge: (-edge[2], edge[0], edge[1]))
    true = None if document.links is None else set(document.links)
    edges = [Edge(s, i, _kind((s, i), true), weight) for s, i, weight in predicted]
    missed = sorted((true or set()) - {(edge.sentence, edge.image) for edge in edges})
    return (*edges, *(Edge(s, i, EdgeKind.MISSED) for s, i in missed))


def edge_width_px(weight: float, largest: float) -> float:
    """Return a stroke width proportional to a weight, 8 px for the document's largest; never under 1.5 px."""
    share = weight / largest if largest > 0 else 0.0
    return max(_THINNEST_PX, _WIDEST_PX * share)


def thumbnail_uri(jpeg: bytes | None) -> str | None:
    """Return a picture as a data URI of a JPEG at most 128 px wide and high; None if there is none to show."""
    if jpeg is None:
        return None
    try:
        with Image.open(io.BytesIO(jpeg)) as image:
            small = image.convert("RGB")
    except OSError:  # what Pillow raises for bytes that are no picture, or a truncated one
        return None
    small.thumbnail((THUMBNAIL_PX, THUMBNAIL_PX))
    buffer = io.BytesIO()
    small.save(buffer, format="JPEG", quality=THUMBNAIL_QUALITY, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def clip(text: str) -> str:
    """Return a sentence cut to 280 characters, the last being an ellipsis where something was cut."""
    if len(text) <= MAX_SENTENCE_CHARACTERS:
        return text
    return text[: MAX_SENTENCE_CHARACTERS - 1].rstrip() + "…"


def row_centre_px(position: int, rows: int, height_px: int) -> float:
    """Return the height of the middle of a row, counted from 0 at the top."""
    return (position + 0.5) * height_px / rows


def _kind(pair: tuple[int, int], true: set[tuple[int, int]] | None) -> EdgeKind:
    if true is None:
        return EdgeKind.PREDICTED
    return EdgeKind.RIGHT if pair in true else EdgeKind.WRONG


def _shown_rows(count: int, touched: set[int]) -> list[int]:
    return list(range(count)) if count <= MAX_ROWS else sorted(touched)


def _sentence_row_px(rows: int) -> int:
    return 3 * LINE_PX + _ROW_MARGIN_PX if rows <= 20 else 2 * LINE_PX + _ROW_MARGIN_PX


def _image_row_px(rows: int) -> int:
    return 104 if rows <= 10 else 76


def _column_px(rows: int, row_px: Callable[[int], int]) -> int:
    return rows * row_px(rows)


def _draw_edges(name: str, edges: Sequence[Edge], sentences: list[int], images: list[int], height_px: int) -> Markup:
    """Return the drawing between the columns, in the order of the edges: wide ones below, missed links on top."""
    largest = max((edge.weight for edge in edges if edge.weight is not None), default=0.0)
    sentence_row = {index: row for row, index in enumerate(sentences)}
    image_row = {index: row for row, index in enumerate(images)}
    paths = []
    for edge in edges:
        left = row_centre_px(sentence_row[edge.sentence], len(sentences), height_px)
        right = row_centre_px(image_row[edge.image], len(images), height_px)
        paths.append(_draw_edge(edge, left, right, largest))
    title = f"Links of document {name}"
    return drawing(title, *paths, width=100, height=height_px, class_="edges", stretched=True)


def _draw_edge(edge: Edge, left: float, right: float, largest: float) -> Markup:
    """Return a curve from a sentence to an image that says what it is when pointed at."""
    weight = "" if edge.weight is None else f", {edge.weight:.2f}"
    return element(
        "path",
        element("title", f"sentence {edge.sentence + 1} – image {edge.image + 1}{weight}, {edge.kind}"),
        class_=f"edge {edge.kind}",
        d=f"M0,{number(left)} C40,{number(left)} 60,{number(right)} 100,{number(right)}",
        style=None if edge.weight is None else f"--width:{number(edge_width_px(edge.weight, largest))}",
    )
