"""The raw store: every answer a host gave and every failure worth remembering, so that a rerun asks for the rest.

    <raw>/<source>/<segment>.warc.gz            on a file system appended to in place, and locked while it is open
    <raw>/<source>/index/<segment>.parquet      written when the segment is closed
    <raw>/files/...                             files that were captured as a whole (`web.downloads`): never segments

A segment is one WARC 1.1 file that one process writes (ISO 28500:2017), each record a gzip member of its own. A record
holds the status line, the few headers that are kept, and the body without transfer or content encoding, so that its
length and digest are those of the payload. Headers of a request are never stored: they may be credentials.

What closed segments hold is found through their indexes, many keys at once. The newest entry of a key counts. Two
processes that fetch into one store need not know of each other: at worst both ask for the same thing.

A segment is closed by the first answer after half a minute, so a kill costs less than a minute of one process: those
that take over its work find the rest once they `refresh`. On an object store an open segment is held in memory. On a
file system a kill leaves a segment without an index, whole up to its last record: `recover` cuts off what is half and
writes the index. Failures stand in the index alone, so a kill forgets those of the open segment; they are found again
by asking.
"""

import contextlib
import fcntl
import gzip
import hashlib
import io
import math
import os
import re
import threading
import time
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from http.client import responses
from typing import Any, BinaryIO

import pyarrow.parquet as pq
from fastwarc import ArchiveIterator, WarcRecordType

from pipelines.packs import PackFolder, PackRef
from schemas.errors import IntegrityError
from schemas.lake import Folder
from schemas.raw import RAW_SCHEMA, RawEntry
from schemas.tables import read_columns, records_table

SUFFIX = ".warc.gz"
FILES = "files"  # of captured files: no source has this name
LOCAL_BYTES = 256 << 20
REMOTE_BYTES = 64 << 20
AGE_S = 30.0
LISTED_S = 60.0  # for so long a process need not know what others have added
MAX_ENTRIES = 20_000
_GZIP_WINDOW = 31
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
_REQUEST = "X-Request"  # an extension field: what the key of a request is made of
_OPT_OUTS = "X-Opt-Outs"  # likewise: a line of the entry's, then a tab
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
            open_entries = dict(self._segments[source].entries) if source in self._segments else {}
            refs = self._find(packs, keys)
            table = packs.read([ref for ref in refs if ref is not None], RAW_SCHEMA.names)
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
            if segment is not None and segment.name == entry.segment:  # on an object store it is not there yet
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
            placed = segment.append(entry, record)
            if segment.is_due:
                self._segments.pop(source).close()
        return placed


class _Segment:
    """An open segment of a source. Not thread-safe.

    Attributes:
        entries: by key: what its index will have.
    """

    def __init__(self, folder: Folder, date: str) -> None:
        self.name = f"{time.time_ns():016x}-{uuid.uuid4().hex[:8]}"
        self.entries: dict[str, RawEntry] = {}
        self._folder = folder
        self._opened = time.monotonic()
        self._stream: BinaryIO = io.BytesIO()
        if folder.local is not None:
            folder.local.mkdir(parents=True, exist_ok=True)
            self._stream = (folder.local / f"{self.name}{SUFFIX}").open("xb", buffering=0)
            fcntl.flock(self._stream, fcntl.LOCK_EX)
        fields = {"WARC-Type": "warcinfo", "WARC-Date": date, "Content-Type": "application/warc-fields"}
        self._stream.write(_member(fields, b"software: multilink\r\nformat: WARC File Format 1.1\r\n", 0))

    def append(self, entry: RawEntry, record: bytes | None) -> RawEntry:
        """Add an entry and its record, if it has one, and return it with the record's position."""
        if record is not None:
            entry = replace(entry, segment=self.name, offset=self._stream.tell(), length=len(record))
            self._write(record, entry.offset)
        self.entries[entry.key] = entry
        return entry

    def _write(self, record: bytes, offset: int) -> None:
        """Write a record as a whole, or none of it: on a full disk a part may be written, which others would follow."""
        left = memoryview(record)
        try:
            while left:
                left = left[self._stream.write(left) :]
        except OSError:
            self._stream.seek(offset)
            self._stream.truncate()
            raise

    @property
    def is_due(self) -> bool:
        """Return whether the segment should be closed."""
        is_old = time.monotonic() - self._opened >= AGE_S
        limit = REMOTE_BYTES if isinstance(self._stream, io.BytesIO) else LOCAL_BYTES
        return is_old or self._stream.tell() >= limit or len(self.entries) >= MAX_ENTRIES

    def close(self) -> None:
        """Put the segment where it belongs, and its index beside it."""
        if isinstance(self._stream, io.BytesIO):
            self._folder.write(f"{self.name}{SUFFIX}", self._stream.getvalue())
        else:
            os.fsync(self._stream.fileno())
        write_index(self._folder, self.name, self.entries.values())
        self._stream.close()


def request_key(kind: str, url: str) -> str:
    """Return the key of a request for a normalised URL."""
    return hashlib.sha256(f"{kind}\n{url}".encode()).hexdigest()


def recover(raw: Folder) -> None:
    """Write the index of every segment that has none and that no process is writing."""
    for source in sources_of(raw):
        folder = raw.child(source)
        for segment in sorted(open_segments(folder)):
            _recover(folder, segment)


def sources_of(raw: Folder) -> list[str]:
    """Return the sources whose answers are in a raw store."""
    return [name for name in raw.names() if name != FILES]


def open_segments(folder: Folder) -> set[str]:
    """Return the segments of a source that have no index; a file of another name is no segment, whatever its ending."""
    names = (name.removesuffix(SUFFIX) for name in folder.names() if name.endswith(SUFFIX))
    return set(filter(_SEGMENT.fullmatch, names)) - closed_segments(folder)


def closed_segments(folder: Folder) -> set[str]:
    """Return the segments of a source that have an index."""
    names = index_of(folder).folder.names()
    return {name.removesuffix(".parquet") for name in names if name.endswith(".parquet")}


def _recover(folder: Folder, segment: str) -> None:
    name = f"{segment}{SUFFIX}"
    with contextlib.ExitStack() as stack:
        local = folder.local
        if local is not None:
            stream = stack.enter_context((local / name).open("rb+"))
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:  # its process is alive
                return
        entries, end = segment_entries(folder.read(name), segment)
        if local is not None:
            stream.truncate(end)
        write_index(folder, segment, entries)


def segment_entries(data: bytes, segment: str) -> tuple[list[RawEntry], int]:
    """Return the entry of each whole answer in the bytes of a segment, and where the last one ends."""
    entries = list[RawEntry]()
    with contextlib.suppress(OSError):  # what follows is no record
        entries.extend(_read_entries(io.BytesIO(data), segment))
    ends = [entry.offset for entry in entries[1:]]
    if entries:
        tail = zlib.decompressobj(_GZIP_WINDOW)
        tail.decompress(data[entries[-1].offset :])
        ends.append(len(data) - len(tail.unused_data) if tail.eof else entries.pop().offset)
    found = zip(entries, ends, strict=False)
    return [replace(entry, length=end - entry.offset) for entry, end in found], ends[-1] if ends else 0


def index_of(folder: Folder) -> PackFolder:
    """Return the indexes of a source's closed segments."""
    return PackFolder(folder.child(_INDEX), RAW_SCHEMA, key="key", rows_per_group=1024)


def index_rows(raw: Folder, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield some columns of each row of all indexes, with its source; what an index lacks is None."""
    for source in sources_of(raw):
        index = index_of(raw.child(source)).folder
        for name in index.names():
            rows = read_columns(index, name, columns).to_pylist()
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
        _REQUEST: f"{entry.kind} {entry.url}",
        "Content-Type": "application/http; msgtype=response",
    }
    if entry.opt_outs:
        fields[_OPT_OUTS] = entry.opt_outs.replace("\n", "\t")
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


def _read_entries(stream: BinaryIO, segment: str) -> Iterator[RawEntry]:
    """Yield the entry of each answer in a segment, its length still to be filled in.

    Raises:
        OSError: what follows is no record.
    """
    for record in ArchiveIterator(stream, record_types=WarcRecordType.response):
        fields, headers = record.headers, record.http_headers
        kind, _, url = fields[_REQUEST].partition(" ")
        yield RawEntry(
            key=request_key(kind, url),
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
            opt_outs=(fields.get(_OPT_OUTS) or "").replace("\t", "\n") or None,
        )
