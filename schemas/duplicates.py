"""DUPLICATE and LEAK: images that occur again in a data set, and what documents of different splits share.

A duplicate is one row per occurrence of an image that has a near-duplicate somewhere in the data set.

A leak is one row per document and shared thing that ties it to a document of another split. It has two ends, and each
end has its own row: the training document that shares a picture with a test document, and the test document that shares
it. A row names one document of the other split, the first, not all of them: a caption that a thousand documents of each
split share gives two thousand rows, not a million.
"""

from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from schemas.documents import Split
from schemas.tables import column, table_schema, travels


@dataclass(frozen=True, slots=True, order=True)
class _Occurrence:
    """An image occurrence inside a cluster.

    Attributes:
        cluster: the cluster's id, the smallest image hash among its members.
        document: document the image occurs in.
        position: index of the image in that document, from 0.
        image: content hash of the image.
        nearest: content hash of the closest other member (the image's own hash when it occurs twice).
    """

    cluster: str
    document: str
    position: int
    image: str
    nearest: str


@travels
@dataclass(frozen=True, slots=True, order=True)
class Duplicate(_Occurrence):
    """One of near-duplicates.

    Attributes:
        distance: Hamming distance to `nearest`, in bits.
        is_dropped: whether the policy dropped this document for it.
    """

    distance: int
    is_dropped: bool


DUPLICATE_SCHEMA = table_schema(
    "duplicates",
    1,
    [
        column("cluster", pa.string(), "connected component of near-duplicates: its smallest image hash"),
        column("document", pa.string(), "document the image occurs in"),
        column("position", pa.int32(), "index of the image in the document", unit="from 0"),
        column("image", pa.string(), "content hash"),
        column("nearest", pa.string(), "content hash of the closest other member"),
        column("distance", pa.int32(), "Hamming distance to nearest", unit="bits"),
        column("is_dropped", pa.bool_(), "whether the policy dropped the document for it"),
    ],
)


@travels
@dataclass(frozen=True, slots=True, order=True)
class NearCopy(_Occurrence):
    """One of images with near vectors.

    Attributes:
        cosine: of its vector and that of `nearest`.
        is_dropped: whether the policy dropped this document for it.
    """

    cosine: float
    is_dropped: bool


NEAR_COPY_SCHEMA = table_schema(
    "near-copies",
    1,
    [
        column("cluster", pa.string(), "connected component of images with near vectors: its smallest image hash"),
        column("document", pa.string(), "document the image occurs in"),
        column("position", pa.int32(), "index of the image in the document", unit="from 0"),
        column("image", pa.string(), "content hash"),
        column("nearest", pa.string(), "content hash of the most similar other member"),
        column("cosine", pa.float64(), "of the vectors of image and nearest", unit="-1 to 1"),
        column("is_dropped", pa.bool_(), "whether the policy dropped the document for it"),
    ],
)


class LeakKind(StrEnum):
    """What two documents share."""

    EXACT_IMAGE = "exact-image"  # the same bytes
    NEAR_IMAGE = "near-image"  # other bytes, in one cluster of near-duplicates
    SENTENCE = "sentence"  # the same words
    DOCUMENT_TEXT = "document-text"  # the same sentences, all of them


@travels
@dataclass(frozen=True, slots=True, order=True)
class Leak:
    """One end of a leak.

    Attributes:
        kind: what is shared.
        split: split of `document`.
        other_split: split of `other_document`, never `split`.
        key: content hash of the document's image, or the normalised text (a long one: its beginning and digest).
        document: the document whose row this is.
        other_document: the first document of the other split that shares it, by id.
        other_key: content hash of the other document's image, or the same text.
        tokens: words of a shared text; 0 of an image.
    """

    kind: LeakKind
    split: Split
    other_split: Split
    key: str
    document: str
    other_document: str
    other_key: str
    tokens: int = 0


LEAK_SCHEMA = table_schema(
    "leaks",
    1,
    [
        column("kind", pa.string(), "exact-image, near-image, sentence or document-text"),
        column("split", pa.string(), "split of document"),
        column("other_split", pa.string(), "split of other_document"),
        column(
            "key", pa.string(), "content hash of the document's image, or the normalised text (long: beginning, digest)"
        ),
        column("document", pa.string(), "document whose row this is"),
        column("other_document", pa.string(), "first document of the other split that shares it"),
        column("other_key", pa.string(), "content hash of the other document's image, or the same text"),
        column("tokens", pa.int32(), "words of a shared text; 0 of an image", unit="words"),
    ],
)
