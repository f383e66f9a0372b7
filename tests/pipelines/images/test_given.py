"""Vectors a user already has, by row."""

from pathlib import Path

import numpy as np
import pytest

from pipelines.images.inspect import given_array, given_vector
from schemas.codecs import ImageRejected
from schemas.errors import ConfigError, NotFoundError
from schemas.failures import Reason


def saved(folder: Path, array: np.ndarray) -> str:
    np.save(folder / "features.npy", array)
    return str(folder / "features.npy")


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.int32])
def test_rows_are_looked_up_as_they_are(tmp_path: Path, kind: type) -> None:
    path = saved(tmp_path, np.arange(12).reshape(4, 3).astype(kind))
    assert given_vector(2, path).tolist() == [6, 7, 8]
    assert given_vector(0, path).dtype == kind


def test_a_bad_row_fails_alone(tmp_path: Path) -> None:
    array = np.array([[1.0, 2.0], [7e4, 0.0], [np.nan, 0.0], [65504.0, -65504.0]], np.float32)
    path = saved(tmp_path, array)
    assert given_vector(3, path).tolist() == [65504, -65504]
    for row in (1, 2, 4):
        with pytest.raises(ImageRejected, match=f"row {row}: ") as caught:
            given_vector(row, path)
        assert caught.value.reason == Reason.FEATURE_MISSING


def test_what_is_no_matrix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such feature array"):
        given_array(str(tmp_path / "absent.npy"))
    for name, array in (("flat", np.zeros(3)), ("text", np.array([["a", "b"]]))):
        np.save(tmp_path / f"{name}.npy", array)
        with pytest.raises(ConfigError, match="rows x dimensions"):
            given_array(str(tmp_path / f"{name}.npy"))
    (tmp_path / "broken.npy").write_text("no array")
    with pytest.raises(ConfigError, match=r"expected an \.npy array"):
        given_array(str(tmp_path / "broken.npy"))
