"""Rows held as arrays, one a column: what travels between the steps of dedupe and of splits in place of elements.

A record type is a dataclass whose fields are columns of one length; `Columns` gives it what every table needs. Hashes
and fingerprints are columns of bytes of one width, which numpy sorts, searches and compares as whole values.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.bytes_]
Numbers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
Texts = npt.NDArray[np.object_]  # of str
Words = npt.NDArray[np.uint64]  # N x W

_DTYPES = {"Bytes": "S1", "Numbers": "i8", "Reals": "f8", "Texts": "O"}  # of a column without rows
_MIXER = np.uint64(0x9E3779B97F4A7C15)  # odd: multiplying by it spreads the low bits over the high ones


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows as arrays of one length; every field of a subclass is `Bytes`, `Numbers`, `Reals` or `Texts`."""

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))

    def take(self, rows: npt.NDArray[np.integer] | npt.NDArray[np.bool_]) -> Self:
        """Return the rows at some indices, in their order, or those that a mask selects."""
        return type(self)(*(getattr(self, field.name)[rows] for field in fields(self)))

    @classmethod
    def concatenate(cls, parts: Iterable[Self]) -> Self:
        """Return the rows of all parts; of none, a table without rows."""
        tables = list(parts)
        empty = {field.name: np.empty(0, _DTYPES[str(field.type)]) for field in fields(cls)}
        return cls(*(np.concatenate([none, *(getattr(t, name) for t in tables)]) for name, none in empty.items()))

    def divide(self, values: Bytes | Numbers, count: int) -> Iterator[tuple[int, Self]]:
        """Yield (partition, its rows) for each of `count` partitions that has any: rows of equal values are in one."""
        words = np.bitwise_xor.reduce(words_of(values), axis=1)
        partitions = ((words * _MIXER) >> np.uint64(32)) % np.uint64(count)
        order = np.argsort(partitions, kind="stable")
        edges = np.searchsorted(partitions[order], np.arange(count + 1))
        for partition in np.flatnonzero(np.diff(edges)).tolist():
            yield partition, self.take(order[edges[partition] : edges[partition + 1]])


def from_hex(texts: Sequence[str]) -> Bytes:
    """Return texts of hexadecimal digits, all of one length."""
    octets = bytes.fromhex("".join(texts))
    return np.frombuffer(octets, f"S{len(octets) // max(1, len(texts)) or 1}")


def to_hex(values: Bytes) -> list[str]:
    """Return each value in hexadecimal digits."""
    digits, size = values.tobytes().hex(), 2 * values.itemsize
    return [digits[start : start + size] for start in range(0, len(digits), size)]


def words_of(values: Bytes | Numbers) -> Words:
    """Return values of a multiple of 8 bytes as N x W words, the most significant first."""
    words = np.ascontiguousarray(values).view(">u8") if len(values) else np.empty(0)
    return words.astype(np.uint64).reshape(len(values), max(1, values.itemsize // 8))


def starts_of_runs(*columns: npt.NDArray[np.generic]) -> Numbers:
    """Return the first row of each run of rows that are equal in every column."""
    is_new = np.ones(len(columns[0]), np.bool_)
    is_new[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return np.flatnonzero(is_new)
