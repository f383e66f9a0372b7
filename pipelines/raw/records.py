"""One answer as a WARC 1.1 record, a gzip member of its own, and back (ISO 28500:2017).

A record holds the status line, the few headers that are kept, and the body without transfer or content encoding, so
that its length and digest are those of the payload. Headers of a request are never stored: they may be credentials.
"""

from __future__ import annotations

import gzip
import io
import re
import uuid
from collections.abc import Iterator, Mapping
from http.client import responses
from typing import BinaryIO

from fastwarc import ArchiveIterator, WarcRecord, WarcRecordType

from schemas.raw import RawEntry

_KEPT_HEADERS = ("cache-control", "content-language", "content-type", "etag", "last-modified")
_REQUEST = "X-Request"  # an extension field: what the key of a request is made of
_COMPRESSED = re.compile("text/|application/(json|xml|xhtml)")


def make_record(entry: RawEntry, headers: Mapping[str, str], body: bytes) -> bytes:
    """Return the record of an answer; `entry` says what is known of it."""
    lines = [f"{name.title()}: {' '.join(headers[name].split())}" for name in _KEPT_HEADERS if name in headers]
    status = entry.status or 0
    head = "\r\n".join([f"HTTP/1.1 {status} {responses.get(status, '')}", *lines, f"Content-Length: {len(body)}"])
    fields = {
        "WARC-Type": "response",
        "WARC-Target-URI": entry.final_url or entry.url,
        "WARC-Date": entry.fetched_at,
        "WARC-Payload-Digest": f"sha256:{entry.digest}",
        _REQUEST: f"{entry.kind} {entry.url}",
        "Content-Type": "application/http; msgtype=response",
    }
    level = 1 if _COMPRESSED.match(entry.media_type or "") else 0
    return _member(fields, head.encode("latin-1", "replace") + b"\r\n\r\n" + body, level)


def make_info(date: str) -> bytes:
    """Return the record that begins a segment."""
    fields = {"WARC-Type": "warcinfo", "WARC-Date": date, "Content-Type": "application/warc-fields"}
    return _member(fields, b"software: multilink\r\nformat: WARC File Format 1.1\r\n", 0)


def read_body(record: bytes) -> bytes:
    """Return the body in a record.

    Raises:
        ValueError: it is no record.
    """
    try:
        return bytes(next(ArchiveIterator(io.BytesIO(record))).reader.read())
    except (OSError, StopIteration) as problem:
        raise ValueError("no record") from problem


def read_entries(stream: BinaryIO, segment: str) -> Iterator[RawEntry]:
    """Yield the entry of each answer in a segment, its key and length still to be filled in.

    Raises:
        OSError: what follows is no record.
    """
    for record in ArchiveIterator(stream, record_types=WarcRecordType.response):
        yield _entry(record, segment)


def _entry(record: WarcRecord, segment: str) -> RawEntry:
    fields, headers = record.headers, record.http_headers
    kind, _, url = fields[_REQUEST].partition(" ")
    return RawEntry(
        key="",
        kind=kind,
        url=url,
        fetched_at=fields["WARC-Date"],
        final_url=fields["WARC-Target-URI"],
        status=headers.status_code,
        media_type=headers.get("Content-Type"),
        etag=headers.get("Etag"),
        last_modified=headers.get("Last-Modified"),
        digest=fields["WARC-Payload-Digest"].partition(":")[2],
        payload_bytes=len(record.reader.read()),
        segment=segment,
        offset=record.stream_pos,
    )


def _member(fields: Mapping[str, str], block: bytes, level: int) -> bytes:
    lines = [f"{name}: {value}\r\n" for name, value in fields.items()]
    head = f"WARC/1.1\r\nWARC-Record-ID: <urn:uuid:{uuid.uuid4()}>\r\n{''.join(lines)}Content-Length: {len(block)}\r\n"
    return gzip.compress(head.encode() + b"\r\n" + block + b"\r\n\r\n", level, mtime=0)
