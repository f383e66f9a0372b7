"""Packs: many rows in one Parquet file, found by key and read by position, so that a lake has no file per record.

    <folder>/<pack>.parquet     at most PACK_BYTES; rows in small groups, so that one row is read without the others

Copies of images, features and the index of the raw store are kept so. A pack is written once, by one worker, under a
name of its own. It is visible only when it is whole: a killed worker loses the pack it had open and nothing else.
Many small ones are put together when a build ends (`merge_small`).
Names begin with the time, so that of several rows of one key the newest is found. No version depends on names.

A `PackIndex` knows where every key is: 24 bytes a row in memory, read once per process from the key columns.
"""

from __future__ import annotations

import base64
import hashlib
import math
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from cachetools import LRUCache, cached

from schemas.errors import BuildError
from schemas.lake import Folder, Sink
from schemas.stores import ObjectFile, read_end, read_range
from schemas.tables import travels

PACK_BYTES = 64 << 20
PACK_AGE_S = 60.0
SMALL_BYTES = PACK_BYTES // 8
MANY = 64  # small packs of a folder, beyond which they are put together: an index reads something of each
SUFFIX = ".parquet"
FLUSHED_GROUPS = 16  # row groups that are written at once: one at a time costs several times as much
_KEY_BYTES = 16  # of a hexadecimal key: two keys that share them do not occur
_OPEN_FILES = 64  # each holds what its footer says: a megabyte or two of a pack that is full
_BLOCK_BYTES = 16 << 20  # of a pack on an object store, which are asked for at once
_END_BYTES = 4 << 20  # of a pack there, which tell how long it is; what its footer says, all of a small one
_HELD_ENDS, _HELD_BLOCKS = 128 << 20, 256 << 20  # bytes
_KEYS = b"keys"  # of a footer: what the key column holds, so that an index is one small read a pack
_READ_GROUPS = 32  # row groups that are held at once
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

    def index(self, *, max_age_s: float = 0.0) -> PackIndex:
        """Return where every key is, as the folder was at most so long ago; this process's own packs are known."""
        index = _index_of(self.folder.uri, self.key)
        with _LOCK:
            index.refresh(max_age_s)
        return index

    def has_changed(self) -> None:
        """Note that this process has added a pack: the next look at the index finds it."""
        _index_of(self.folder.uri, self.key).listed = -math.inf

    def read(self, refs: Sequence[PackRef], columns: Sequence[str]) -> pa.Table:
        """Return some columns of rows, in the order of their references; each row group is read once.

        Raises:
            BuildError: a pack is gone.
        """
        if not refs:
            return self.schema.empty_table().select(list(columns))
        numbers_of = defaultdict[str, list[int]](list)
        for number in sorted(range(len(refs)), key=lambda number: refs[number].row):
            numbers_of[refs[number].pack].append(number)
        tables = [
            table
            for pack, numbers in numbers_of.items()
            for table in self._read_rows(pack, np.array([refs[number].row for number in numbers]), columns)
        ]
        whole = pa.concat_tables(tables, promote_options="default")  # older packs may lack a column
        return whole.take(pa.array(np.argsort(np.concatenate(list(numbers_of.values())))))

    def small(self) -> dict[str, int]:
        """Return the sizes of the packs that are far from full, by name, in the order of their times."""
        sizes = {name.removesuffix(SUFFIX): info.size for name, info in self.folder.infos().items() if _is_pack(name)}
        return {name: size for name, size in sizes.items() if size < SMALL_BYTES}

    def writer(self) -> PackWriter:
        """Return a writer of new packs."""
        return PackWriter(self)

    def _read_rows(self, pack: str, rows: npt.NDArray[np.int64], columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield tables that together have the rows of a pack at these ascending numbers."""
        try:
            file = _open(self.folder.uri, f"{pack}{SUFFIX}")
        except FileNotFoundError as problem:
            raise BuildError(
                f"{self.folder.uri}/{pack}{SUFFIX}: this file was removed while it was read; repeat the command"
            ) from problem
        size = file.metadata.row_group(0).num_rows
        groups, starts = np.unique(rows // size, return_index=True)
        for some, wanted in zip(
            np.split(groups, range(_READ_GROUPS, len(groups), _READ_GROUPS)),
            np.split(rows, starts[_READ_GROUPS::_READ_GROUPS]),
            strict=True,
        ):
            with _LOCK:
                table = file.read_row_groups(some.tolist(), columns=list(columns), use_threads=False)
            yield table.take(pa.array(np.searchsorted(some, wanted // size) * size + wanted % size))


class PackIndex:
    """Where every key of a folder is, as it was when it was last listed."""

    def __init__(self, folder: Folder, key: str) -> None:
        self._folder = folder
        self._key = key
        self._forget()

        self.listed = -math.inf  # when the folder was, by the monotonic clock

    def _forget(self) -> None:
        self._packs: list[str] = []
        self._starts = np.zeros(1, np.int64)  # of each pack's rows, counted over all packs; at the end, their number
        self._keys = parse_keys([])
        self._positions = np.empty(0, np.int64)  # of each key's row, counted over all packs

    def refresh(self, max_age_s: float) -> None:
        """Take in the packs that have come since, and forget those that are gone."""
        if time.monotonic() - self.listed < max_age_s:
            return
        self.listed = time.monotonic()
        names = {name.removesuffix(SUFFIX) for name in self._folder.names() if _is_pack(name)}
        if not names.issuperset(self._packs):
            self._forget()  # a swept folder: rare, so begin anew
        new = sorted(names.difference(self._packs))
        if not new:
            return
        found = [read_keys(self._folder, f"{pack}{SUFFIX}", self._key) for pack in new]
        self._packs += new
        self._starts = np.append(self._starts, self._starts[-1] + np.cumsum([len(keys) for keys in found]))
        keys = np.concatenate([self._keys, *found])
        order = np.argsort(keys, kind="stable")
        self._keys = keys[order]
        self._positions = np.append(self._positions, np.arange(len(self._positions), len(keys)))[order]

    def find(self, keys: Sequence[str]) -> list[PackRef | None]:
        """Return where each key is, None where it is not; of several rows of a key, the newest."""
        wanted = parse_keys(keys)
        with _LOCK:
            if not len(self._keys):
                return [None] * len(keys)
            at = np.searchsorted(self._keys, wanted, side="right") - 1
            is_there = (at >= 0) & (self._keys[at] == wanted)
            positions = self._positions[at]
            packs = np.searchsorted(self._starts, positions, side="right") - 1
            return [
                PackRef(self._packs[pack], row) if found else None
                for pack, row, found in zip(packs, (positions - self._starts[packs]).tolist(), is_there, strict=True)
            ]


class PackWriter:
    """Writes rows into packs; a pack is closed at PACK_BYTES, after PACK_AGE_S, or by `close`. Not thread-safe."""

    def __init__(self, packs: PackFolder) -> None:
        self._packs = packs
        self._sink: Sink | None = None

    def add(self, rows: Mapping[str, Sequence[Any]]) -> list[PackRef]:
        """Append rows, given as columns of equal length, and return where they will be once the pack is closed."""
        count = len(rows[self._packs.key])
        if not count:
            return []
        sink = self._sink = self._sink or self._create()
        for name, waiting in self._waiting.items():
            waiting.extend(rows[name])
        whole = FLUSHED_GROUPS * self._packs.rows_per_group
        while len(self._waiting[self._packs.key]) >= whole:
            self._write(whole)
        refs = [PackRef(self._name, row) for row in range(self._rows, self._rows + count)]
        self._rows += count
        if sink.stream.tell() >= PACK_BYTES or time.monotonic() - self._opened >= PACK_AGE_S:
            self.close()
        return refs

    def close(self) -> None:
        """Make what was added visible."""
        if self._sink is not None:
            self._write(self._rows)
            self._writer.add_key_value_metadata({_KEYS: base64.b85encode(b"".join(self._keys))})
            self._writer.close()
            self._sink.commit()
            self._sink = None

    def _create(self) -> Sink:
        """Begin a new pack: whole row groups go out as they fill."""
        self._name = f"{time.time_ns():016x}-{uuid.uuid4().hex[:8]}"
        sink = self._packs.folder.create(f"{self._name}{SUFFIX}")
        self._writer = _parquet_writer(sink, self._packs.schema)
        self._waiting: dict[str, list[Any]] = {name: [] for name in self._packs.schema.names}
        self._keys: list[bytes] = []
        self._rows = 0
        self._opened = time.monotonic()
        return sink

    def _write(self, rows: int) -> None:
        group = {name: waiting[:rows] for name, waiting in self._waiting.items()}
        self._waiting = {name: waiting[rows:] for name, waiting in self._waiting.items()}
        if group[self._packs.key]:
            self._keys.append(parse_keys(group[self._packs.key]).tobytes())
            table = pa.table(group, schema=self._packs.schema)
            self._writer.write_table(table, row_group_size=self._packs.rows_per_group)


def _is_pack(name: str) -> bool:
    return name.endswith(SUFFIX) and not name.startswith(".")  # as one begins that is being written


def present(refs: Iterable[PackRef | None], keys: Sequence[str]) -> list[PackRef]:
    """Return references, none of which may be missing.

    Raises:
        BuildError: one is; the message names its key.
    """
    found = list(refs)
    if None in found:
        raise BuildError(f"no value of {keys[found.index(None)]} is in the packs of this lake; build again")
    return cast(list[PackRef], found)


def parse_keys(keys: Sequence[str]) -> _Keys:
    """Return the first 16 bytes of hexadecimal keys, as N strings of bytes."""
    octets = bytes.fromhex("".join(key[: 2 * _KEY_BYTES] for key in keys))
    return np.frombuffer(octets, f"S{_KEY_BYTES}")


def read_keys(folder: Folder, name: str, key: str) -> _Keys:
    """Return the keys of a pack, in the order of its rows."""
    with _opened(folder.uri, name) as stream:
        file = pq.ParquetFile(stream)
        if _KEYS in (file.metadata.metadata or {}):
            return np.frombuffer(base64.b85decode(file.metadata.metadata[_KEYS]), f"S{_KEY_BYTES}")
        return parse_keys(file.read(columns=[key], use_threads=False)[key].to_pylist())


def remove_rows(folder: Folder, pack: str, key: str, gone: _Keys) -> None:
    """Replace a pack by one without the rows of some keys, under a name of as early a time.

    The new one is there before the old one goes, and its name follows from the old one's: done again after a kill, it
    is the same. A reader that knows rows of the old pack gets an error: it is gone.
    """
    name = _name_of(pack, [pack.encode(), *np.sort(gone).tolist()])
    with folder.open(f"{pack}{SUFFIX}") as stream:
        file = pq.ParquetFile(stream)
        size = file.metadata.row_group(0).num_rows if file.metadata.num_row_groups else 1
        left = [table for table in _left(file, size, key, gone) if table.num_rows]
        if left:
            _write_pack(folder, name, left, key, size)
    folder.delete(f"{pack}{SUFFIX}")


def merge_small(packs: PackFolder) -> None:
    """Put the small packs of a folder together where they are many. The caller works alone in the lake.

    A new pack is there before those that it is made of go, and its name follows from theirs. After a kill some rows
    are in two packs, which say the same of a key.
    """
    waiting, size = list[str](), 0
    small = packs.small()
    for name in small if len(small) > MANY else ():
        waiting, size = [*waiting, name], size + small[name]
        if size >= PACK_BYTES or name == max(small):
            _merge(packs, waiting)
            waiting, size = [], 0


def _merge(packs: PackFolder, names: Sequence[str]) -> None:
    """Replace packs by one with their rows in the order of their keys, each key once."""
    tables = []
    for name in names:
        with packs.folder.open(f"{name}{SUFFIX}") as stream:
            tables.append(pq.ParquetFile(stream).read(use_threads=False))
    table = pa.concat_tables(tables, promote_options="default").select(packs.schema.names)
    keys, first = np.unique(parse_keys(table[packs.key].to_pylist())[::-1], return_index=True)
    newest = table.num_rows - 1 - first
    if len(keys):
        merged = _name_of(names[-1], [name.encode() for name in names])
        _write_pack(packs.folder, merged, [table.take(pa.array(newest))], packs.key, packs.rows_per_group)
    for name in names:
        packs.folder.delete(f"{name}{SUFFIX}")


def _name_of(pack: str, made_of: Iterable[bytes]) -> str:
    """Return the name of a pack that is made of others: of one's time, and the same whenever it is made."""
    return f"{pack.partition('-')[0]}-{hashlib.sha256(b' '.join(made_of)).hexdigest()[:8]}"


def _write_pack(folder: Folder, name: str, tables: Sequence[pa.Table], key: str, rows_per_group: int) -> None:
    """Write tables of whole row groups as a pack."""
    sink = folder.create(f"{name}{SUFFIX}")
    with _parquet_writer(sink, tables[0].schema) as writer:
        for table in tables:
            writer.write_table(table, row_group_size=rows_per_group)
        keys = b"".join(parse_keys(table[key].to_pylist()).tobytes() for table in tables)
        writer.add_key_value_metadata({_KEYS: base64.b85encode(keys)})
    sink.commit()


def _left(file: pq.ParquetFile, size: int, key: str, gone: _Keys) -> Iterator[pa.Table]:
    """Yield the rows that stay, as row groups of one size: rows are found by their number."""
    waiting = file.schema_arrow.empty_table()
    for number in range(file.metadata.num_row_groups):
        group = file.read_row_group(number, use_threads=False)
        stays = ~np.isin(parse_keys(group[key].to_pylist()), gone)
        waiting = pa.concat_tables([waiting, group.filter(pa.array(stays))])
        while waiting.num_rows >= size:
            yield waiting.slice(0, size)
            waiting = waiting.slice(size)
    yield waiting


def _parquet_writer(sink: Sink, schema: pa.Schema) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        sink.stream,
        schema,
        compression={field.name: "none" if field.type == pa.binary() else "zstd" for field in schema},
        use_dictionary=False,
        write_statistics=False,
    )


@lru_cache(maxsize=32)
def _index_of(uri: str, key: str) -> PackIndex:
    return PackIndex(Folder(uri), key)


@lru_cache(maxsize=_OPEN_FILES)
def _open(uri: str, name: str) -> pq.ParquetFile:
    return pq.ParquetFile(_opened(uri, name))


def _opened(uri: str, name: str) -> Any:
    """Return a pack, opened; on an object store its rows are wanted in any order and many times, so blocks are held."""
    if Folder(uri).local is not None:
        return Folder(uri).open(name)
    return ObjectFile(_end(uri, name)[1], partial(_held, uri, name))


def _held(uri: str, name: str, position: int, count: int) -> bytes:
    """Return bytes of a pack as its end and its blocks hold them."""
    end, size = _end(uri, name)
    pieces, stop, end_at = [b""], position + count, size - len(end)
    while position < min(stop, end_at):
        number, start = divmod(position, _BLOCK_BYTES)
        pieces.append(_block(uri, name, number)[start : start + min(stop, end_at) - position])
        position += len(pieces[-1])
    return b"".join(pieces) + end[max(0, position - end_at) : max(0, stop - end_at)]


@cached(LRUCache(_HELD_ENDS, getsizeof=lambda found: len(found[0])), lock=threading.Lock())
def _end(uri: str, name: str) -> tuple[bytes, int]:
    return read_end(uri, name, _END_BYTES)


@cached(LRUCache(_HELD_BLOCKS, getsizeof=len), lock=threading.Lock())
def _block(uri: str, name: str, number: int) -> bytes:
    return read_range(uri, name, number * _BLOCK_BYTES, _BLOCK_BYTES)
