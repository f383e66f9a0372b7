"""What does not fit into memory waits in files: bytes in the order they came, or records sorted by key.

A `Spool` keeps chunks in order. A `Sorter` is an external merge sort: records are gathered until they fill a run, a run
is sorted and written, and reading merges the runs; so neither the number of records nor the skew of their keys matters,
only one group has to fit into memory at a time.

    add --> held in memory --full--> run, run, ... run --as many as FAN_IN--> one run of the next level
    groups <-- merged: the held records, and the runs of all levels

Files have no name (they are unlinked as soon as they are made), so a process that is killed leaves none behind; they
are where `TMPDIR` says. Plain Python, for any runner; who hands these out for PCollections is `spilling_runner`.
"""

from __future__ import annotations

import heapq
import marshal
import os
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, groupby
from operator import itemgetter
from typing import IO

from schemas.errors import BuildError

HELD_BYTES = 1 << 18  # of a spool or an idle sorter that stay in memory
RUN_BYTES = 8 << 20  # of a sorter's records gathered in memory
BLOCK_BYTES = 1 << 16  # of a run, read in one go
FAN_IN = 32  # runs merged at once, of each level
RECORD_OVERHEAD = 150  # bytes of a record in memory besides its content

Record = tuple[bytes, bytes]  # key, content
_KEY = itemgetter(0)


class SpillFile:
    """An unnamed temporary file that is appended to, and read at any place."""

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="multilink-spill-", buffering=0)  # noqa: SIM115
        self._size = 0
        weakref.finalize(self, self._file.close)

    def append(self, data: bytes) -> _Place:
        """Write bytes to the end; returns where they are.

        Raises:
            BuildError: the disk is full, or fails.
        """
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as problem:
            folder = tempfile.gettempdir()
            raise BuildError(
                f"temporary files in {folder}: {problem.strerror}; TMPDIR names another folder"
            ) from problem
        place = _Place(self, self._size, len(data))
        self._size += len(data)
        return place

    def read(self, offset: int, length: int) -> bytes:
        return os.pread(self._file.fileno(), length, offset)


@dataclass(frozen=True, slots=True)
class _Place:
    """Bytes in a file; whoever holds one keeps the file."""

    file: SpillFile
    offset: int
    length: int

    def read(self) -> bytes:
        return self.file.read(self.offset, self.length)


class Spool:
    """Chunks of bytes in the order they were added, read any number of times; all but the first few are in a file."""

    def __init__(self, *, held_bytes: int = HELD_BYTES) -> None:
        self.size = 0  # bytes of all chunks
        self._chunks: list[bytes | _Place] = []
        self._free = held_bytes
        self._held_bytes = held_bytes
        self._file: SpillFile | None = None

    def append(self, chunk: bytes) -> None:
        """Add a chunk; an empty one is passed over."""
        if not chunk:
            return
        self.size += len(chunk)
        if len(chunk) <= self._free:
            self._free -= len(chunk)
            self._chunks.append(chunk)
        else:
            self._file = self._file or SpillFile()
            self._chunks.append(self._file.append(chunk))

    def extend(self, chunks: Iterable[bytes]) -> None:
        """Add the chunks of another spool (its file is shared, not copied), or any others."""
        if isinstance(chunks, Spool):
            self._chunks.extend(chunks._chunks)
            self.size += chunks.size
        else:
            for chunk in chunks:
                self.append(chunk)

    def copy(self) -> Spool:
        """Return a spool of the same chunks; what is added to one is not in the other."""
        twin = Spool(held_bytes=self._held_bytes)
        twin.extend(self)
        return twin

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            yield chunk.read() if isinstance(chunk, _Place) else chunk


class Sorter:
    """Records (key, content), read as groups of equal keys: keys sorted as bytes, contents in the order they came.

    Attributes:
        run_bytes: of records gathered in memory before they are sorted and written.
        held_bytes: that may stay in memory when `settle` is called.
    """

    def __init__(self, *, run_bytes: int = RUN_BYTES, held_bytes: int = HELD_BYTES) -> None:
        self._run_bytes = run_bytes
        self._held_bytes = held_bytes
        self.size = 0  # bytes of all contents
        self._records: list[Record] = []
        self._held = 0
        self._levels: list[list[list[_Place]]] = []  # level -> runs, oldest first -> blocks

    def add(self, key: bytes, content: bytes) -> None:
        """Add a record."""
        self._records.append((key, content))
        self.size += len(content)
        self._held += len(key) + len(content) + RECORD_OVERHEAD
        if self._held >= self._run_bytes:
            self._spill()

    def settle(self) -> None:
        """Write what is held, unless it is little: nothing is added for a while."""
        if self._held > self._held_bytes:
            self._spill()

    def groups(self) -> Iterator[tuple[bytes, list[bytes]]]:
        """Yield each key once, with its contents; may be called again."""
        self._records.sort(key=_KEY)
        runs = [map(_Place.read, run) for level in reversed(self._levels) for run in level]
        records = heapq.merge(*map(_records_of, runs), self._records, key=_KEY)
        for key, group in groupby(records, key=_KEY):
            yield key, [content for _, content in group]

    def _spill(self) -> None:
        self._records.sort(key=_KEY)
        run = _write_run(self._records)
        self._records, self._held = [], 0
        self._keep(run, level=0)

    def _keep(self, run: list[_Place], *, level: int) -> None:
        if level == len(self._levels):
            self._levels.append([])
        runs = self._levels[level]
        runs.append(run)
        if len(runs) == FAN_IN:
            merged = heapq.merge(*(_records_of(map(_Place.read, each)) for each in runs), key=_KEY)
            longer = _write_run(merged)
            runs.clear()
            self._keep(longer, level=level + 1)


def _write_run(records: Iterable[Record]) -> list[_Place]:
    """Write sorted records to a file of their own, in blocks."""
    file = SpillFile()
    return [file.append(marshal.dumps(block)) for block in _blocks(records)]


def _blocks(records: Iterable[Record]) -> Iterator[list[Record]]:
    block: list[Record] = []
    size = 0
    for record in records:
        block.append(record)
        size += len(record[0]) + len(record[1])
        if size >= BLOCK_BYTES:
            yield block
            block, size = [], 0
    if block:
        yield block


def _records_of(blocks: Iterable[bytes]) -> Iterator[Record]:
    return chain.from_iterable(map(marshal.loads, blocks))
