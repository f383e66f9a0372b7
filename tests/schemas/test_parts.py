"""Rows of a part are read from their row groups alone, in the order asked for; vectors have the range of all parts."""

import hashlib
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from schemas.features import Storage, vectors_to_column
from schemas.lake import Folder
from schemas.manifest import FileEntry
from schemas.messages import IntegrityError
from schemas.parts import VectorRange, merged, noted, range_of, read_part

ROWS = 100
READ_ROW_GROUPS = pq.ParquetFile.read_row_groups


def written(folder: Path, rows: int = ROWS) -> tuple[Folder, FileEntry]:
    table = pa.table({"number": np.arange(ROWS), "name": [f"no. {row}" for row in range(ROWS)]})
    pq.write_table(table, folder / "part.parquet", row_group_size=16)
    data = (folder / "part.parquet").read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    return Folder(str(folder)), FileEntry(path="part.parquet", bytes=len(data), sha256=digest, rows=rows)


@pytest.mark.parametrize(
    ("rows", "groups"),
    [([0], 1), ([99], 1), ([15, 16], 2), ([17, 3, 17, 98], 3), ([], 0), (list(range(ROWS)), 7)],
)
def test_rows_are_read_of_their_row_groups_alone(tmp_path: Path, rows: list[int], groups: int) -> None:
    with patch.object(pq.ParquetFile, "read_row_groups", autospec=True, side_effect=READ_ROW_GROUPS) as read:
        found = read_part(*written(tmp_path), ["name"], rows=rows)
    assert found.to_pydict() == {"name": [f"no. {row}" for row in rows]}
    assert sum(len(call.args[1]) for call in read.call_args_list) == groups


def test_a_part_with_another_number_of_rows_is_damaged(tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match="100 rows, the manifest has 99"):
        read_part(*written(tmp_path, 99), ["name"], rows=[1])


FLOATS = st.floats(-100, 100, width=32)


@given(arrays.arrays(np.float32, st.tuples(st.integers(1, 12), st.just(3)), elements=FLOATS), st.integers(1, 5))
@example(np.array([[-0.0, 0, 0], [0, 0, 0]], np.float32), 1)
def test_parts_give_the_range_of_all(matrix: np.ndarray, size: int) -> None:
    parts = [matrix[start : start + size] for start in range(0, len(matrix), size)]
    found = merged(range_of(vectors_to_column(part, Storage.FLOAT32)) for part in parts)
    lengths = np.sqrt((matrix.astype(np.float64) ** 2).sum(axis=1))
    assert (found.count, found.not_finite) == (len(matrix), 0)
    assert (found.least, found.most, found.mean) == pytest.approx((lengths.min(), lengths.max(), lengths.mean()))
    assert found.is_constant == (len(matrix) > 1 and bool((matrix == matrix[0]).all()))


def test_what_is_not_finite_is_counted_and_in_no_length() -> None:
    values = pa.array([[1.0, 0.0], [np.inf, 0.0], [0.0, np.nan], [3.0, 4.0]], pa.list_(pa.float32(), 2))
    found = range_of(pa.chunked_array([values]))
    assert (found.count, found.not_finite, found.least, found.most, found.mean) == (4, 2, 1.0, 5.0, 3.0)
    assert range_of(values.slice(1, 2)) == VectorRange(count=2, not_finite=2)


def test_lists_of_vectors_are_measured_as_their_vectors() -> None:
    kind = pa.list_(pa.list_(pa.float16(), 2))
    rows = pa.array([[np.array([3, 4], np.float16)], [], [np.array([6, 8], np.float16)] * 2], kind)
    assert range_of(rows).count == 3 and range_of(rows).most == 10


def test_nothing_has_no_range_and_notes_are_rounded() -> None:
    assert merged([]) == VectorRange() and not VectorRange().is_constant
    third = VectorRange(count=3, least=1 / 3, most=2 / 3, mean=0.5)
    assert noted([{"b": third}, {"a": VectorRange()}])["b"] | {"same": ""} == {
        "count": 3, "not_finite": 0, "least": 0.333333, "most": 0.666667, "mean": 0.5, "same": "",
    }  # fmt: skip
