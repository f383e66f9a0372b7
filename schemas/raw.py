"""RAW and RETRIEVAL: what hosts answered, and when what a version was made of was fetched.

The index of the raw store has one row for each request that was answered or failed, and says where its answer is. Rows
stand beside the segments they point into, `<lake>/raw/<source>/index/<segment>.parquet`. Of several rows of one key the
newest counts.

Retrievals stand beside the versions, not in them: two lakes that fetched the same things on different days have the
same version with the same bytes, and each has its own table of times. It is made of the captures in `raw/`, so a rerun
gives it again.

    <lake>/retrievals/<name>/<version>/train-part-00000-of-00001.parquet
    <lake>/retrievals/<name>/<version>/unreached/...    failures of a kind that another try may not see, in their words
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import pyarrow as pa

from schemas.lake import Folder
from schemas.tables import column, read_columns, table_schema, travels


@dataclass(frozen=True, slots=True, kw_only=True)
class RawEntry:
    """A row of the index: an answer, or a failure where `reason` is set. The columns say what each field means."""

    key: str
    kind: str
    url: str
    fetched_at: str
    final_url: str | None = None
    status: int | None = None
    media_type: str | None = None
    etag: str | None = None
    last_modified: str | None = None
    digest: str | None = None
    payload_bytes: int = 0
    segment: str | None = None
    offset: int = 0
    length: int = 0
    reason: str | None = None
    message: str | None = None
    exception: str | None = None
    limit: str | None = None
    opt_outs: str | None = None


RAW_SCHEMA = table_schema(
    "raw",
    1,
    [
        column("key", pa.string(), "SHA-256 of kind and URL"),
        column("kind", pa.string(), "what the request was for: page, image, api, robots, well-known"),
        column("url", pa.string(), "address asked for, normalised"),
        column("fetched_at", pa.string(), "when the answer came or was found unchanged, ISO 8601 in UTC"),
        column("final_url", pa.string(), "address that gave the answer, after redirects", nullable=True),
        column("status", pa.int32(), "HTTP status", nullable=True),
        column("media_type", pa.string(), "Content-Type as received", nullable=True),
        column("etag", pa.string(), "ETag as received", nullable=True),
        column("last_modified", pa.string(), "Last-Modified as received", nullable=True),
        column("digest", pa.string(), "SHA-256 of the payload", nullable=True),
        column("payload_bytes", pa.int64(), "length of the payload, decoded", unit="byte"),
        column("segment", pa.string(), "WARC file of the record, without its ending", nullable=True),
        column("offset", pa.int64(), "where the record begins in it", unit="byte"),
        column("length", pa.int64(), "of the record, compressed", unit="byte"),
        column("reason", pa.string(), "why there is no answer, one of schemas/failures.py", nullable=True),
        column("message", pa.string(), "the same in words", nullable=True),
        column("exception", pa.string(), "class of the exception behind it", nullable=True),
        column("limit", pa.string(), "configured limit it broke: it holds for that limit alone", nullable=True),
        column("opt_outs", pa.string(), "what it says against its use, a line each: reason, words", is_added=True),
    ],
)


UNREACHED = "unreached"  # a table of failures, beside the times


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
        captured: of a document, the address that was asked for; empty: the same as `url`.
    """

    kind: Retrieved
    key: str
    url: str | None
    retrieved: str
    captured: str = ""


RETRIEVAL_SCHEMA = table_schema(
    "retrievals",
    1,
    [
        column("kind", pa.string(), "input, document or image"),
        column("key", pa.string(), "id of the document, content hash of the image, URL of the input"),
        column("url", pa.string(), "address; a document's is the one a person can open", nullable=True),
        column("retrieved", pa.timestamp("s", tz="UTC"), "when the answer came"),
        column("captured", pa.string(), "of a document, the address that was asked for; null: the url", is_added=True),
    ],
)


def retrieval_tables(folder: Folder, *, is_unreached: bool = False) -> Iterator[pa.Table]:
    """Yield the tables of times in a version's folder of retrievals; or of failures that another try may not see."""
    for name in folder.files():
        if name.startswith(f"{UNREACHED}/") is is_unreached:
            yield read_columns(folder, name)


def retrieval_row(retrieval: Retrieval) -> dict[str, Any]:
    """Return a retrieval as a row of RETRIEVAL_SCHEMA."""
    moment = datetime.fromisoformat(retrieval.retrieved).astimezone(UTC).replace(microsecond=0)
    return {
        "kind": str(retrieval.kind),
        "key": retrieval.key,
        "url": retrieval.url,
        "retrieved": moment,
        "captured": retrieval.captured or None,
    }
