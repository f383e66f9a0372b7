"""LINK: one predicted link a row, what `multilink link` writes; and the manifest of the links of a data set version.

Links go by the numbers of sentences and images in the lists that the document was read from; `predicted_links` of a
relinked row, as its other columns, by their index in the row (`schemas.documents`).

The links of a document are the best one-to-one assignment of its sentences and images; a document for which nothing
was predicted has no row. How they are chosen is `training.linking`'s business. The links of a whole version are

    <output>/links/<split>/part-00000-of-00016.parquet       of the documents part of that name
    <output>/documents/<split>/part-00000-of-00016.parquet   what came of each of its documents: LINKED_SCHEMA
    <output>/failures/<split>/part-00000-of-00016.parquet    its documents that could not be linked, if there are any
    <output>/relinked/<split>/part-00000-of-00016.parquet    of `multilink relink`: the documents themselves without
                                                             features, with links given and predicted: RELINKED_SCHEMA
    <output>/manifest.json                                   written last: what a reader trusts

INDEX: what makes the pictures of a data set version searchable by one model; made again from both at any time.

<lake>/indexes/<data set>/<version>/<model>/parts/<digest>/  written once and never changed
                                                vectors.npy   n x d float32, unit vectors, in order of content hash
                                                fields.arrow  what is known of the same pictures (`FIELDS_SCHEMA`)
                                                words/        their words, a segment of a tantivy index
                                            places.arrow      where each picture is in the version; null: it is gone
                                            cells.faiss       IVF,SQ8 of the rows that are; from EXACT_BELOW images on
                                            confidence.json   probabilities of results, where validation texts give them
                                            model/            the model itself, and calibration.json where it has one
                                            signature.json    of the manifest, by who made it, where there is a key
                                            manifest.json     written last: what a reader trusts

Rows are numbered through the parts, in the order of the manifest. An index of the next version has the files of the
parts before (a hard link, on an object store a copy) and one part more; a picture that is gone keeps its row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import pyarrow as pa

from schemas.configs import JsonFile
from schemas.documents import IMAGE_NUMBERS, SENTENCE_NUMBERS, document_schema
from schemas.lake import MANIFEST, Folder, inner_path
from schemas.manifest import FileEntry, parsed_manifest
from schemas.tables import column, table_schema

PARTS, FIELDS, VECTORS, WORDS = "parts", "fields.arrow", "vectors.npy", "words"
PLACES, CELLS, CONFIDENCE, MODEL = "places.arrow", "cells.faiss", "confidence.json", "model"
SIGNATURE = "signature.json"  # in a DSSE envelope; not among the files of the manifest, which it signs
_SHARED = pa.dictionary(pa.int32(), pa.string())  # few different values
FIELDS_SCHEMA = table_schema(
    "index fields",
    1,
    [
        column("key", pa.uint64(), "first 64 bits of the content hash; rows are in its order"),
        column("image", pa.string(), "content hash: SHA-256 (hex) of the original bytes"),
        column("source", pa.large_string(), "URL or path it came from", nullable=True),
        column("format", _SHARED, "of the original", nullable=True),
        column("width", pa.int32(), "of the original", nullable=True, unit="px"),
        column("height", pa.int32(), "of the original", nullable=True, unit="px"),
        column("orientation", _SHARED, "landscape, portrait or square", nullable=True),
        column("cluster", pa.string(), "of near-duplicates: the smallest hash among them", nullable=True),
        column("licence", _SHARED, "as its source states it, else the rights in its metadata", nullable=True),
        column("title", pa.large_string(), "headline or name", nullable=True),
        column("caption", pa.large_string(), "what it shows, by its file or archive", nullable=True),
        column("credit", _SHARED, "agency or photographer", nullable=True),
        column("rights", pa.large_string(), "as its metadata state them", nullable=True),
        column("date", pa.string(), "when it was made, ISO 8601 to the day, month or year", nullable=True),
        column("day", pa.int32(), "the date as YYYYMMDD, zeros for what it does not tell", nullable=True),
        column("place", pa.large_string(), "where, from small to large", nullable=True),
        column("keywords", pa.list_(pa.string()), "as given; empty: none"),
        column("shown_with", pa.large_string(), "captions of the articles that showed it", nullable=True),
    ],
)
PLACES_SCHEMA = table_schema(
    "index places",
    1,
    [
        column("part", _SHARED, "images part of the version; null: the picture is not in the version", nullable=True),
        column("part_row", pa.int32(), "row in that part", nullable=True),
    ],
)


@dataclass(frozen=True, slots=True)
class PredictedRelation:
    """A relation of a linked sentence and image, and its probability, 0 to 1."""

    name: str
    probability: float


@dataclass(frozen=True, slots=True)
class PredictedLink:
    """Sentence `sentence` of a document goes with its image `image`.

    Attributes:
        document: id of the document.
        sentence: its number: its index, from 0, in the list that the document was read from (`schemas.documents`).
        image: likewise.
        similarity: cosine of the two embeddings, -1 to 1, or what the model's steps at link time make of it.
        rank: place among the document's links by similarity, from 1.
        model: URI of the model that predicted it, with its version.
        probability: that it is true, 0 to 1, by the model's calibration; None without one, or where it does not hold.
        word: how the link looks by the calibration where its probability does not hold: strong, fair or weak.
        relations: those that a coherence model predicts, each with its probability; None of other models.
        text: the sentence, in a user's own documents; None in a data set version, whose shards hold it.
        source: path or URL of the image, as `text`.
    """

    document: str
    sentence: int
    image: int
    similarity: float
    rank: int
    model: str
    probability: float | None = None
    relations: tuple[PredictedRelation, ...] | None = None
    text: str | None = None
    source: str | None = None
    word: str | None = None


@dataclass(frozen=True, slots=True)
class TrueLink:
    """A link of the ground truth between a sentence that the model reads and an image, by their numbers."""

    sentence: int
    image: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentLinks:
    """What came of linking one document, so that documents can be sorted and filtered without reading their links.

    Attributes:
        document: its id.
        language: of it.
        sentences: that the model reads.
        images: of the document.
        links: that were predicted.
        wrong: predicted links that are not in the ground truth; None where that is unknown.
        missed: links of the ground truth that were not predicted; None likewise.
        auc: of all similarities, in percent; None where the truth is unknown, empty, or every pair.
        confidence: mean of what the calibration makes of the links, without one of their similarities; None: no link.
        relations: those that some link has by the model: with a probability of at least 1/2.
        truth: the true links of the sentences that the model reads; None: unknown.
        sentence_numbers: of each of the document's sentences; None: its index (`schemas.documents`).
        image_numbers: of each of its images, likewise.
    """

    document: str
    language: str
    sentences: int
    images: int
    links: int
    wrong: int | None
    missed: int | None
    auc: float | None
    confidence: float | None
    relations: tuple[str, ...]
    truth: tuple[TrueLink, ...] | None
    sentence_numbers: Sequence[int] | None = None
    image_numbers: Sequence[int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkCounts:
    """What came of some documents: how many there were, their links, and how many failed by reason.

    `cautions` are the reasons for which links have a word and no probability, each with its number of documents.
    """

    documents: int
    links: int
    failures: Mapping[str, int]
    cautions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinksManifest(JsonFile):
    """What the links of a data set version are; no clock time, so that equal links have equal manifests.

    Attributes:
        model: URI of the model, with its version.
        dataset: NAME@VERSION.
        made_by: fingerprint of the model's weights, the data set's manifest, the calibration and the precision.
        precision: share of links that was to be true; None: all links are there.
        fitted: what of the model's steps was chosen again on the documents, in words; empty: nothing.
        splits: counts of each split.
        files: every file of links, documents and failures.
    """

    what: ClassVar[str] = "a manifest of links"
    model: str
    dataset: str
    made_by: str
    precision: float | None
    splits: Mapping[str, LinkCounts]
    files: tuple[FileEntry, ...]
    fitted: str = ""
    format: Literal[1] = 1


def read_links(folder: Folder) -> LinksManifest:
    """Return the manifest of a folder of links, parsed once while its file is the same; raises as `from_json`."""
    found: LinksManifest = parsed_manifest(LinksManifest, folder, folder.stamp(MANIFEST))
    return found


_RELATION = pa.struct(
    [
        column("name", pa.string(), "relation"),
        column("probability", pa.float32(), "that the sentence and the image have it", unit="0 to 1"),
    ]
)


LINK_SCHEMA = table_schema(
    "links",
    2,
    [
        column("document", pa.string(), "id of the document"),
        column("sentence", pa.int32(), "index of the sentence in the list it was read from", unit="from 0"),
        column("image", pa.int32(), "index of the image in the list it was read from", unit="from 0"),
        column("similarity", pa.float32(), "cosine of the two embeddings, or what the model's steps make of it"),
        column("rank", pa.int32(), "place among the document's links by similarity", unit="from 1"),
        column("model", pa.string(), "URI of the model that predicted it"),
        column(
            "probability",
            pa.float32(),
            "that it is true, by the calibration on validation links; null without one or where it does not hold",
            nullable=True,
            unit="0 to 1",
        ),
        column("relations", pa.list_(_RELATION), "null of a model that predicts none", nullable=True),
        column("text", pa.string(), "the sentence; null in a data set version, whose shards hold it", nullable=True),
        column("source", pa.string(), "path or URL of the image; null as text is", nullable=True),
        column("word", pa.string(), "where its probability does not hold: strong, fair or weak", nullable=True),
    ],
)


_TRUE_LINK = pa.struct(
    [
        column("sentence", pa.int32(), "index of the sentence in the list it was read from", unit="from 0"),
        column("image", pa.int32(), "index of the image in the list it was read from", unit="from 0"),
    ]
)


LINKED_SCHEMA = table_schema(
    "linked-documents",
    1,
    [
        column("document", pa.string(), "id of the document"),
        column("language", pa.string(), "BCP 47 code; `und` where unknown"),
        column("sentences", pa.int32(), "sentences that the model reads"),
        column("images", pa.int32(), "images of the document"),
        column("links", pa.int32(), "predicted links"),
        column(
            "wrong", pa.int32(), "predicted links that are not true; null where the truth is unknown", nullable=True
        ),
        column("missed", pa.int32(), "true links that were not predicted; null likewise", nullable=True),
        column(
            "auc",
            pa.float32(),
            "of all similarities; null where the truth is unknown, empty or every pair",
            nullable=True,
            unit="percent",
        ),
        column(
            "confidence",
            pa.float32(),
            "mean of what the calibration makes of the links, without one of their similarities; null without a link",
            nullable=True,
        ),
        column("relations", pa.list_(pa.string()), "that some link has, with a probability of at least 1/2"),
        column(
            "truth", pa.list_(_TRUE_LINK), "true links of sentences that the model reads; null: unknown", nullable=True
        ),
        column(
            SENTENCE_NUMBERS,
            pa.list_(pa.int32()),
            "of each sentence of the data set's row, its index in the list it was read from; null: its own index",
            nullable=True,
            unit="from 0",
        ),
        column(IMAGE_NUMBERS, pa.list_(pa.int32()), "of each image, likewise", nullable=True, unit="from 0"),
    ],
)


PREDICTED_LINKS = "predicted_links"


_PREDICTED = pa.struct(
    [
        column("sentence", pa.int32(), "index into sentences", unit="from 0"),
        column("image", pa.int32(), "index into images", unit="from 0"),
        LINK_SCHEMA.field("similarity"),
        LINK_SCHEMA.field("probability"),
        LINK_SCHEMA.field("word"),
    ],
)


RELINKED_SCHEMA = table_schema(
    "relinked",
    1,
    [
        *document_schema(),
        column(
            PREDICTED_LINKS,
            pa.list_(_PREDICTED),
            "the model's, the most similar first; null: the document could not be linked",
            nullable=True,
        ),
    ],
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellsNote:
    """How the approximate index of many images is searched.

    Attributes:
        cells: inverted lists.
        probes: lists that are looked at for a query.
        recall: share of the true first 50 that was among the candidates then, 0 to 1.
        queries: how many queries that was measured with.
        measured_with: texts of the version, or pictures where no text of it can be read by the model.
        images: how many the lists were made for; more may have been put into them since.
    """

    cells: int
    probes: int
    recall: float
    queries: int
    measured_with: Literal["texts", "pictures"]
    images: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexManifest(JsonFile):
    """What an index is; no clock time, so that equal indexes have equal manifests.

    Attributes:
        model: URI of the model, with its version.
        dataset: NAME@VERSION.
        made_by: fingerprint of the model's weights, the data set's manifest, the calibration and the libraries.
        rows_by: fingerprint of what else than a picture decides its row: the model, the features it reads, the
            libraries. An index of another version with the same one has the same rows of the same pictures.
        images: different images in it.
        rows: of all parts; those beyond `images` are of pictures that are not in the version.
        dimensions: of their vectors.
        parts: their names, in order.
        cells: None where every search is exact.
        rank_by: what puts pictures in order unless a search says so: what finds validation texts' pictures best.
        described: how many images have each field of metadata.
        files: every file.
    """

    what: ClassVar[str] = "a manifest of an index"
    model: str
    dataset: str
    made_by: str
    rows_by: str
    images: int
    rows: int
    dimensions: int
    parts: tuple[str, ...]
    cells: CellsNote | None
    rank_by: str
    described: Mapping[str, int]
    files: tuple[FileEntry, ...]
    format: Literal[3] = 3

    def __post_init__(self) -> None:
        for part in self.parts:
            inner_path(part)
