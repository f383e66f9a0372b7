"""Vectors a user already has: rows of a `features.npy`, looked up instead of extracted.

An image without pixels has the address `row:<n>`. The array is memory-mapped, so opening it is cheap and its size does
not matter. What cannot be stored as float16 is refused row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from schemas.errors import ConfigError, NotFoundError
from schemas.failures import Reason
from schemas.feature_arrays import storable
from schemas.features import Storage
from schemas.versions import digest_stream, fingerprint

ROW = "row:"
Vectors = npt.NDArray[np.float16]  # N x d


class VectorRejected(Exception):  # noqa: N818 - an outcome with a reason, not a fault of the program
    """A row that is not there, or whose values cannot be stored."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.reason = Reason.FEATURE_MISSING
        self.message = message


class GivenVectors:
    """The rows of one array file under the name of an extractor."""

    def __init__(self, name: str, path: str) -> None:
        """Open `path`, an `.npy` file of rows x dimensions real numbers.

        Raises:
            NotFoundError: there is no such file.
            ConfigError: it is no such array.
        """
        self.name = name
        self.path = path
        self._array = _open(path)

    @property
    def dimensions(self) -> int:
        return int(self._array.shape[1])

    def __len__(self) -> int:
        return len(self._array)

    def fingerprint(self) -> str:
        """Return the SHA-256 (hex) of the file's digest and how values are stored; reads the whole file once."""
        return self._fingerprint

    def vector(self, row: int) -> Vectors:
        """Return one row as d float16 values.

        Raises:
            VectorRejected: there is no such row, or one of its values is not finite as float16.
        """
        if not 0 <= row < len(self):
            raise VectorRejected(f"row {row}: the feature array has {len(self)} rows")
        values = self._array[row : row + 1]
        if not storable(values, Storage.FLOAT16)[0]:
            raise VectorRejected(f"row {row}: a value is not finite, or beyond float16's 65504")
        return np.asarray(values[0], np.float16)

    def rows(self, rows: Sequence[int]) -> Vectors:
        """Return rows as an N x d float16 matrix, in the order asked for; see `vector`."""
        matrix = np.empty((len(rows), self.dimensions), np.float16)
        for place, row in enumerate(rows):
            matrix[place] = self.vector(row)
        return matrix

    def exact_rows(self, rows: Sequence[int]) -> npt.NDArray[np.float32]:
        """Return rows as an N x d float32 matrix, in the order asked for; refused are the same as by `vector`."""
        for row in rows:
            self.vector(row)
        return np.asarray(self._array[list(rows)], np.float32).reshape(-1, self.dimensions)

    @cached_property
    def _fingerprint(self) -> str:
        with Path(self.path).open("rb") as stream:
            return fingerprint({"array": digest_stream(stream), "stored": "float16"})


@lru_cache(maxsize=4)
def given_vectors(name: str, path: str) -> GivenVectors:
    """Return this process's one view of an array file (see `GivenVectors`)."""
    return GivenVectors(name, path)


def row_of(address: str) -> int:
    """Return n of the address `row:<n>`.

    Raises:
        VectorRejected: the address is of another form.
    """
    digits = address.removeprefix(ROW)
    if not address.startswith(ROW) or not (digits.isascii() and digits.isdigit()):
        raise VectorRejected(f"{address}: expected row:<number>")
    return int(digits)


def _open(path: str) -> npt.NDArray[np.floating]:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError as error:
        raise NotFoundError(f"{path}: there is no such feature array") from error
    except (ValueError, EOFError) as error:
        raise ConfigError(f"{path}: expected an .npy array of numbers, found something else") from error
    if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind not in "fiu":
        raise ConfigError(f"{path}: expected rows x dimensions of real numbers, found {_describe(array)}")
    return array


def _describe(array: object) -> str:
    return f"{array.shape} of {array.dtype}" if isinstance(array, np.ndarray) else type(array).__name__
