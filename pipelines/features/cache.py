"""Features that were computed once, in the lake: one small file per extractor and picture, or document.

    <lake>/features/<extractor>/<first 16 digits of the fingerprint>/<two digits>/<key>

The fingerprint is that of the extractor and of all else a value depends on (`folder_of`); the key is the content hash
of a picture, or the digest of a document's texts. A value follows from both, so that builds and workers may share the
folder and write the same entry at once.

An entry begins with its own SHA-256: one that is cut short or damaged is as good as none, and is computed anew. Nothing
is forced to disk before the entry gets its name, for the same reason. A file a picture costs 0.1 ms to write, against
10 ms and more of computing its value on a CPU (a file of 64 pictures: 0.04 ms each, but to be found it needs an index
of all files in each worker, and the picture itself is a file of its own already).

    SHA-256 of the rest | length of the header, 4 bytes | header, JSON | arrays, little-endian, one after the other
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from pipelines.features.values import Classes, Matrix, Regions, Rejected, Vector
from schemas.errors import BuildError
from schemas.lake import Folder, Lake
from schemas.versions import canonical_json, fingerprint

Kept = Vector | Matrix | Regions | Classes | Rejected
FOLDER_DIGITS = 16
_FILES_AT_ONCE = 8
_DIGEST_BYTES = 32
_LENGTH = struct.Struct("<I")
Array = npt.NDArray[Any]
T = TypeVar("T")
R = TypeVar("R")


class BrokenEntryError(Exception):
    """Bytes that are not those that were written."""


@dataclass(frozen=True, slots=True)
class FeatureCache:
    """The entries of one extractor, under one fingerprint."""

    folder: Folder

    def find(self, key: str) -> Kept | None:
        """Return the value of a key, or None where it has none that is whole."""
        try:
            return decode_entry(self.folder.read(_place(key)))
        except (FileNotFoundError, BrokenEntryError):
            return None

    def read(self, key: str) -> Kept:
        """Return the value of a key that was written before.

        Raises:
            BuildError: it is not there any more, or was damaged since.
        """
        found = self.find(key)
        if found is None:
            raise BuildError(f"{self.folder.uri}/{_place(key)}: a feature that was there is gone; build again")
        return found

    def write(self, key: str, value: Kept) -> None:
        """Keep a value, atomically; what was there is replaced."""
        self.folder.write(_place(key), encode_entry(value), is_checked=True)

    def find_all(self, keys: Sequence[str]) -> list[Kept | None]:
        """Return `find` of each key, in order, several at once."""
        return at_once(self.find, keys)

    def read_all(self, keys: Sequence[str]) -> list[Kept]:
        """Return `read` of each key, in order, several at once."""
        return at_once(self.read, keys)


def at_once(act: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Return `act` of each item, in order, several under way at once: a lake may be far away."""
    if len(items) <= 1:
        return [act(item) for item in items]
    with ThreadPoolExecutor(min(_FILES_AT_ONCE, len(items))) as pool:
        return list(pool.map(act, items))


def folder_of(lake: Lake, extractor: str, depends_on: Mapping[str, Any]) -> Folder:
    """Return the folder of an extractor's entries.

    Args:
        extractor: its name.
        depends_on: everything besides the key that a value follows from, as JSON-ready values.
    """
    return lake.features.child(extractor, fingerprint(dict(depends_on))[:FOLDER_DIGITS])


def texts_key(texts: Iterable[str]) -> str:
    """Return the key of a document's texts: the SHA-256 (hex) of their JSON."""
    return hashlib.sha256(canonical_json(list(texts)).encode()).hexdigest()


def encode_entry(value: Kept) -> bytes:
    """Return an entry's bytes; vectors of regions are kept as float16, as shards hold them."""
    if isinstance(value, Rejected):
        return _seal({"rejected": value.message}, [])
    if isinstance(value, Regions):
        with np.errstate(over="ignore"):  # what does not fit becomes infinite, and is found so when it is read
            arrays = [value.boxes.astype("<f4"), value.scores.astype("<f4"), value.vectors.astype("<f2")]
        return _seal({"regions": list(value.labels)}, arrays)
    if isinstance(value, Classes):
        return _seal({"classes": list(value.labels)}, [value.probabilities.astype("<f4")])
    return _seal({}, [value.astype("<f4")])


def decode_entry(data: bytes) -> Kept:
    """Return the value of an entry's bytes.

    Raises:
        BrokenEntryError: they are not what was written.
    """
    header, arrays = _open(data)
    if "rejected" in header:
        return Rejected(header["rejected"])
    if "regions" in header:
        boxes, scores, vectors = arrays
        return Regions(boxes, tuple(header["regions"]), scores, vectors.astype(np.float32))
    if "classes" in header:
        return Classes(tuple(header["classes"]), arrays[0])
    return arrays[0]


def _seal(header: dict[str, Any], arrays: list[Array]) -> bytes:
    described = header | {"arrays": [[array.dtype.str, list(array.shape)] for array in arrays]}
    text = canonical_json(described).encode()
    rest = b"".join([_LENGTH.pack(len(text)), text, *(array.tobytes() for array in arrays)])
    return hashlib.sha256(rest).digest() + rest


def _open(data: bytes) -> tuple[dict[str, Any], list[Array]]:
    rest = memoryview(data)[_DIGEST_BYTES:]
    if hashlib.sha256(rest).digest() != data[:_DIGEST_BYTES]:
        raise BrokenEntryError
    (length,) = _LENGTH.unpack_from(rest)
    header = json.loads(bytes(rest[_LENGTH.size : _LENGTH.size + length]))
    place, arrays = _LENGTH.size + length, []
    for kind, shape in header["arrays"]:
        count = math.prod(shape)
        arrays.append(np.frombuffer(rest, kind, count, place).reshape(shape))
        place += count * np.dtype(kind).itemsize
    return header, arrays


def _place(key: str) -> str:
    return f"{key[:2]}/{key}"
