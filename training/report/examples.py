"""Example documents: which are worth showing, and one drawn as a graph, as in figure 4 of Hessel 2019.

An `ExampleDocument` is what a reader needs to see of a document: its sentences, small pictures, what the model linked
and what it should have linked; `read_examples` reads it out of the data set's shards. As a graph, its sentences are
left, its images right, links between them.

Both columns have the same height and rows of equal height, so that the place of every end of an edge is known here
and the page needs no script. Sizes are attributes and classes, since a strict Content-Security-Policy allows no style
in an element:

    sentence 1 ---.      .--- image 1        y = (row + 0.5) x height / rows
    sentence 2 ----`----'
    sentence 3 ----------`--- image 2        x = 0 and 100, stretched to whatever lies between the columns

The drawing itself is the macro `example` of `parts.html.j2`.
"""

import base64
import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from PIL import Image

from schemas.documents import Split
from schemas.features import FeatureColumn, FeatureKind
from schemas.lake import Folder
from schemas.manifest import FileEntry, Manifest
from schemas.parts import rows_where, split_parts
from training.data.ragged import Floats, Int64
from training.evaluation.evaluate import MatrixEvaluation
from training.similarity.similarity import predicted_pairs

THUMBNAIL_PX = 128
THUMBNAIL_QUALITY = 80
MAX_SENTENCE_CHARACTERS = 280
MAX_ROWS = 40
MAX_LINES = 12  # that a sentence is given, however few there are; `drawing.css.j2` has a class of each number
LINE_PX = 18
CONCEPTS_EACH = 3
EXAMPLES_EACH = 2
_ROW_MARGIN_PX = 12
_WIDEST_PX, _THINNEST_PX = 8.0, 1.5
_OPACITY, _LEAST_OPACITY = 0.85, 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleDocument:
    """A document with its predicted links; indices count from 0.

    Attributes:
        id: the document's id.
        sentences: its sentences in order.
        images: per image in order a JPEG, or the address of one; None where there is no picture.
        predicted: (sentence, image, weight) of each link the model would draw, weight being their cosine.
        links: true (sentence, image) links; None: unknown.
        auc: its AUC in percent; None where links are unknown.
        concepts: labels of the main regions of each image (Li 2022, figure 6); () where none were detected.
        sureness: probability of each predicted link, 0 to 1, or the word in its place; () where there is neither.
        terms: of the similarity of each predicted link, by what they come from; () where they are not known.
    """

    id: str
    sentences: tuple[str, ...]
    images: tuple[bytes | str | None, ...]
    predicted: tuple[tuple[int, int, float], ...] = ()
    links: tuple[tuple[int, int], ...] | None = None
    auc: float | None = None
    concepts: tuple[tuple[str, ...], ...] = ()
    sureness: tuple[float | str, ...] = ()
    terms: tuple[Mapping[str, float], ...] = ()

    def __post_init__(self) -> None:
        n, m = len(self.sentences), len(self.images)
        for sentence, image, *_ in (*self.predicted, *(self.links or ())):
            if not (0 <= sentence < n and 0 <= image < m):
                raise ValueError(f"document {self.id}: ({sentence}, {image}) is outside {n} sentences x {m} images")


ExampleGroups = Mapping[str, Sequence[ExampleDocument]]  # documents under their titles, such as "Best"


def main_concepts(labels: Iterable[str]) -> tuple[str, ...]:
    """Return the first different labels of an image's regions, which are given by falling certainty."""
    return tuple(dict.fromkeys(label for label in labels if label))[:CONCEPTS_EACH]


def choose_examples(auc: Mapping[str, float], *, each: int = 1) -> dict[str, tuple[str, ...]]:
    """Return group title -> ids of the best, typical and worst documents by AUC; no id comes twice.

    Typical documents are those in the middle of the ranking, around the median. Ties go by id. Where documents are
    few, the best are chosen first and the typical last; empty groups are left out.
    """
    ranked = sorted(auc, key=lambda document: (-auc[document], document))
    middle = max(0, (len(ranked) - each) // 2)
    wanted = {"Best": ranked[:each], "Worst": ranked[::-1][:each], "Typical": ranked[middle : middle + each]}
    taken: set[str] = set()
    chosen: dict[str, tuple[str, ...]] = {}
    for title, documents in wanted.items():
        chosen[title] = tuple(document for document in documents if document not in taken)
        taken.update(documents)
    return {title: chosen[title] for title in ("Best", "Typical", "Worst") if chosen[title]}


class EdgeKind(StrEnum):
    """The meaning of an edge; the value is its class in the drawing."""

    RIGHT = "right"
    WRONG = "wrong"
    MISSED = "missed"
    PREDICTED = "predicted"


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge between a sentence and an image (from 0); a missed link has neither weight nor sureness."""

    sentence: int
    image: int
    kind: EdgeKind
    weight: float | None = None
    sureness: float | str | None = None
    terms: Mapping[str, float] = field(default_factory=dict)

    def is_under(self, threshold: float | None) -> bool:
        """Return whether the similarity of a predicted edge is below a threshold."""
        return threshold is not None and self.weight is not None and self.weight < threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleGraph:
    """A document laid out for the page.

    Attributes:
        document: the document.
        sentences: indices of the sentences that have a row.
        images: indices of the images that have a row.
        edges: predicted ones by decreasing weight, then those that were missed; so wide ones are drawn below.
        height_px: of both columns.
        sentence_lines: lines of a sentence that its row has room for.
        image_px: height of a picture.
    """

    document: ExampleDocument
    sentences: tuple[int, ...]
    images: tuple[int, ...]
    edges: tuple[Edge, ...]
    height_px: int
    sentence_lines: int
    image_px: int

    def count(self, kind: str) -> int:
        """Return how many edges are of a kind."""
        return sum(edge.kind == kind for edge in self.edges)

    def ends_px(self, edge: Edge) -> tuple[float, float]:
        """Return where an edge leaves the left column and reaches the right one."""
        left = row_centre_px(self.sentences.index(edge.sentence), len(self.sentences), self.height_px)
        return left, row_centre_px(self.images.index(edge.image), len(self.images), self.height_px)

    def sureness_of(self, image: int) -> float | str | None:
        """Return the probability of the link of an image, which has one at most, or the word in its place."""
        return next((edge.sureness for edge in self.edges if edge.image == image and edge.weight is not None), None)

    def opacity(self, edge: Edge) -> float:
        """Return the opacity of a predicted edge: of unknown truth the greater, the surer its link."""
        if edge.kind is not EdgeKind.PREDICTED or not isinstance(edge.sureness, float):
            return _OPACITY
        return _LEAST_OPACITY + (_OPACITY - _LEAST_OPACITY) * edge.sureness

    def width_px(self, edge: Edge) -> float | None:
        """Return the width of an edge; None of one without a weight."""
        largest = max((each.weight for each in self.edges if each.weight is not None), default=0.0)
        return None if edge.weight is None else edge_width_px(edge.weight, largest)


def draw_example(document: ExampleDocument) -> ExampleGraph:
    """Return a document laid out for the page.

    Columns of more than forty rows have only the sentences or images that an edge touches.
    """
    edges = classify_edges(document)
    sentences = _drawn_rows(len(document.sentences), {edge.sentence for edge in edges})
    images = _drawn_rows(len(document.images), {edge.image for edge in edges})
    sentence_px = (3 if len(sentences) <= 20 else 2) * LINE_PX + _ROW_MARGIN_PX
    image_px = 104 if len(images) <= 10 else 76
    height_px = max(len(sentences) * sentence_px, len(images) * image_px)
    return ExampleGraph(
        document=document,
        sentences=sentences,
        images=images,
        edges=edges,
        height_px=height_px,
        sentence_lines=min(MAX_LINES, max(1, (height_px // max(1, len(sentences)) - _ROW_MARGIN_PX) // LINE_PX)),
        image_px=image_px - 8,
    )


def classify_edges(document: ExampleDocument) -> tuple[Edge, ...]:
    """Return predicted edges by decreasing weight, then the true links that were missed, in order."""
    true = None if document.links is None else set(document.links)
    edges = []
    probability_of = dict(zip(document.predicted, document.sureness, strict=False))
    terms_of = dict(zip(document.predicted, document.terms, strict=False))
    for link in sorted(document.predicted, key=lambda edge: (-edge[2], edge[0], edge[1])):
        s, i, weight = link
        right = EdgeKind.RIGHT if (s, i) in (true or ()) else EdgeKind.WRONG
        kind = EdgeKind.PREDICTED if true is None else right
        edges.append(Edge(s, i, kind, weight, probability_of.get(link), terms_of.get(link, {})))
    others = sorted((true or set()) - {(edge.sentence, edge.image) for edge in edges})
    return (*edges, *(Edge(s, i, EdgeKind.MISSED) for s, i in others))


def sureness_of(links: Iterable[tuple[float | None, str | None]]) -> tuple[float | str, ...]:
    """Return what is shown beside links: probabilities, or the words in their place; () where there is neither."""
    found = (word if probability is None else probability for probability, word in links)
    return tuple(each for each in found if each is not None)


def sure_text(sureness: float | str) -> str:
    """Return a probability in percent, or the word in its place."""
    return sureness if isinstance(sureness, str) else f"{sureness:.0%}"


def edge_width_px(weight: float, largest: float) -> float:
    """Return a stroke width proportional to a weight, 8 px for the document's largest; never under 1.5 px."""
    return max(_THINNEST_PX, _WIDEST_PX * (weight / largest if largest > 0 else 0.0))


def thumbnail_uri(jpeg: bytes | str | None) -> str | None:
    """Return a picture as a data URI of a JPEG at most 128 px wide and high; None if there is none to show.

    An address is returned as it is.
    """
    if jpeg is None or isinstance(jpeg, str):
        return jpeg
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


def _drawn_rows(count: int, touched: set[int]) -> tuple[int, ...]:
    return tuple(range(count) if count <= MAX_ROWS else sorted(touched))


def example_groups(
    evaluation: MatrixEvaluation,
    manifest: Manifest,
    folder: Folder,
    split: Split | str,
    *,
    regions: str | None = None,
    each: int = EXAMPLES_EACH,
) -> ExampleGroups:
    """Return the best, typical and worst documents with their pictures, predicted and true links.

    Args:
        evaluation: of the split.
        manifest: of the data set version.
        folder: of it.
        split: that was evaluated.
        regions: detector whose labels are drawn as concepts; None: none are.
        each: documents of a group.
    """
    auc = evaluation.document_auc
    chosen = choose_examples(auc, each=each)
    names = {name for group in chosen.values() for name in group}
    examples = read_examples(folder, split_parts(manifest, split), names, regions=regions) if names else {}
    for row, name in enumerate(evaluation.ids):
        if name in names:
            matrix, numbers, links = evaluation.matrices[row], evaluation.sentence_numbers[row], evaluation.links[row]
            examples[name] = replace(linked(examples[name], matrix, numbers, links), auc=auc[name])
    return {title: [examples[name] for name in group] for title, group in chosen.items()}


def read_examples(
    folder: Folder, parts: Iterable[tuple[FileEntry, FileEntry]], ids: Collection[str], *, regions: str | None = None
) -> dict[str, ExampleDocument]:
    """Return documents by their ids, with sentences and pictures, and without links.

    Args:
        folder: of the data set version.
        parts: its documents and images parts that are searched for them.
        ids: of the documents.
        regions: detector whose labels are the concepts; None: there are none.
    """
    column = FeatureColumn(name=regions or "", kind=FeatureKind.REGIONS, dimensions=0).column
    columns = ["hash", "jpeg", *([] if regions is None else [f"{column}.list.element.label"])]
    examples: dict[str, ExampleDocument] = {}
    for documents_part, images_part in parts:
        rows = rows_where(folder, documents_part, ["id", "sentences", "images"], sorted(ids))
        hashes = sorted({image["hash"] for row in rows for image in row["images"]})
        pictures = {each["hash"]: each for each in (rows_where(folder, images_part, columns, hashes) if hashes else ())}
        for row in rows:
            images = [pictures[image["hash"]] for image in row["images"]]
            labels = [] if regions is None else [[region["label"] for region in each[column]] for each in images]
            examples[row["id"]] = ExampleDocument(
                id=row["id"],
                sentences=tuple(sentence["text"] for sentence in row["sentences"]),
                images=tuple(each["jpeg"] for each in images),
                concepts=tuple(map(main_concepts, labels)),
            )
    return examples


def linked(example: ExampleDocument, matrix: Floats, sentence_numbers: Int64, links: Int64 | None) -> ExampleDocument:
    """Return a document with the links that a model predicts, and the true ones where they are known.

    Args:
        example: the document.
        matrix: n x m similarities of the sentences that are read and the images.
        sentence_numbers: indices of those n sentences in the document.
        links: L x 2 (row of the matrix, image), or None where they are not known.
    """
    numbers = sentence_numbers.tolist()
    pairs = zip(*predicted_pairs(matrix), strict=True)
    return replace(
        example,
        predicted=tuple((numbers[s], int(i), float(matrix[s, i])) for s, i in pairs),
        links=None if links is None else tuple((numbers[s], i) for s, i in links.tolist()),
    )
