"""An image as it travels through a build: what is known of it, and where its 256-px copy is.

Pictures never travel between workers: their copies are in packs (`<lake>/images/<method>/`), and a `PackedImage` says
in which row. An image without pixels has the address `row:<n>`: its vector is a row of a `features.npy` that the user
already has, looked up instead of extracted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from pipelines.images import inspect
from pipelines.images.claims import claim_libraries
from pipelines.packs import PackFolder, PackRef
from pipelines.settings import FingerprintName, ImagesConfig
from schemas.codecs import ImageRejected, picture_libraries
from schemas.documents import COPY_SCHEMA, Image
from schemas.errors import ConfigError, NotFoundError
from schemas.failures import Reason
from schemas.features import Storage, storable
from schemas.lake import Lake
from schemas.tables import travels
from schemas.versions import digest_within
from schemas.versions import fingerprint as digest_of

ROWS_PER_GROUP = 32  # of some 15 KB each: one copy is read without many others, and footers stay small
_DIGITS = 16
_CODE = ("pipelines.images.", "schemas.codecs.", "schemas.metadata.", "schemas.rights.")  # makes a copy of a picture


@travels
@dataclass(frozen=True, slots=True)
class PackedImage:
    """What is known of an image.

    Attributes:
        copy: where its copy is; None: it has no pixels (a row of a feature array).
        retrieved: when it was fetched, ISO 8601 in UTC; None: it was not.
        landed: address that gave it, where its own leads to another.
    """

    image: Image
    copy: PackRef | None = None
    retrieved: str | None = None
    landed: str | None = None


def copy_packs(lake: Lake, config: ImagesConfig, fingerprint: FingerprintName) -> PackFolder:
    """Return the packs of the copies that these settings give.

    The folder's name follows from all that a copy depends on: what is accepted, which fingerprint is computed, the
    libraries, and the code. So what is found there is what inspecting the picture anew would give.
    """
    depends_on = {
        "config": config.of_copies,
        "fingerprint": str(fingerprint),
        "libraries": picture_libraries() | claim_libraries() | inspect.fingerprint_libraries(fingerprint),
        "code": copy_code(),
    }
    return PackFolder(lake.images.child(digest_of(depends_on)[:_DIGITS]), COPY_SCHEMA, "hash", ROWS_PER_GROUP)


def copy_code() -> str:
    """Return the SHA-256 (hex) of the code that makes a copy of a picture, and reads what else its file says."""
    return digest_within(inspect.__name__, *_CODE)


@lru_cache(maxsize=4)
def given_array(path: str) -> npt.NDArray[np.floating]:
    """Return this process's one view, mapped into memory, of an `.npy` file of rows x dimensions real numbers.

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


def given_vector(row: int, path: str) -> npt.NDArray[np.floating]:
    """Return the d numbers of a row.

    Raises:
        ImageRejected: there is no such row, or a value is not finite as float16.
    """
    array = given_array(path)
    if row >= len(array):
        raise ImageRejected(Reason.FEATURE_MISSING, f"row {row}: the feature array has {len(array)} rows")
    vector: npt.NDArray[np.floating] = array[row]
    if not storable(vector[None], Storage.FLOAT16)[0]:
        raise ImageRejected(Reason.FEATURE_MISSING, f"row {row}: a value is not finite, or beyond float16's 65504")
    return vector
