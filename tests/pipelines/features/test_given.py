"""Vectors a user already has, by row."""

from pathlib import Path

import numpy as np
import pytest

from pipelines.features.given import GivenVectors, VectorRejected, row_of
from schemas.errors import ConfigError, NotFoundError
from schemas.failures import Reason


def saved(folder: Path, array: np.ndarray) -> str:
    np.save(folder / "features.npy", array)
    return str(folder / "features.npy")


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.int32])
def test_rows_are_looked_up_as_float16(tmp_path: Path, kind: type) -> None:
    array = np.arange(12).reshape(4, 3).astype(kind)
    given = GivenVectors("released", saved(tmp_path, array))
    assert (given.name, given.dimensions, len(given)) == ("released", 3, 4)
    rows = given.rows([2, 0, 2])
    assert rows.dtype == np.float16
    assert rows.tolist() == [[6, 7, 8], [0, 1, 2], [6, 7, 8]]


def test_rows_are_looked_up_exactly(tmp_path: Path) -> None:
    array = np.array([[1.1, 2.2], [3.3, 7e4]])
    given = GivenVectors("released", saved(tmp_path, array))
    rows = given.exact_rows([0, 0])
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows, array[[0, 0]].astype(np.float32))
    assert given.exact_rows([]).shape == (0, 2)
    with pytest.raises(VectorRejected, match="row 1"):
        given.exact_rows([0, 1])


def test_a_bad_row_fails_alone(tmp_path: Path) -> None:
    array = np.array([[1.0, 2.0], [7e4, 0.0], [np.nan, 0.0], [65504.0, -65504.0]], np.float32)
    given = GivenVectors("released", saved(tmp_path, array))
    assert given.vector(0).tolist() == [1, 2]
    assert given.vector(3).tolist() == [65504, -65504]
    for row in (1, 2, 4, -1):
        with pytest.raises(VectorRejected, match=f"row {row}") as caught:
            given.vector(row)
        assert caught.value.reason == Reason.FEATURE_MISSING


def test_addresses_name_rows() -> None:
    assert row_of("row:12") == 12
    for address in ("12", "row:", "row:-1", "row:x", "https://example.org/12", "row:²"):
        with pytest.raises(VectorRejected, match="expected row:<number>"):
            row_of(address)


def test_the_fingerprint_follows_the_values(tmp_path: Path) -> None:
    array = np.zeros((2, 2), np.float32)
    first = GivenVectors("released", saved(tmp_path, array)).fingerprint()
    assert first == GivenVectors("other", saved(tmp_path, array)).fingerprint()
    assert first != GivenVectors("released", saved(tmp_path, array + 1)).fingerprint()


def test_what_is_no_matrix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such feature array"):
        GivenVectors("released", str(tmp_path / "absent.npy"))
    with pytest.raises(ConfigError, match="rows x dimensions"):
        GivenVectors("released", saved(tmp_path, np.zeros(3)))
    with pytest.raises(ConfigError, match="rows x dimensions"):
        GivenVectors("released", saved(tmp_path, np.array([["a", "b"]])))
    (tmp_path / "text.npy").write_text("no array")
    with pytest.raises(ConfigError, match=r"expected an \.npy array"):
        GivenVectors("released", str(tmp_path / "text.npy"))
