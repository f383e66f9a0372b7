"""Arrays that the processes of one host make once and map together: Arrow IPC files in a folder of the host.

A file holds one record whose columns are lists: a column is one array, whatever the lengths of the others, and is read
where it lies. Its name begins with what it was made of, so that nothing else is taken for it, and its last four bytes
are a checksum of the others: one that a crash cut, or a disk damaged, is made again. `MULTILINK_CACHE` says where the
folder is; `~/.cache/multilink` unless it is set. What is in it can be made again at any time. It is removed when it was
not used for a week, and what was used first when all takes more than `MULTILINK_CACHE_GB`, or half of the disk.

A shard is mapped as a `DocumentSet` whose columns lie in such a file. Texts become Python objects one by one, when a
document is taken; vectors are never copied but then.
"""

import fcntl
import json
import os
import shutil
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.manifest import FileEntry, Manifest
from schemas.messages import BuildError, IntegrityError, UsageError
from schemas.parts import split_parts
from schemas.versions import fingerprint
from training.data.documents import DocumentSet, RegionBank
from training.data.ragged import Ragged

CACHE, LIMIT = "MULTILINK_CACHE", "MULTILINK_CACHE_GB"
KEPT_S = 7 * 24 * 3600.0
LOOKS = 64  # of so many new files one looks for files that may go
_CHECKED = 65_536  # files that a process remembers as whole
_SUFFIX, _TAIL = ".arrow", 4
Arrays = Mapping[str, pa.Array]


class Column(Sequence[Any]):
    """The items of an Arrow array as Python objects, each made when it is asked for.

    Args:
        array: the items as they are stored.
        convert: makes of what Arrow gives for an item the item itself.
    """

    def __init__(self, array: pa.Array, convert: Callable[[Any], Any] | None = None) -> None:
        self.array = array
        self.convert = convert or _same

    def __len__(self) -> int:
        return len(self.array)

    @overload
    def __getitem__(self, place: int) -> Any: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Any, ...]: ...
    def __getitem__(self, place: int | slice) -> Any:
        items = self.array[place]
        if isinstance(place, slice):
            return tuple(map(self.convert, items.to_pylist()))
        return self.convert(items.as_py())


def _same(value: Any) -> Any:
    return value


def content_of(parts: Iterable[FileEntry]) -> str:
    """Return how the names of files begin that are made of some parts of a data set version."""
    return fingerprint([part.sha256 for part in parts])[:32]


def cache_folder(name: str = "") -> Path:
    """Return the folder of this host's mapped files, or a named folder in it, marked as used now.

    Raises:
        BuildError: it cannot be made.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "multilink")
    folder = Path(os.environ.get(CACHE) or home).expanduser() / "mapped" / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if name:
            os.utime(folder)
    except OSError as problem:
        raise BuildError(f"{folder}: {problem.strerror}; set {CACHE} to a folder that can be written") from problem
    return folder


def mapped(name: str, make: Callable[[], Arrays]) -> Arrays:
    """Return the arrays of a file, which the first process that asks for it makes.

    Raises:
        BuildError: the file cannot be written.
    """
    path = cache_folder() / (name + _SUFFIX)
    if (arrays := _read(path)) is not None:
        return arrays
    with _alone(path):
        if (arrays := _read(path)) is None:
            made = make()
            _write(path, made)
            arrays = _read(path) or made  # a cache that is too small has let it go already
    return arrays


def forget_version(manifest: Manifest) -> int:
    """Remove what this host keeps of a data set version, and return how many files that were."""
    shards = {split: split_parts(manifest, split) for split in manifest.splits if manifest.parts("documents", split)}
    contents = {content_of(shard) for parts in shards.values() for shard in parts}
    contents |= {content_of(shard.documents for shard in parts) for parts in shards.values()}
    paths = [path for path in cache_folder().iterdir() if path.name.partition("-")[0] in contents]
    for path in paths:
        path.unlink(missing_ok=True)
    return len(paths)


def _read(path: Path) -> Arrays | None:
    """Return the arrays of a file, whose memory is the file's; None of one that is not there or not whole."""
    try:
        os.utime(path)
        status = path.stat()
        check(path, status.st_ino, status.st_size)
        with pa.memory_map(str(path)) as file:
            data = file.read_buffer()
    except (OSError, IntegrityError):
        return None
    record = pa.ipc.open_file(data.slice(0, len(data) - _TAIL)).get_batch(0)
    return {name: record.column(name).flatten() for name in record.schema.names}


@lru_cache(_CHECKED)
def check(path: Path, _inode: int, size: int) -> None:
    """Raise an `IntegrityError` where the end of a file is not the checksum of the rest of it; once a process."""
    data: Any = path.read_bytes() if size <= _TAIL else np.memmap(path, np.uint8, "r")
    if size <= _TAIL or bytes(data[-_TAIL:]) != _checksum(data[:-_TAIL]):
        raise IntegrityError(f"{path}: damaged")


def _checksum(data: Any) -> bytes:
    return zlib.crc32(data).to_bytes(_TAIL, "little")


def make_room(folder: Path) -> None:
    """Remove what nobody has used for a week, and beyond the limit what was used first; what is mapped stays readable.

    Raises:
        UsageError: the limit is no number.
    """
    wanted = os.environ.get(LIMIT)
    try:
        limit = float(wanted) * 1e9 if wanted else shutil.disk_usage(folder).total / 2
    except ValueError as problem:
        raise UsageError(f"{LIMIT} = {wanted!r}: expected a number of gigabytes") from problem
    files = list[tuple[float, int, Path]]()
    for path in folder.iterdir():
        with suppress(OSError):
            files.append(((status := path.stat()).st_mtime, status.st_size, path))
    kept = 0
    for used, size, path in sorted(files, reverse=True):
        kept += size
        if time.time() - used > KEPT_S or (kept > limit and path.suffix == _SUFFIX):
            with suppress(OSError):
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def matrix(rows: npt.NDArray[Any]) -> pa.Array:
    """Return N x d numbers as an Arrow array of N lists of d."""
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])


def numbers(array: pa.Array) -> npt.NDArray[Any]:
    """Return the numbers of an Arrow array, without a copy: N, or N x d of lists of d."""
    if not pa.types.is_fixed_size_list(array.type):
        return np.asarray(array.to_numpy())
    return np.asarray(array.flatten().to_numpy()).reshape(len(array), array.type.list_size)


def _write(path: Path, arrays: Arrays) -> None:
    """Write a file; nothing is flushed to the disk, as one that is lost with the power is not whole, and made again."""
    columns = [pa.LargeListArray.from_arrays(pa.array([0, len(array)], pa.int64()), array) for array in arrays.values()]
    record = pa.RecordBatch.from_arrays(columns, names=list(arrays))
    if zlib.crc32(path.name.encode()) % LOOKS == 0:
        make_room(path.parent)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, record.schema) as writer:
            writer.write_batch(record)
        with temporary.open("ab") as file:
            file.write(_checksum(np.memmap(temporary, np.uint8, "r")))
        temporary.rename(path)
    except OSError as problem:
        temporary.unlink(missing_ok=True)
        raise BuildError(f"{path}: {problem}; set {CACHE} to a folder with more room") from problem


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Let one process of this host at a time into the body; the others wait."""
    lock = path.with_name(f"{zlib.crc32(path.name.encode()) % 256:02x}.lock")
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


_Codec = tuple[Callable[[Any], pa.Array], Callable[[pa.Array], Any]]
_REGION, _IMAGES = "region ", "images"


def _pairs(links: Any) -> Any:
    return None if links is None else np.array(links, np.int64).reshape(-1, 2)


def _links(values: Any) -> pa.Array:
    return pa.array([None if links is None else links.tolist() for links in values], pa.list_(pa.list_(pa.int64())))


def _as_json(values: Any) -> pa.Array:
    return pa.array([json.dumps(value) for value in values], pa.large_string())


def _vectors(values: Any) -> pa.Array:
    """Return a matrix; one without columns as that many nulls."""
    return matrix(values) if values.shape[1] else pa.nulls(len(values))


def _numbers(array: pa.Array) -> Any:
    return np.zeros((len(array), 0), np.float16) if pa.types.is_null(array.type) else numbers(array)


_TEXTS: _Codec = (lambda values: pa.array(values, pa.large_string()), Column)
_SETS: _Codec = (lambda values: pa.array(values.offsets), lambda array: Ragged(numbers(array)))
_NUMBERS: _Codec = (pa.array, _numbers)
_VECTORS: _Codec = (_vectors, _numbers)
_CODECS: Mapping[str, _Codec] = {
    "ids": _TEXTS,
    "texts": _TEXTS,
    "sentences": _SETS,
    "sentence_numbers": _NUMBERS,
    "sentence_vectors": _VECTORS,
    "images": _SETS,
    "image_rows": _NUMBERS,
    "image_hashes": _TEXTS,
    "image_bank": _VECTORS,
    "links": (_links, lambda array: Column(array, _pairs)),
    "roles": _TEXTS,
    "languages": _TEXTS,
    "image_jpegs": (lambda values: pa.array(values, pa.large_binary()), Column),
    "relations": (_as_json, lambda array: Column(array, json.loads)),
}
_OF_REGIONS: Mapping[str, _Codec] = {
    _IMAGES: _SETS,
    "labels": _TEXTS,
    "vectors": _VECTORS,
    "boxes": _VECTORS,
    "scores": _NUMBERS,
}


def to_arrays(documents: DocumentSet) -> Arrays:
    """Return the columns of documents, as they are read for training (classes and places of images are not)."""
    values = {name: getattr(documents, name) for name in _CODECS}
    columns = {name: _CODECS[name][0](value) for name, value in values.items() if value is not None}
    if documents.regions is not None:
        parts = {name: getattr(documents.regions, name) for name in _OF_REGIONS}
        columns |= {_REGION + name: _OF_REGIONS[name][0](value) for name, value in parts.items()}
    return columns


def from_arrays(arrays: Arrays) -> DocumentSet:
    """Return documents over the columns of `to_arrays`."""
    missing = {each.name: None for each in fields(DocumentSet) if each.name in _CODECS}
    columns: dict[str, Any] = missing | {name: _CODECS[name][1](arrays[name]) for name in _CODECS if name in arrays}
    if _REGION + _IMAGES in arrays:
        columns["regions"] = RegionBank(
            **{name: codec[1](arrays[_REGION + name]) for name, codec in _OF_REGIONS.items()}
        )
    return DocumentSet(**columns)
