"""RETRIEVAL: when what a version was made of was fetched, in this lake.

Beside the versions, not in them: two lakes that fetched the same things on different days have the same version with
the same bytes, and each has its own table of times. It is made of the captures in `raw/`, so a rerun gives it again.

    <lake>/retrievals/<name>/<version>/part-00000-of-00001.parquet
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import pyarrow as pa

from schemas.tables import column, table_schema, travels


class Retrieved(StrEnum):
    """What was fetched."""

    INPUT = "input"  # a file that the source was read from
    DOCUMENT = "document"  # the page or the answer a document was read from
    IMAGE = "image"


@travels
@dataclass(frozen=True, slots=True, order=True)
class Retrieval:
    """One thing that was fetched.

    Attributes:
        key: the document's id, the image's content hash; the URL of an input.
        url: address of the image or the input; of a document, the one a person can open.
        retrieved: when the answer came, ISO 8601 in UTC.
    """

    kind: Retrieved
    key: str
    url: str | None
    retrieved: str


RETRIEVAL_SCHEMA = table_schema(
    "retrievals",
    1,
    [
        column("kind", pa.string(), "input, document or image"),
        column("key", pa.string(), "id of the document, content hash of the image, URL of the input"),
        column("url", pa.string(), "address; a document's is the one a person can open", nullable=True),
        column("retrieved", pa.timestamp("s", tz="UTC"), "when the answer came"),
    ],
)


def retrieval_row(retrieval: Retrieval) -> dict[str, Any]:
    """Return a retrieval as a row of RETRIEVAL_SCHEMA."""
    moment = datetime.fromisoformat(retrieval.retrieved).astimezone(UTC).replace(microsecond=0)
    return {"kind": str(retrieval.kind), "key": retrieval.key, "url": retrieval.url, "retrieved": moment}
