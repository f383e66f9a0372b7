"""Packs: many rows in one Parquet file, found by key and read by position, so that a lake has no file per record.

    <folder>/<pack>.parquet     at most PACK_BYTES; rows in small groups, so that one row is read without the others

Copies of images, features and the index of the raw store are kept so. A pack is written once, by one worker, under a
name of its own. It is visible only when it is whole: a killed worker loses the pack it had open and nothing else.
Many small ones are put together when a build ends (`merge_small`).
Names begin with the time, so that of several rows of one key the newest is found. No version depends on names.

A `PackIndex` knows where every key is: 24 bytes a row, read from the footers of packs, in a file that the processes of
a machine share where there are many packs.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import math
import os
import tempfile
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from cachetools import LRUCache, cached
from filelock import FileLock

from schemas.lake import Folder, Lake, Sink
from schemas.messages import BuildError
from schemas.stores import ObjectFile, read_end, read_range
from schemas.tables import travels

PACK_BYTES = 64 << 20
PACK_AGE_S = 60.0
SMALL_BYTES = PACK_BYTES // 8
RUN_PACKS = (512, 64, 8)  # whose keys are sorted together: as many as there are packs for, the oldest first
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
_MOST_ROWS = 1 << 32  # of a pack
_RUN_AGE_S = 86_400.0
_LOCK = threading.RLock()  # neither an index nor an open Parquet file may be used by two threads at once


@travels
@dataclass(frozen=True, slots=True)
class PackRef:
    """Where a row is, for good: the name of its pack and its number in it."""

    pack: str
    row: int


class _Run(NamedTuple):
    """Keys of some packs in order, and where each is: the number of its pack x _MOST_ROWS + that of its row."""

    keys: _Keys
    where: npt.NDArray[np.int64]


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
    """Where every key of a folder is, as it was when it was last listed.

    Packs are taken together in the order of their names, RUN_PACKS at a time. What is known of so many is a sorted file
    that all processes of a machine map (`_mapped_run`), so that memory holds the keys of a few packs, the newest.
    """

    def __init__(self, folder: Folder, key: str) -> None:
        self._folder = folder
        self._key = key
        self._runs: dict[tuple[str, ...], _Run] = {}  # by the names of their packs, the oldest first
        self._keys: dict[str, _Keys] = {}  # of the packs after the mapped runs
        self.listed = -math.inf  # when the folder was, by the monotonic clock

    def refresh(self, max_age_s: float) -> None:
        """Take in the packs that have come since, and forget those that are gone."""
        if time.monotonic() - self.listed < max_age_s:
            return
        self.listed = time.monotonic()
        packs = [name.removesuffix(SUFFIX) for name in self._folder.names() if _is_pack(name)]
        self._runs = {some: self._runs.get(some) or self._run(some) for some in runs_of(packs)}

    def _run(self, packs: tuple[str, ...]) -> _Run:
        if len(packs) in RUN_PACKS:
            return _mapped_run(self._folder, self._key, packs)
        known = self._keys
        self._keys = {
            pack: known[pack] if pack in known else read_keys(self._folder, pack, self._key) for pack in packs
        }
        return _sorted_run([*self._keys.values()])

    def find(self, keys: Sequence[str]) -> list[PackRef | None]:
        """Return where each key is, None where it is not; of several rows of a key, the newest."""
        wanted, refs = parse_keys(keys), dict[int, PackRef]()
        order = np.argsort(wanted, kind="stable")  # so that a run is read from its beginning to its end
        wanted = wanted[order]
        with _LOCK:
            for packs, (known, where) in self._runs.items():
                at = np.searchsorted(known, wanted, side="right") - 1
                is_there = (at >= 0) & (known[at] == wanted)
                for number, position in zip(order[is_there].tolist(), where[at[is_there]].tolist(), strict=True):
                    refs[number] = PackRef(packs[position // _MOST_ROWS], position % _MOST_ROWS)
        return [refs.get(number) for number in range(len(keys))]


def runs_of(packs: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield packs that are taken together, in their order: the longest runs first, and what is left as the last."""
    start = 0
    for size in RUN_PACKS:
        while len(packs) - start >= size:
            yield tuple(packs[start : start + size])
            start += size
    if start < len(packs):
        yield tuple(packs[start:])


def _sorted_run(keys_of_packs: Sequence[_Keys]) -> _Run:
    """Return the run of packs by their keys, in the order of their rows."""
    keys = np.concatenate(keys_of_packs)
    where = np.concatenate([np.arange(len(each)) + n * _MOST_ROWS for n, each in enumerate(keys_of_packs)])
    order = np.argsort(keys, kind="stable")
    return _Run(keys[order], where[order])


def _mapped_run(folder: Folder, key: str, packs: tuple[str, ...]) -> _Run:
    """Return the run of packs, mapped from a temporary file of this machine, which the first process makes."""
    name = hashlib.sha256("\n".join([folder.uri, *packs]).encode()).hexdigest()
    path = _folder_of_runs() / name
    with FileLock(f"{path}.lock"):
        if not path.exists():
            run = _sorted_run([read_keys(folder, pack, key) for pack in packs])
            with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as stream:
                for array in run:
                    array.tofile(stream)
            Path(stream.name).replace(path)
        count = path.stat().st_size // (_KEY_BYTES + 8)
        keys = np.memmap(path, f"S{_KEY_BYTES}", "r", shape=count)
        return _Run(keys, np.memmap(path, np.int64, "r", offset=count * _KEY_BYTES, shape=count))


def _folder_of_runs() -> Path:
    """Return the folder of this user's runs, without those older than a day: who has mapped one keeps what it has."""
    folder = Path(tempfile.gettempdir(), f"multilink-keys-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise BuildError(f"{folder}: expected a folder of this user; TMPDIR names another one")
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > _RUN_AGE_S:
                path.unlink()
    return folder


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


def pack_at(lake: Lake, path: str) -> tuple[Folder, str, str] | None:
    """Return the folder, the name and the key column of the pack at a path of a lake; None where it is none."""
    *folders, name = path.split("/")
    key = {"images": "hash", "features": "key"}.get(folders[0] if folders else "")
    return (lake.root.child(*folders), name.removesuffix(SUFFIX), key) if key and _is_pack(name) else None


def packs_with(lake: Lake, keys: Mapping[str, Iterable[str]]) -> Iterator[tuple[str, Folder, str, str, _Keys]]:
    """Yield path, folder, name and key column of each pack of a lake that has some keys, and these.

    Args:
        lake: whose copies and features are looked through.
        keys: by the name of the key column.
    """
    wanted = {column: parse_keys(sorted(some)) for column, some in keys.items()}
    for path in [f"{top}/{path}" for top in ("images", "features") for path in lake.root.child(top).files()]:
        if (found := pack_at(lake, path)) is not None and np.isin(read_keys(*found), wanted[found[2]]).any():
            yield path, *found, wanted[found[2]]


def read_keys(folder: Folder, pack: str, key: str) -> _Keys:
    """Return the keys of a pack, in the order of its rows."""
    with _opened(folder.uri, f"{pack}{SUFFIX}") as stream:
        file = pq.ParquetFile(stream)
        if _KEYS in (file.metadata.metadata or {}):
            return np.frombuffer(base64.b85decode(file.metadata.metadata[_KEYS]), f"S{_KEY_BYTES}")
        return parse_keys(file.read(columns=[key], use_threads=False)[key].to_pylist())


def remove_rows(folder: Folder, pack: str, key: str, gone: _Keys) -> None:
    """Replace a pack by one without the rows of some keys, under a name of as early a time.

    A reader that knows rows of the old pack gets an error: it is gone.
    """
    _rewrite(folder, [pack], key, gone=gone)


def merge_small(packs: PackFolder) -> None:
    """Put the small packs of a folder together where they are many. The caller works alone in the lake."""
    waiting, size = list[str](), 0
    small = packs.small()
    for name in small if len(small) > MANY else ():
        waiting, size = [*waiting, name], size + small[name]
        if size >= PACK_BYTES or name == max(small):
            _rewrite(packs.folder, waiting, packs.key, schema=packs.schema)
            waiting, size = [], 0


def _rewrite(
    folder: Folder, packs: Sequence[str], key: str, *, schema: pa.Schema | None = None, gone: _Keys | None = None
) -> None:
    """Replace packs by one with the newest row of each key, in the order of the keys, some left out.

    The new one is there before the old ones go, and its name follows from theirs: done again after a kill, it is the
    same. After a kill some rows are in two packs, which say the same of a key.
    """
    files = [pq.ParquetFile(io.BytesIO(folder.read(f"{pack}{SUFFIX}"))) for pack in packs]
    table = pa.concat_tables([file.read(use_threads=False) for file in files], promote_options="default")
    table = table.select((schema or table.schema).names)
    keys, first = np.unique(parse_keys(table[key].to_pylist())[::-1], return_index=True)
    left = ~np.isin(keys, gone) if gone is not None else np.ones(len(keys), bool)
    if left.any():
        made_of = [*(pack.encode() for pack in packs), *([] if gone is None else np.sort(gone).tolist())]
        name = f"{packs[-1].partition('-')[0]}-{hashlib.sha256(b' '.join(made_of)).hexdigest()[:8]}"
        newest = table.take(pa.array(table.num_rows - 1 - first[left]))
        with folder.create(f"{name}{SUFFIX}") as sink:
            with _parquet_writer(sink, newest.schema) as writer:
                writer.write_table(newest, row_group_size=files[0].metadata.row_group(0).num_rows)
                writer.add_key_value_metadata({_KEYS: base64.b85encode(keys[left].tobytes())})
            sink.commit()
    for pack in packs:
        folder.delete(f"{pack}{SUFFIX}")


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
