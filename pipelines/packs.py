"""Packs: many rows in one Parquet file, found by key and read by position, so that a lake has no file per record.

    <folder>/<pack>.parquet     at most PACK_BYTES; rows in small groups, so that one row is read without the others

Copies of images, features and the index of the raw store are kept so. A pack is written once, by one worker, under a
name of its own. It is visible only when it is whole: a killed worker loses the pack it had open and nothing else.
Names begin with the time, so that of several rows of one key the newest is found. No version depends on names.

A `PackIndex` knows where every key is: 24 bytes a row in memory, read once per process from the key columns.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from schemas.errors import BuildError
from schemas.lake import Folder
from schemas.tables import travels

PACK_BYTES = 64 << 20
PACK_AGE_S = 60.0
SUFFIX = ".parquet"
FLUSHED_GROUPS = 16  # row groups that are written at once: one at a time costs several times as much
_KEY_BYTES = 16  # of a hexadecimal key: two keys that share them do not occur
_OPEN_FILES = 64
_Keys = npt.NDArray[np.bytes_]
_LOCK = threading.RLock()  # neither an index nor an open Parquet file may be used by two threads at once


@travels
@dataclass(frozen=True, slots=True)
class PackRef:
    """Where a row is, for good: the name of its pack and its number in it."""

    pack: str
    row: int


@dataclass(frozen=True, slots=True)
class PackFolder:
    """A folder of packs that share a schema.

    Attributes:
        folder: where they are.
        schema: of every pack.
        key: name of the key column, which holds hexadecimal digests of at least 32 digits.
        rows_per_group: rows that are read together: few where rows are large.
    """

    folder: Folder
    schema: pa.Schema
    key: str
    rows_per_group: int = 64

    def index(self) -> PackIndex:
        """Return where every key is, packs included that were closed since the last call in this process."""
        index = _index_of(self.folder.uri, self.key)
        with _LOCK:
            index.refresh()
        return index

    def read(self, refs: Sequence[PackRef], columns: Sequence[str]) -> pa.Table:
        """Return some columns of rows, in the order of their references; each row group is read once.

        Raises:
            BuildError: a pack is gone.
        """
        if not refs:
            return self.schema.empty_table().select(list(columns))
        rows_of: dict[str, list[int]] = {}
        for number, ref in enumerate(refs):
            rows_of.setdefault(ref.pack, []).append(number)
        order = np.empty(len(refs), np.int64)
        tables, start = [], 0
        for pack, numbers in rows_of.items():
            tables.append(self._read_rows(pack, np.array([refs[number].row for number in numbers]), columns))
            order[numbers] = np.arange(start, start + len(numbers))
            start += len(numbers)
        return pa.concat_tables(tables).take(pa.array(order))

    def writer(self) -> PackWriter:
        """Return a writer of new packs."""
        return PackWriter(self)

    def _read_rows(self, pack: str, rows: npt.NDArray[np.int64], columns: Sequence[str]) -> pa.Table:
        try:
            file = _open(self.folder.uri, f"{pack}{SUFFIX}")
        except FileNotFoundError as problem:
            raise BuildError(
                f"{self.folder.uri}/{pack}{SUFFIX}: a pack that was there is gone; build again"
            ) from problem
        groups, positions = np.unique(rows // self.rows_per_group, return_inverse=True)
        with _LOCK:
            table = file.read_row_groups(groups.tolist(), columns=list(columns), use_threads=False)
        return table.take(pa.array(positions * self.rows_per_group + rows % self.rows_per_group))


class PackIndex:
    """Where every key of a folder is."""

    def __init__(self, folder: Folder, key: str) -> None:
        self._folder = folder
        self._key = key
        self._forget()

    def _forget(self) -> None:
        self._packs: list[str] = []
        self._keys: _Keys = np.empty(0, f"S{_KEY_BYTES}")
        self._pack_numbers = np.empty(0, np.uint32)
        self._rows = np.empty(0, np.uint32)

    def __len__(self) -> int:
        return len(self._keys)

    def refresh(self) -> None:
        """Take in the packs that have come since, and forget those that are gone."""
        names = {name.removesuffix(SUFFIX) for name in self._folder.names() if _is_pack(name)}
        if not names.issuperset(self._packs):
            self._forget()  # a swept folder: rare, so begin anew
        new = sorted(names.difference(self._packs))
        if not new:
            return
        keys, numbers, rows = [self._keys], [self._pack_numbers], [self._rows]
        for pack in new:
            found = read_keys(self._folder, f"{pack}{SUFFIX}", self._key)
            keys.append(found)
            numbers.append(np.full(len(found), len(self._packs), np.uint32))
            rows.append(np.arange(len(found), dtype=np.uint32))
            self._packs.append(pack)
        together = np.concatenate(keys)
        order = np.argsort(together, kind="stable")
        self._keys = together[order]
        self._pack_numbers, self._rows = np.concatenate(numbers)[order], np.concatenate(rows)[order]

    def find(self, keys: Sequence[str]) -> list[PackRef | None]:
        """Return where each key is, None where it is not; of several rows of a key, the newest."""
        wanted = parse_keys(keys)
        with _LOCK:
            at = np.searchsorted(self._keys, wanted, side="right") - 1
            is_there = at >= 0
            is_there[is_there] = self._keys[at[is_there]] == wanted[is_there]
            return [
                PackRef(self._packs[self._pack_numbers[row]], int(self._rows[row])) if found else None
                for row, found in zip(at.tolist(), is_there.tolist(), strict=True)
            ]


class PackWriter:
    """Writes rows into packs; a pack is closed at PACK_BYTES, after PACK_AGE_S, or by `close`. Not thread-safe."""

    def __init__(self, packs: PackFolder) -> None:
        self._packs = packs
        self._open: _OpenPack | None = None

    def add(self, rows: Mapping[str, Sequence[Any]]) -> list[PackRef]:
        """Append rows, given as columns of equal length, and return where they will be once the pack is closed."""
        count = len(rows[self._packs.key])
        if not count:
            return []
        pack = self._open = self._open or _OpenPack(self._packs)
        first = pack.append(rows, count)
        if pack.is_due():
            self.close()
        return [PackRef(pack.name, first + number) for number in range(count)]

    def close(self) -> None:
        """Make what was added visible."""
        if self._open is not None:
            self._open.close()
            self._open = None


class _OpenPack:
    """A pack that is being written: whole row groups go out as they fill."""

    def __init__(self, packs: PackFolder) -> None:
        self.name = f"{time.time_ns():016x}-{uuid.uuid4().hex[:8]}"
        self._packs = packs
        self._sink = packs.folder.create(f"{self.name}{SUFFIX}")
        self._writer = pq.ParquetWriter(
            self._sink.stream,
            packs.schema,
            compression={field.name: "none" if field.type == pa.binary() else "zstd" for field in packs.schema},
            use_dictionary=False,
            write_statistics=False,
        )
        self._waiting: dict[str, list[Any]] = {name: [] for name in packs.schema.names}
        self._rows = 0
        self._opened = time.monotonic()

    def append(self, rows: Mapping[str, Sequence[Any]], count: int) -> int:
        """Add that many rows, and return the number of the first."""
        first = self._rows
        self._rows += count
        for name, waiting in self._waiting.items():
            waiting.extend(rows[name])
        whole = FLUSHED_GROUPS * self._packs.rows_per_group
        while len(self._waiting[self._packs.key]) >= whole:
            self._write(whole)
        return first

    def is_due(self) -> bool:
        return self._sink.stream.tell() >= PACK_BYTES or time.monotonic() - self._opened >= PACK_AGE_S

    def close(self) -> None:
        self._write(self._rows)
        self._writer.close()
        self._sink.commit()

    def _write(self, rows: int) -> None:
        group = {name: waiting[:rows] for name, waiting in self._waiting.items()}
        self._waiting = {name: waiting[rows:] for name, waiting in self._waiting.items()}
        if group[self._packs.key]:
            table = pa.table(group, schema=self._packs.schema)
            self._writer.write_table(table, row_group_size=self._packs.rows_per_group)


def parse_keys(keys: Sequence[str]) -> _Keys:
    """Return the first 16 bytes of hexadecimal keys, as N strings of bytes."""
    octets = bytes.fromhex("".join(key[: 2 * _KEY_BYTES] for key in keys))
    return np.frombuffer(octets, f"S{_KEY_BYTES}")


def read_keys(folder: Folder, name: str, key: str) -> _Keys:
    """Return the keys of a pack, in the order of its rows."""
    with folder.open(name) as stream:
        return parse_keys(pq.read_table(stream, columns=[key], use_threads=False)[key].to_pylist())


def _is_pack(name: str) -> bool:
    return name.endswith(SUFFIX) and not name.startswith(".")


@lru_cache(maxsize=32)
def _index_of(uri: str, key: str) -> PackIndex:
    return PackIndex(Folder(uri), key)


@lru_cache(maxsize=_OPEN_FILES)
def _open(uri: str, name: str) -> pq.ParquetFile:
    return pq.ParquetFile(Folder(uri).open(name), pre_buffer=True)
