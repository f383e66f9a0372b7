"""Arrays that the processes of one host make once and map together: Arrow IPC files in a folder of the host.

A file holds one record whose columns are lists: a column is one array, whatever the lengths of the others, and is read
where it lies. `MULTILINK_CACHE` says where the folder is; `~/.cache/multilink` unless it is set. What is in it can
be made again at any time, and is removed when it was not used for a week.
"""

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.errors import BuildError

CACHE = "MULTILINK_CACHE"
KEPT_S = 7 * 24 * 3600.0
_SUFFIX = ".arrow"
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
        found = self.array[place]
        if isinstance(place, slice):
            return tuple(map(self.convert, found.to_pylist()))
        return self.convert(found.as_py())


def _same(value: Any) -> Any:
    return value


def cache_folder(key: str) -> Path:
    """Return a folder of this host's cache, marked as used now; those that nobody has used for a week go.

    Raises:
        BuildError: it cannot be made.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "multilink")
    folder = Path(os.environ.get(CACHE) or home).expanduser() / "mapped" / key
    try:
        is_new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        os.utime(folder)
    except OSError as problem:
        raise BuildError(f"{folder}: {problem.strerror}; set {CACHE} to a folder that can be written") from problem
    if is_new:
        _remove_unused(folder.parent)
    return folder


def _remove_unused(cache: Path) -> None:
    """Remove the folders that nobody has used for a week; what is mapped of them stays readable."""
    for folder in cache.iterdir():
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > KEPT_S:
                shutil.rmtree(folder)


def mapped(path: Path, make: Callable[[], Arrays]) -> Arrays:
    """Return the arrays of a file, which the first process that asks for it makes.

    Raises:
        BuildError: the file cannot be written.
    """
    if not path.with_suffix(_SUFFIX).exists():
        with _alone(path):
            if not path.with_suffix(_SUFFIX).exists():
                _write(path, make())
    return read(path.with_suffix(_SUFFIX))


def read(path: Path) -> Arrays:
    """Return the arrays of a file; their memory is the file's."""
    record = pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)
    return {name: record.column(name).flatten() for name in record.schema.names}


def matrix(rows: npt.NDArray[Any]) -> pa.Array:
    """Return N x d numbers as an Arrow array of N lists of d."""
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])


def numbers(array: pa.Array) -> npt.NDArray[Any]:
    """Return the numbers of an Arrow array, without a copy: N, or N x d of lists of d."""
    if not pa.types.is_fixed_size_list(array.type):
        return np.asarray(array.to_numpy())
    return np.asarray(array.flatten().to_numpy()).reshape(len(array), array.type.list_size)


def _write(path: Path, arrays: Arrays) -> None:
    columns = [pa.LargeListArray.from_arrays(pa.array([0, len(array)], pa.int64()), array) for array in arrays.values()]
    record = pa.RecordBatch.from_arrays(columns, names=list(arrays))
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, record.schema) as writer:
            writer.write_batch(record)
        temporary.rename(path.with_suffix(_SUFFIX))
    except OSError as problem:
        temporary.unlink(missing_ok=True)
        raise BuildError(f"{path}: {problem}; set {CACHE} to a folder with more room") from problem


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Let one process of this host at a time into the body; the others wait."""
    descriptor = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
