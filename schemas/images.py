"""IMAGE: every image the same-numbered documents part refers to, once, with its features as columns.

`jpeg` is the picture a person or a later extractor can use: orientation applied, RGB, shorter side 256 px. A data set
made from feature vectors alone (`multi-retrieval`) has no pixels: the picture columns are null.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from schemas.features import FeatureColumn, image_fields
from schemas.tables import column, table_schema, travels

SHORTER_SIDE_PX = 256


@travels
@dataclass(frozen=True, slots=True)
class Image:
    """What is known of one image before features; `fingerprint` is the 64-bit hash in hexadecimal."""

    hash: str
    source: str | None = None
    format: str | None = None
    width: int | None = None
    height: int | None = None
    original_bytes: int | None = None
    fingerprint: str | None = None
    is_flat: bool = False
    licence: str | None = None


def image_schema(features: Iterable[FeatureColumn] = ()) -> pa.Schema:
    """Return the schema of an images part with these feature columns."""
    columns = [
        column("hash", pa.string(), "SHA-256 (hex) of the original bytes"),
        column("source", pa.string(), "URL or path it came from", nullable=True),
        column("format", pa.string(), "format of the original: jpeg, png, gif, webp ...", nullable=True),
        column("width", pa.int32(), "of the original, orientation applied", nullable=True, unit="px"),
        column("height", pa.int32(), "of the original, orientation applied", nullable=True, unit="px"),
        column("original_bytes", pa.int64(), "size of the original file", nullable=True, unit="bytes"),
        column(
            "fingerprint",
            pa.string(),
            "perceptual hash (hex) by the manifest's fingerprint name",
            nullable=True,
        ),
        column("is_flat", pa.bool_(), "one colour all over: left out of near-duplicate search"),
        column("licence", pa.string(), "licence where known", nullable=True),
        column("jpeg", pa.binary(), "RGB JPEG, shorter side 256 px", nullable=True),
    ]
    return table_schema("images", 1, [*columns, *image_fields(features)])


KNOWN_COLUMNS = ("hash", "format", "width", "height", "original_bytes", "fingerprint", "is_flat")  # by the bytes alone
COPY_SCHEMA = pa.schema([image_schema().field(name) for name in (*KNOWN_COLUMNS, "jpeg")])
