"""A segment: one WARC file that one process writes, and its index beside it once it is closed.

    <raw>/<source>/<segment>.warc.gz            on a file system appended to in place, and locked while it is open
    <raw>/<source>/index/<segment>.parquet      written when the segment is closed

On an object store a segment is held in memory and appears when it is closed. What a kill leaves is a segment without
an index, whole up to its last record: `recover` cuts off what is half and writes the index. Failures stand in the
index alone, so a kill forgets those of the open segment; they are found again by asking.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import os
import time
import uuid
import zlib
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.packs import PackFolder
from pipelines.raw.records import make_info, read_entries
from schemas.lake import Folder
from schemas.raw import RAW_SCHEMA, RawEntry

SUFFIX = ".warc.gz"
LOCAL_BYTES = 256 << 20
REMOTE_BYTES = 64 << 20
REMOTE_AGE_S = 60.0
MAX_ENTRIES = 20_000
_GZIP_WINDOW = 31


class Segment:
    """An open segment of a source. Not thread-safe.

    Attributes:
        entries: by key: what its index will have.
    """

    def __init__(self, folder: Folder, date: str) -> None:
        self.name = f"{time.time_ns():016x}-{uuid.uuid4().hex[:8]}"
        self.entries: dict[str, RawEntry] = {}
        self._folder = folder
        self._opened = time.monotonic()
        self._stream = self._open()
        self._stream.write(make_info(date))

    def append(self, entry: RawEntry, record: bytes) -> RawEntry:
        """Write a record, and return its entry with the record's position."""
        placed = replace(entry, segment=self.name, offset=self._stream.tell(), length=len(record))
        self._stream.write(record)
        self.entries[entry.key] = placed
        return placed

    @property
    def is_due(self) -> bool:
        """Return whether the segment should be closed."""
        is_local = self._folder.local is not None
        is_old = not is_local and time.monotonic() - self._opened >= REMOTE_AGE_S
        limit = LOCAL_BYTES if is_local else REMOTE_BYTES
        return is_old or self._stream.tell() >= limit or len(self.entries) >= MAX_ENTRIES

    def close(self) -> None:
        """Put the segment where it belongs, and its index beside it."""
        if isinstance(self._stream, io.BytesIO):
            self._folder.write(f"{self.name}{SUFFIX}", self._stream.getvalue())
        else:
            os.fsync(self._stream.fileno())
        write_index(self._folder, self.name, self.entries.values())
        self._stream.close()

    def _open(self) -> BinaryIO:
        local = self._folder.local
        if local is None:
            return io.BytesIO()
        local.mkdir(parents=True, exist_ok=True)
        stream = (local / f"{self.name}{SUFFIX}").open("xb", buffering=0)
        fcntl.flock(stream, fcntl.LOCK_EX)
        return stream


def index_of(folder: Folder) -> PackFolder:
    """Return the indexes of a source's closed segments."""
    return PackFolder(folder.child("index"), RAW_SCHEMA, key="key", rows_per_group=1024)


def write_index(folder: Folder, segment: str, entries: Iterable[RawEntry]) -> None:
    """Write the index of a segment."""
    table = pa.Table.from_pylist([asdict(entry) for entry in entries], schema=RAW_SCHEMA)
    packs, sink = index_of(folder), io.BytesIO()
    pq.write_table(table, sink, row_group_size=packs.rows_per_group, compression="zstd")
    packs.folder.write(f"{segment}.parquet", sink.getvalue())


def recover(raw: Folder) -> None:
    """Write the index of every segment that has none and that no process is writing."""
    for source in raw.names():
        folder = raw.child(source)
        indexed = set(index_of(folder).folder.names())
        for name in folder.names():
            segment = name.removesuffix(SUFFIX)
            if name.endswith(SUFFIX) and f"{segment}.parquet" not in indexed:
                _recover(folder, segment)


def request_key(kind: str, url: str) -> str:
    """Return the key of a request for a normalised URL."""
    return hashlib.sha256(f"{kind}\n{url}".encode()).hexdigest()


def _recover(folder: Folder, segment: str) -> None:
    name, entries = f"{segment}{SUFFIX}", list[RawEntry]()
    with contextlib.ExitStack() as stack:
        local = folder.local
        if local is not None:
            stream = stack.enter_context((local / name).open("rb+"))
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:  # its process is alive
                return
        data = folder.read(name)
        with contextlib.suppress(OSError):
            entries.extend(read_entries(io.BytesIO(data), segment))
        ends = [entry.offset for entry in entries[1:]]
        if entries:
            tail = zlib.decompressobj(_GZIP_WINDOW)
            tail.decompress(data[entries[-1].offset :])
            ends.append(len(data) - len(tail.unused_data) if tail.eof else entries.pop().offset)
        if local is not None:
            stream.truncate(ends[-1] if ends else 0)
        found = zip(entries, ends, strict=False)
        write_index(
            folder,
            segment,
            [replace(e, key=request_key(e.kind, e.url), length=end - e.offset) for e, end in found],
        )
