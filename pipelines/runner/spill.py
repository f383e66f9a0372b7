"""What does not fit into memory waits in files: bytes in the order they came, or records sorted by key.

A `Spool` keeps chunks in order. A `Sorter` is an external merge sort: records are gathered until they fill a run, a run
is sorted and written, and reading merges the runs; so neither the number of records nor the skew of their keys matters,
only one group, and one block of each run, have to fit into memory at a time.

    add --> held in memory --full--> run, run, ... run
    groups <-- merged: the runs and the held records

Files have no name (they are unlinked as soon as they are made), so a process that is killed leaves none behind; they
are where `TMPDIR` says. Plain Python, for any runner; who hands these out for PCollections is `spilling`.
"""

from __future__ import annotations

import heapq
import marshal
import os
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import IO

from schemas.messages import BuildError

BLOCK_BYTES = 1 << 14  # of a run, read in one go: 2 MB for each GB, in runs of 8 MB
RECORD_OVERHEAD = 150  # bytes of a record in memory besides its content

Record = tuple[bytes, bytes]  # key, content
Spilled = Callable[[], bytes]  # reads again what was written, and keeps its file
_KEY = itemgetter(0)


class SpillFile:
    """An unnamed temporary file that is appended to, and read at any offset."""

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="multilink-spill-", buffering=0)  # noqa: SIM115
        self._size = 0
        weakref.finalize(self, self._file.close)

    def append(self, data: bytes) -> Spilled:
        """Write bytes to the end; returns what reads them.

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
        self._size += len(data)
        return partial(self._read, self._size - len(data), len(data))

    def _read(self, offset: int, length: int) -> bytes:
        return os.pread(self._file.fileno(), length, offset)


class Spool:
    """Chunks of bytes in the order they were added, read any number of times; all but the first few are in a file."""

    def __init__(self, *, held_bytes: int) -> None:
        self.size = 0  # bytes of all chunks
        self._chunks: list[bytes | Spilled] = []
        self._held_bytes = held_bytes
        self._file: SpillFile | None = None

    def append(self, chunk: bytes) -> None:
        """Add a chunk; an empty one is passed over."""
        if not chunk:
            return
        self.size += len(chunk)
        if self.size > self._held_bytes:
            self._file = self._file or SpillFile()
            self._chunks.append(self._file.append(chunk))
        else:
            self._chunks.append(chunk)

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
            yield chunk if isinstance(chunk, bytes) else chunk()


class Sorter:
    """Records (key, content), read as groups of equal keys: keys sorted as bytes, contents in the order they came.

    Attributes:
        run_bytes: of records gathered in memory before they are sorted and written.
    """

    def __init__(self, *, run_bytes: int) -> None:
        self.size = 0  # bytes of all contents
        self._run_bytes = run_bytes
        self._records: list[Record] = []
        self._held = 0
        self._file: SpillFile | None = None
        self._runs: list[list[Spilled]] = []  # blocks of each run, oldest first

    def add(self, key: bytes, content: bytes) -> None:
        """Add a record."""
        self._records.append((key, content))
        self.size += len(content)
        self._held += len(key) + len(content) + RECORD_OVERHEAD
        if self._held >= self._run_bytes:
            self.spill()

    def spill(self, *, held_bytes: int = 0) -> None:
        """Write the records that are held in memory as a run, unless they are no more than so many bytes."""
        if self._held <= held_bytes:
            return
        self._records.sort(key=_KEY)
        self._file = self._file or SpillFile()
        self._runs.append([self._file.append(marshal.dumps(block)) for block in _blocks(self._records)])
        self._records, self._held = [], 0

    def groups(self) -> Iterator[tuple[bytes, list[bytes]]]:
        """Yield each key once, with its contents; may be called again."""
        self._records.sort(key=_KEY)
        for key, group in groupby(heapq.merge(*map(_records_of, self._runs), self._records, key=_KEY), key=_KEY):
            yield key, [content for _, content in group]


def _blocks(records: list[Record]) -> Iterator[list[Record]]:
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


def _records_of(run: list[Spilled]) -> Iterator[Record]:
    for block in run:
        yield from marshal.loads(block())
