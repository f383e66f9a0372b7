"""Vectors a user already has: rows of a `features.npy`, looked up instead of extracted.

An image without pixels has the address `row:<n>`. The array is memory-mapped, so opening it is cheap and its size does
not matter. What cannot be stored as float16 is refused row by row.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from schemas.codecs import ImageRejected
from schemas.errors import ConfigError, NotFoundError
from schemas.failures import Reason
from schemas.features import Storage, storable

ROW = "row:"


@lru_cache(maxsize=4)
def given_array(path: str) -> npt.NDArray[np.floating]:
    """Return this process's one view of an `.npy` file of rows x dimensions real numbers.

    Raises:
        NotFoundError: there is no such file.
        ConfigError: it is no such array.
    """
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError as error:
        raise NotFoundError(f"{path}: there is no such feature array") from error
    except (ValueError, EOFError) as error:
        raise ConfigError(f"{path}: expected an .npy array of numbers, found something else") from error
    if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind not in "fiu":
        found = f"{array.shape} of {array.dtype}" if isinstance(array, np.ndarray) else type(array).__name__
        raise ConfigError(f"{path}: expected rows x dimensions of real numbers, found {found}")
    return array


def given_vector(address: str, path: str) -> npt.NDArray[np.floating]:
    """Return the d numbers of the row that the address `row:<n>` names.

    Raises:
        ImageRejected: the address is of another form, there is no such row, or a value is not finite as float16.
    """
    array, digits = given_array(path), address.removeprefix(ROW)
    if not address.startswith(ROW) or not (digits.isascii() and digits.isdigit()):
        raise ImageRejected(Reason.FEATURE_MISSING, f"{address}: expected row:<number>")
    if int(digits) >= len(array):
        raise ImageRejected(Reason.FEATURE_MISSING, f"{address}: the feature array has {len(array)} rows")
    vector: npt.NDArray[np.floating] = array[int(digits)]
    if not storable(vector[None], Storage.FLOAT16)[0]:
        raise ImageRejected(Reason.FEATURE_MISSING, f"{address}: a value is not finite, or beyond float16's 65504")
    return vector
