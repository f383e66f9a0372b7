"""The raw store: every answer a host gave and every failure worth remembering, so that a rerun asks for the rest.

    <raw>/<source>/<segment>.warc.gz            written when it is closed, as a whole
    <raw>/<source>/index/<segment>.parquet      written behind it
    <raw>/files/...                             files that were captured as a whole (`web.downloads`): never segments

A segment is one WARC 1.1 file that one process writes (ISO 28500:2017), each record a gzip member of its own. A record
holds the status line, the few headers that are kept, and the body without transfer or content encoding, so that its
length and digest are those of the payload. Headers of a request are never stored: they may be credentials.

What closed segments hold is found through their indexes, many keys at once. The newest entry of a key counts. Two
processes that fetch into one store need not know of each other: at worst both ask for the same thing.

A segment is closed by the first answer after half a minute, so a kill costs less than a minute of one process: those
that take over its work find the rest once they `refresh`. What a kill leaves is a temporary file, or a segment without
an index that nobody reads; both go when something is forgotten (`recover`).
"""

import gzip
import hashlib
import io
import math
import re
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from http.client import responses
from typing import Any

import pyarrow.parquet as pq
from fastwarc import ArchiveIterator

from pipelines.packs import PackFolder, PackRef
from schemas.lake import Folder
from schemas.messages import IntegrityError
from schemas.raw import RAW_SCHEMA, RawEntry
from schemas.tables import read_columns, records_table

SUFFIX = ".warc.gz"
FILES = "files"  # of captured files: no source has this name
SEGMENT_BYTES = 256 << 20
AGE_S = 30.0
LISTED_S = 60.0  # for so long a process need not know what others have added
MAX_ENTRIES = 20_000
_INDEX = "index"
_SEGMENT = re.compile(r"[0-9a-f]{16}-[0-9a-f]{8}")
_KEPT_HEADERS = (
    "cache-control",
    "content-language",
    "content-signal",
    "content-type",
    "content-usage",
    "etag",
    "last-modified",
    "tdm-policy",
    "tdm-reservation",
    "x-robots-tag",
)
_COMPRESSED = re.compile("text/|application/(json|xml|xhtml)")


class RawStore:
    """The raw store of a lake, as one process knows it; thread-safe."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._segments: dict[str, _Segment] = {}
        self._lock = threading.Lock()
        self._since = -math.inf  # what others had closed by then is known, by the monotonic clock

    def refresh(self) -> None:
        """Let the next lookups find what others have closed until now: who begins may have to go on for one of them."""
        self._since = time.monotonic()

    def find_many(self, source: str, keys: Sequence[str]) -> list[RawEntry | None]:
        """Return the newest entry of each key, None where there is none."""
        packs = index_of(self._folder.child(source))
        with self._lock:
            waiting = self._segments[source].entries if source in self._segments else []
            open_entries = {entry.key: entry for entry in waiting}
            table = packs.read([ref for ref in self._find(packs, keys) if ref is not None], RAW_SCHEMA.names)
        stored = {row["key"]: RawEntry(**row) for row in table.to_pylist()}
        return [open_entries.get(key) or stored.get(key) for key in keys]

    def locate(self, source: str, keys: Sequence[str]) -> list[str | None]:
        """Return the closed segment whose index has the newest entry of each key, None where there is none."""
        with self._lock:
            refs = self._find(index_of(self._folder.child(source)), keys)
        return [None if ref is None else ref.pack for ref in refs]

    def add(self, source: str, entry: RawEntry, headers: Mapping[str, str], body: bytes) -> RawEntry:
        """Store an answer, and return its entry with its digest and position."""
        whole = replace(entry, digest=hashlib.sha256(body).hexdigest(), payload_bytes=len(body))
        return self._append(source, whole, _make_record(whole, headers, body))

    def note(self, source: str, entry: RawEntry) -> None:
        """Store an entry without a record of its own: a failure, or an answer that was found unchanged."""
        self._append(source, entry, None)

    def body(self, source: str, entry: RawEntry) -> bytes:
        """Return the body of an answer.

        Raises:
            IntegrityError: the stored bytes are not the ones that were received.
        """
        with self._lock:
            segment = self._segments.get(source)
            if segment is not None and segment.name == entry.segment:  # it is not there yet
                self._segments.pop(source).close()
        name = f"{entry.segment}{SUFFIX}"
        try:
            with self._folder.child(source).open(name) as stream:
                stream.seek(entry.offset)
                record = stream.read(entry.length)
            body = read_body(record)
        except (FileNotFoundError, ValueError) as problem:
            raise IntegrityError(f"{self._folder.uri}/{source}/{name}: no record at {entry.offset}") from problem
        if hashlib.sha256(body).hexdigest() != entry.digest:
            found = f"{self._folder.uri}/{source}/{name}: the body at {entry.offset} is not the one received"
            raise IntegrityError(f"{found}; delete the file and its index, and rerun")
        return body

    def close(self) -> None:
        """Close every open segment: what is in them can then be found by other processes."""
        with self._lock:
            for source in list(self._segments):
                self._segments.pop(source).close()

    def _find(self, packs: PackFolder, keys: Sequence[str]) -> list[PackRef | None]:
        return packs.index(max_age_s=min(LISTED_S, time.monotonic() - self._since)).find(keys)

    def _append(self, source: str, entry: RawEntry, record: bytes | None) -> RawEntry:
        with self._lock:
            if source not in self._segments:
                self._segments[source] = _Segment(self._folder.child(source), entry.fetched_at)
            segment = self._segments[source]
            try:
                placed = segment.append(entry, record)
            except OSError:  # a full disk may have cut the record
                self._segments.pop(source).discard()
                raise
            if segment.is_due:
                self._segments.pop(source).close()
        return placed


class _Segment:
    """An open segment of a source. Not thread-safe.

    Attributes:
        entries: what its index will have, in their order.
    """

    def __init__(self, folder: Folder, date: str) -> None:
        self.name = f"{time.time_ns():016x}-{uuid.uuid4().hex[:8]}"
        self.entries: list[RawEntry] = []
        self._folder = folder
        self._opened = time.monotonic()
        self._sink = folder.create(f"{self.name}{SUFFIX}")
        fields = {"WARC-Type": "warcinfo", "WARC-Date": date, "Content-Type": "application/warc-fields"}
        self._sink.stream.write(_member(fields, b"software: multilink\r\nformat: WARC File Format 1.1\r\n", 0))

    def append(self, entry: RawEntry, record: bytes | None) -> RawEntry:
        """Add an entry and its record, if it has one, and return it with the record's position."""
        if record is not None:
            entry = replace(entry, segment=self.name, offset=self._sink.stream.tell(), length=len(record))
            self._sink.stream.write(record)
        self.entries.append(entry)
        return entry

    def discard(self) -> None:
        """Leave no trace of the segment."""
        self._sink.discard()

    @property
    def is_due(self) -> bool:
        """Return whether the segment should be closed."""
        is_old = time.monotonic() - self._opened >= AGE_S
        return is_old or self._sink.stream.tell() >= SEGMENT_BYTES or len(self.entries) >= MAX_ENTRIES

    def close(self) -> None:
        """Put the segment where it belongs, and its index beside it."""
        self._sink.commit()
        write_index(self._folder, self.name, self.entries)


def request_key(kind: str, url: str) -> str:
    """Return the key of a request for a normalised URL."""
    return hashlib.sha256(f"{kind}\n{url}".encode()).hexdigest()


def recover(raw: Folder) -> None:
    """Remove what a kill left: segments without an index. The caller works alone in the lake: one may be about to come.

    A file of another name beside segments is left alone.
    """
    for source in sources_of(raw):
        folder = raw.child(source)
        names = {name.removesuffix(SUFFIX) for name in folder.names() if name.endswith(SUFFIX)}
        for segment in filter(_SEGMENT.fullmatch, names - closed_segments(folder)):
            folder.delete(f"{segment}{SUFFIX}")


def sources_of(raw: Folder) -> list[str]:
    """Return the sources whose answers are in a raw store."""
    return [name for name in raw.names() if name != FILES]


def closed_segments(folder: Folder) -> set[str]:
    """Return the segments of a source that have an index."""
    names = index_of(folder).folder.names()
    return {name.removesuffix(".parquet") for name in names if name.endswith(".parquet")}


def index_of(folder: Folder) -> PackFolder:
    """Return the indexes of a source's closed segments."""
    return PackFolder(folder.child(_INDEX), RAW_SCHEMA, key="key", rows_per_group=1024)


def index_rows(raw: Folder, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield some columns of each row of all indexes, with its source; what an index lacks is None."""
    for source in sources_of(raw):
        folder = raw.child(source)
        for segment in sorted(closed_segments(folder)):
            rows = read_columns(index_of(folder).folder, f"{segment}.parquet", columns).to_pylist()
            yield from ((source, {**dict.fromkeys(columns), **row}) for row in rows)


def write_index(folder: Folder, segment: str, entries: Iterable[RawEntry]) -> None:
    packs, sink = index_of(folder), io.BytesIO()
    pq.write_table(records_table(entries, RAW_SCHEMA), sink, row_group_size=packs.rows_per_group, compression="zstd")
    packs.folder.write(f"{segment}.parquet", sink.getvalue())
    packs.has_changed()


def _make_record(entry: RawEntry, headers: Mapping[str, str], body: bytes) -> bytes:
    """Return the record of an answer; `entry` says what is known of it."""
    lines = [
        f"{name.title()}: {' '.join(line.split())}"
        for name in _KEPT_HEADERS
        for line in headers.get(name, "").splitlines()
    ]
    status = entry.status or 0
    head = "\r\n".join([f"HTTP/1.1 {status} {responses.get(status, '')}", *lines, f"Content-Length: {len(body)}"])
    fields = {
        "WARC-Type": "response",
        "WARC-Target-URI": entry.final_url or entry.url,
        "WARC-Date": entry.fetched_at,
        "WARC-Payload-Digest": f"sha256:{entry.digest}",
        "Content-Type": "application/http; msgtype=response",
    }
    level = 1 if _COMPRESSED.match(entry.media_type or "") else 0
    return _member(fields, head.encode("latin-1", "replace") + b"\r\n\r\n" + body, level)


def _member(fields: Mapping[str, str], block: bytes, level: int) -> bytes:
    lines = [f"{name}: {value}\r\n" for name, value in fields.items()]
    head = f"WARC/1.1\r\nWARC-Record-ID: <urn:uuid:{uuid.uuid4()}>\r\n{''.join(lines)}Content-Length: {len(block)}\r\n"
    return gzip.compress(head.encode() + b"\r\n" + block + b"\r\n\r\n", level, mtime=0)


def read_body(record: bytes) -> bytes:
    """Return the body in a record.

    Raises:
        ValueError: it is no record.
    """
    try:
        return bytes(next(ArchiveIterator(io.BytesIO(record))).reader.read())
    except (OSError, StopIteration) as problem:
        raise ValueError("no record") from problem
