"""The index of the raw store: one row for each request that was answered or failed, and where its answer is.

Rows stand beside the segments they point into, `<lake>/raw/<source>/index/<segment>.parquet`. Of several rows of one
key the newest counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from schemas.tables import column, table_schema


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


RAW_SCHEMA = table_schema(
    "raw",
    1,
    [
        column("key", pa.string(), "SHA-256 of kind and URL"),
        column("kind", pa.string(), "what the request was for: page, image, api, robots"),
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
    ],
)
