"""Predicted links, one a row: what `multilink link` writes; and the manifest of the links of a data set version.

Links go by the numbers of sentences and images in the lists that the document was read from; `predicted_links` of a
relinked row, as its other columns, by their index in the row (`schemas.documents`).

The links of a document are the best one-to-one assignment of its sentences and images; a document for which nothing
was predicted has no row. How they are chosen is in `links.py`. The links of a whole version are

    <output>/links/<split>/part-00000-of-00016.parquet       of the documents part of that name
    <output>/documents/<split>/part-00000-of-00016.parquet   what came of each of its documents: LINKED_SCHEMA
    <output>/failures/<split>/part-00000-of-00016.parquet    its documents that could not be linked, if there are any
    <output>/relinked/<split>/part-00000-of-00016.parquet    of `multilink relink`: the documents themselves without
                                                             features, with links given and predicted: RELINKED_SCHEMA
    <output>/manifest.json                                   written last: what a reader trusts
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import pyarrow as pa

from schemas.configs import JsonFile
from schemas.documents import IMAGE_NUMBERS, SENTENCE_NUMBERS, document_schema
from schemas.lake import MANIFEST, Folder
from schemas.manifest import FileEntry, parsed_manifest
from schemas.tables import column, table_schema


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
