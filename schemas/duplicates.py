"""DUPLICATE: one row per occurrence of an image that has a near-duplicate somewhere in the data set."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from schemas.tables import column, table_schema, travels


@travels
@dataclass(frozen=True, slots=True, order=True)
class Duplicate:
    """An image occurrence inside a cluster of near-duplicates.

    Attributes:
        cluster: the cluster's id, the smallest image hash among its members.
        document: document the image occurs in.
        position: index of the image in that document, from 0.
        image: content hash of the image.
        nearest: content hash of the closest other member (the image's own hash when it occurs twice).
        distance: Hamming distance to `nearest`, in bits.
        is_dropped: whether the policy dropped this document for it.
    """

    cluster: str
    document: str
    position: int
    image: str
    nearest: str
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
