"""Documents as ragged arrays: what is in memory of one split, of one worker's share of it, or of a request.

Nothing here reads a file (`lake.py` does). Whatever is trained on, evaluated, linked or served is a `DocumentSet`.
Shape suffixes: D documents, N sentences, M image places, U different images, L links, t and v dimensions of a sentence
and an image vector.

A `TextView` says which sentences of a document are read, by their roles, and how. A split is read as one view of it,
and so is what a user gives. Each sentence by itself (N's single source: `caption`), or one row for a document that
holds a text for each source (N 5.1: headline, lead, caption, body), for the `multi-source` tower. Links follow: those
of a sentence that is not read go, those of fused sentences are the fused row's. Every row keeps the number of its
sentence in the document.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.messages import UsageError
from training.data.ragged import Bool, Choice, Float32, Floats, Int64, Ragged, UInt64, choose_all, set_keys
from training.parts import Reading

Float16 = npt.NDArray[np.float16]
UNKNOWN_PLACE = -1
Vectors = Float16 | Float32  # float16, or float32 where the data set stores vectors as float32 or int8


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionBank:
    """Detected regions of U images.

    Attributes:
        images: which of the R regions are of which image.
        labels: R labels ("traffic light").
        vectors: R x d, float16.
        boxes: R x 4, float32: left, top, right, bottom, as shares of the picture's width and height.
        scores: R, float32: the detector's certainty of the label.
    """

    images: Ragged
    labels: tuple[str, ...]
    vectors: Float16
    boxes: Float32
    scores: Float32

    @classmethod
    def joined(cls, banks: Sequence[RegionBank], *, dimensions: int = 0) -> RegionBank:
        """Return the regions of several groups of images as one bank; without any region, of the given size."""
        vectors = [bank.vectors for bank in banks if len(bank.vectors)]
        return cls(
            images=Ragged.joined(bank.images for bank in banks),
            labels=tuple(label for bank in banks for label in bank.labels),
            vectors=np.concatenate(vectors) if vectors else np.zeros((0, dimensions), np.float16),
            boxes=np.concatenate([np.zeros((0, 4), np.float32), *(bank.boxes for bank in banks)]),
            scores=np.concatenate([np.zeros(0, np.float32), *(bank.scores for bank in banks)]),
        )

    def take(self, images: Int64) -> RegionBank:
        """Return the regions of some images, in the given order."""
        rows = self.images.positions(images)
        return RegionBank(
            images=self.images.take(images),
            labels=tuple(self.labels[row] for row in rows),
            vectors=self.vectors[rows],
            boxes=self.boxes[rows],
            scores=self.scores[rows],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassBank:
    """The K most probable classes of U images, the most probable first.

    Attributes:
        labels: U times K labels ("" beyond an image's last class).
        probabilities: U x K, float32 (0 beyond an image's last class).
    """

    labels: tuple[tuple[str, ...], ...]
    probabilities: Float32

    def take(self, images: Int64) -> ClassBank:
        """Return the classes of some images, in the given order."""
        return ClassBank(labels=tuple(self.labels[row] for row in images), probabilities=self.probabilities[images])


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentSet:
    """Documents with their sentences and images, in part and row order, as a view shows them.

    Attributes:
        ids: D document ids.
        texts: N sentences.
        sentences: which of the N rows are of which document.
        sentence_numbers: N indices of the rows' sentences in their documents as they are published, from 0; of fused
            sentences the first one's. A row and its sentence differ where a view leaves sentences out.
        sentence_vectors: N x t, or None where no sentence extractor was asked for.
        images: which of the M image places are of which document.
        image_rows: M rows of the bank, int64: the image at each place.
        image_hashes: U content hashes, one a bank row.
        image_bank: U x v: every different image once.
        links: per document, L x 2 (row, image) indices, or None where unknown; None as a whole: not read.
        roles: N roles of the sentences; None: not known.
        languages: D language codes; None: not known.
        after_sentence: M numbers of published sentences before the image at each place, `UNKNOWN_PLACE` where that is
            not known; None: not read.
        sources: N tuples of texts, one a fused role ("" where the document has none); None: rows are single sentences.
        regions: of the U bank images; None: not read.
        classes: of the U bank images; None: not read.
        image_jpegs: U JPEG files; None: not read.
        relations: per document, the relations of its first link by name, None where unknown; empty without a link;
            None as a whole: not read.
    """

    ids: tuple[str, ...]
    texts: tuple[str, ...]
    sentences: Ragged
    sentence_numbers: Int64
    sentence_vectors: Vectors | None
    images: Ragged
    image_rows: Int64
    image_hashes: tuple[str, ...]
    image_bank: Vectors
    links: tuple[Int64 | None, ...] | None = None
    roles: tuple[str, ...] | None = None
    languages: tuple[str, ...] | None = None
    after_sentence: Int64 | None = None
    sources: tuple[tuple[str, ...], ...] | None = None
    regions: RegionBank | None = None
    classes: ClassBank | None = None
    image_jpegs: tuple[bytes, ...] | None = None
    relations: tuple[Mapping[str, bool | None], ...] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def image_sets(self) -> UInt64:
        """Return D keys; two of these documents with equal keys hold the same set of images (`keys.set_keys`)."""
        return set_keys(self.image_rows.astype(np.uint64), self.images)

    @property
    def row_texts(self) -> tuple[str, ...]:
        """Return all that the N rows say: a sentence each, or the texts of all sources that a row fuses."""
        return self.texts if self.sources is None else tuple(map(" ".join, self.sources))

    @property
    def are_finite(self) -> Bool:
        """Return D, whether all vectors of a document are finite."""
        are_finite = np.ones(len(self), bool)
        broken = np.flatnonzero(~np.isfinite(self.image_bank).all(axis=1))
        are_finite[self.images.owners[np.isin(self.image_rows, broken)]] = False
        if self.sentence_vectors is not None:
            are_finite[self.sentences.owners[~np.isfinite(self.sentence_vectors).all(axis=1)]] = False
        return are_finite

    def take_documents(self, documents: Int64 | Sequence[int]) -> DocumentSet:
        """Return some documents, in the given order, with the images they show and no other."""
        documents = np.asarray(documents, np.int64)
        return self.take(choose_all(self, documents), documents)

    def take(self, choice: Choice, documents: Int64) -> DocumentSet:
        """Return a choice of sentences and images of some documents, and no other image; links stay as they are."""
        shown, image_rows = np.unique(self.image_rows[choice.image_rows], return_inverse=True)
        return replace(
            self.take_sentences(choice.sentence_rows, choice.sentences),
            ids=choice.ids,
            images=choice.images,
            image_rows=image_rows.astype(np.int64),
            image_hashes=_taken(self.image_hashes, shown),
            image_bank=self.image_bank[shown],
            links=_taken(self.links, documents),
            languages=_taken(self.languages, documents),
            after_sentence=None if self.after_sentence is None else self.after_sentence[choice.image_rows],
            regions=None if self.regions is None else self.regions.take(shown),
            classes=None if self.classes is None else self.classes.take(shown),
            image_jpegs=_taken(self.image_jpegs, shown),
            relations=_taken(self.relations, documents),
        )

    def take_sentences(self, rows: Int64, sentences: Ragged) -> DocumentSet:
        """Return the documents with some of the N rows, divided among them as given; links stay as they are."""
        return replace(
            self,
            texts=_taken(self.texts, rows),
            sentences=sentences,
            sentence_numbers=self.sentence_numbers[rows],
            sentence_vectors=None if self.sentence_vectors is None else self.sentence_vectors[rows],
            roles=_taken(self.roles, rows),
            sources=_taken(self.sources, rows),
        )


def joined(parts: Sequence[DocumentSet]) -> DocumentSet:
    """Return the documents of several sets that were read alike as one, each different image once."""
    first = parts[0]
    if len(parts) == 1:
        return first
    hashes = [hash_ for part in parts for hash_ in part.image_hashes]
    rows: dict[str, int] = {}
    numbers = np.array([rows.setdefault(hash_, len(rows)) for hash_ in hashes], np.int64)
    shown = np.unique(numbers, return_index=True)[1]
    starts = np.cumsum([0, *(len(part.image_hashes) for part in parts[:-1])])
    places = [part.image_rows + start for part, start in zip(parts, starts, strict=True)]

    def flat(name: str) -> Any:
        columns = _all([getattr(part, name) for part in parts])
        is_array = columns is not None and isinstance(columns[0], np.ndarray)
        return np.concatenate(columns) if columns is not None and is_array else _flat(columns)

    regions = _all([part.regions for part in parts])
    return replace(
        first,
        **{name: flat(name) for name in _BY_DOCUMENT_OR_ROW},
        sentences=Ragged.joined(part.sentences for part in parts),
        images=Ragged.joined(part.images for part in parts),
        image_rows=numbers[np.concatenate(places)],
        image_hashes=tuple(rows),
        image_bank=flat("image_bank")[shown],
        regions=None if regions is None else RegionBank.joined(regions).take(shown),
        classes=None,
        image_jpegs=_taken(flat("image_jpegs"), shown),
    )


_BY_DOCUMENT_OR_ROW = (
    "ids",
    "texts",
    "sentence_numbers",
    "sentence_vectors",
    "links",
    "roles",
    "languages",
    "after_sentence",
    "sources",
    "relations",
)


def _taken(values: Any, rows: Int64) -> Any:
    """Return some items of a tuple, or None where there is none."""
    return None if values is None else tuple(values[row] for row in rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenDocument:
    """A document that comes from a user rather than from a data set.

    Attributes:
        id: of the document.
        texts: n sentences.
        image_vectors: m x v vectors of the model's image extractor; for a model that reads regions or pictures only m
            counts, and m x 0 will do.
        sentence_vectors: n x t vectors of the model's sentence extractor; None for a model that reads words.
        roles: n roles of the texts; None where they are not known.
        language: of the texts; None where it is not known.
        regions: of the m images, for a model that reads regions.
        jpegs: m pictures, for a model that reads pictures, and for who looks at the links.
        sources: paths or URLs of the m images; None where they have none.
        sentence_numbers: of the n texts (`schemas.documents`); empty: their indexes.
        image_numbers: of the m images, likewise.
        after_sentence: numbers of the texts before each of the m images, None where that is not known; empty: of none.
    """

    id: str = ""
    texts: Sequence[str]
    image_vectors: Floats
    sentence_vectors: Floats | None = None
    roles: Sequence[str] | None = None
    language: str | None = None
    regions: RegionBank | None = None
    jpegs: Sequence[bytes] | None = None
    sources: Sequence[str] | None = None
    sentence_numbers: Sequence[int] = ()
    image_numbers: Sequence[int] = ()
    after_sentence: Sequence[int | None] = ()

    def check(self) -> None:
        """Raise a `UsageError` where the parts of the document do not fit together."""
        of_sentences: dict[str, Any] = {
            "vectors": self.sentence_vectors,
            "roles": self.roles,
            "numbers": self.sentence_numbers or None,
        }
        of_images: dict[str, Any] = {
            "regions": self.regions and self.regions.images,
            "pictures": self.jpegs,
            "sources": self.sources,
            "numbers": self.image_numbers or None,
            "places": self.after_sentence or None,
        }
        for what, count, parts in (
            ("sentences", len(self.texts), of_sentences),
            ("images", len(self.image_vectors), of_images),
        ):
            for name, values in parts.items():
                if values is not None and len(values) != count:
                    raise UsageError(f"expected {name} of {count} {what}, found {len(values)}")


def document_set(documents: Sequence[GivenDocument]) -> DocumentSet:
    """Return a user's documents as those of a data set; what any of them lacks is not known of all.

    Raises:
        UsageError: the parts of a document do not fit together, or vectors are of several sizes.
    """
    for document in documents:
        document.check()
    images = Ragged.of([len(document.image_vectors) for document in documents])
    image_rows = np.arange(images.total, dtype=np.int64)
    sentences = Ragged.of([len(document.texts) for document in documents])
    regions = _all([document.regions for document in documents])
    return DocumentSet(
        ids=tuple(document.id for document in documents),
        texts=tuple(text for document in documents for text in document.texts),
        sentences=sentences,
        sentence_numbers=sentences.numbers,
        sentence_vectors=_stacked(_all([document.sentence_vectors for document in documents])),
        images=images,
        image_rows=image_rows,
        image_hashes=tuple(map(str, image_rows)),
        image_bank=_stacked([document.image_vectors for document in documents]),
        roles=_flat(_all([document.roles for document in documents])),
        after_sentence=_places(documents),
        languages=None
        if (languages := _all([document.language for document in documents])) is None
        else tuple(languages),
        regions=None if regions is None else RegionBank.joined(regions),
        image_jpegs=_flat(_all([document.jpegs for document in documents])),
    )


def _places(given: Sequence[GivenDocument]) -> Int64:
    places = chain.from_iterable(each.after_sentence or [None] * len(each.image_vectors) for each in given)
    return np.array([UNKNOWN_PLACE if place is None else place for place in places], np.int64)


def _all(parts: Sequence[Any]) -> Sequence[Any] | None:
    """Return the parts, or None where one is missing."""
    return None if any(part is None for part in parts) else parts


def _flat(parts: Sequence[Sequence[Any]] | None) -> tuple[Any, ...] | None:
    return None if parts is None else tuple(item for part in parts for item in part)


def _stacked(parts: Sequence[Floats] | None) -> Any:
    """Return the rows of all parts, which are of one width but for parts without a row."""
    if parts is None:
        return None
    filled = [part for part in parts if len(part)]
    widths = sorted({part.shape[1] for part in filled})
    if len(widths) > 1:
        raise UsageError(f"expected feature vectors of one size, found {', '.join(map(str, widths))} numbers")
    return np.concatenate(filled) if filled else np.zeros((0, 0), np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextView:
    """Which sentences are read.

    Attributes:
        roles: their roles; () for all sentences.
        is_fused: whether a document's sentences of these roles are one row, with a source for each role.
    """

    roles: tuple[str, ...] = ()
    is_fused: bool = False

    @classmethod
    def of(cls, reading: Reading) -> TextView:
        """Return the view that a text tower reads."""
        sources = reading.needs.sources
        return cls(roles=sources, is_fused=True) if sources else cls(roles=reading.data.roles)

    def counts(self, roles: pa.Array, sentences: Ragged) -> Int64:
        """Return how many rows each of some documents has whose sentences have these roles."""
        if not self.roles:
            return sentences.counts
        is_read = pc.is_in(roles, pa.array(self.roles, roles.type)).to_numpy(zero_copy_only=False)
        counts = np.bincount(sentences.owners[is_read], minlength=len(sentences))
        return np.minimum(counts, 1) if self.is_fused else counts


ALL_SENTENCES = TextView()


def viewed(documents: DocumentSet, view: TextView) -> DocumentSet:
    """Return the documents as a view shows them; all other columns stay as they are.

    Raises:
        UsageError: the view goes by roles, and those of the documents are not known.
    """
    if not view.roles:
        return documents
    if documents.roles is None:
        raise UsageError(f"this model reads texts by their role ({', '.join(view.roles)}); the texts have no roles")
    is_read = np.array([role in view.roles for role in documents.roles], dtype=bool)
    rows = np.flatnonzero(is_read)
    owners = documents.sentences.owners[rows]
    if not view.is_fused:
        # The row of each sentence among those that are read of its document; -1 where it is not read.
        sentences = Ragged.of(np.bincount(owners, minlength=len(documents)))
        moved = np.full(len(is_read), -1, np.int64)
        moved[rows] = sentences.numbers
        return replace(documents.take_sentences(rows, sentences), links=_moved_links(documents, moved))
    owners, first = np.unique(owners, return_index=True)
    sources = tuple(_fused(documents, int(document), view.roles) for document in owners)
    fused = documents.take_sentences(rows[first], Ragged.of(np.bincount(owners, minlength=len(documents))))
    return replace(
        fused,
        texts=tuple(next((text for text in row if text), "") for row in sources),
        roles=(view.roles[0],) * len(sources),
        sources=sources,
        sentence_vectors=None,
        links=_moved_links(documents, np.where(is_read, 0, -1)),
    )


def _fused(documents: DocumentSet, document: int, sources: Sequence[str]) -> tuple[str, ...]:
    """Return a document's text for each source: its sentences of that role, joined by a space ("" where none is)."""
    rows = documents.sentences.rows(document)
    pairs = list(zip(documents.texts[rows], (documents.roles or ())[rows], strict=True))
    return tuple(" ".join(text for text, role in pairs if role == source) for source in sources)


def _moved_links(documents: DocumentSet, rows: Int64) -> tuple[Int64 | None, ...] | None:
    """Return the links of the rows that the N sentences have become (-1: not read), each once, in order."""
    if documents.links is None:
        return None
    return tuple(
        None if links is None else _moved(links, rows[part])
        for part, links in zip(documents.sentences, documents.links, strict=True)
    )


def _moved(links: Int64, rows: Int64) -> Int64:
    if not len(links):
        return links
    moved = np.stack([rows[links[:, 0]], links[:, 1]], axis=1)
    return np.unique(moved[moved[:, 0] >= 0], axis=0).reshape(-1, 2)
