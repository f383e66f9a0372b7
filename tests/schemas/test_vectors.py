import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import IntegrityError
from schemas.tables import vector_type
from schemas.vectors import arrow_to_ragged, arrow_to_vectors, pack_vectors, ragged_to_arrow, vectors_to_arrow


@given(st.integers(0, 5), st.integers(1, 7), st.integers(0, 3))
@settings(max_examples=30, deadline=None)
def test_vectors_come_back_from_arrow(count: int, dimensions: int, skip: int) -> None:
    matrix = np.random.default_rng(count).standard_normal((count, dimensions)).astype(np.float16)
    column = vectors_to_arrow(matrix)
    assert column.type == vector_type(dimensions)
    np.testing.assert_array_equal(arrow_to_vectors(column), matrix)
    np.testing.assert_array_equal(arrow_to_vectors(column.slice(skip)), matrix[skip:])
    chunked = pa.chunked_array([column, column.slice(skip)])
    np.testing.assert_array_equal(arrow_to_vectors(chunked), np.concatenate([matrix, matrix[skip:]]))


def test_vectors_are_not_copied() -> None:
    matrix = np.arange(12, dtype=np.float16).reshape(4, 3)
    assert np.shares_memory(arrow_to_vectors(vectors_to_arrow(matrix)), matrix)


@given(st.lists(st.integers(0, 4), max_size=6), st.integers(0, 3))
@settings(max_examples=30, deadline=None)
def test_ragged_vectors_come_back_from_arrow(lengths: list[int], skip: int) -> None:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    matrix = np.random.default_rng(0).standard_normal((offsets[-1], 3)).astype(np.float16)
    column = ragged_to_arrow(matrix, offsets)
    assert column.type == pa.list_(vector_type(3))
    found, found_offsets = arrow_to_ragged(column)
    np.testing.assert_array_equal(found, matrix)
    np.testing.assert_array_equal(found_offsets, offsets)
    skip = min(skip, len(lengths))
    found, found_offsets = arrow_to_ragged(column.slice(skip))
    np.testing.assert_array_equal(found, matrix[offsets[skip] :])
    np.testing.assert_array_equal(found_offsets, offsets[skip:] - offsets[skip])


def test_vectors_come_back_from_parquet() -> None:
    matrix = np.random.default_rng(0).standard_normal((50, 8)).astype(np.float16)
    offsets = np.array([0, 0, 20, 50])
    flat = pa.table({"vector": vectors_to_arrow(matrix)})
    ragged = pa.table({"vectors": ragged_to_arrow(matrix, offsets)})
    for table in (flat, ragged):
        stream = io.BytesIO()
        pq.write_table(table, stream, row_group_size=16)
        read = pq.read_table(io.BytesIO(stream.getvalue()))
        assert read.schema == table.schema
        assert read.equals(table)
    assert arrow_to_vectors(pq.read_table(_parquet(flat)).column("vector")).tobytes() == matrix.tobytes()
    found, found_offsets = arrow_to_ragged(pq.read_table(_parquet(ragged)).column("vectors"))
    assert (found.tobytes(), found_offsets.tolist()) == (matrix.tobytes(), offsets.tolist())


def _parquet(table: pa.Table) -> io.BytesIO:
    stream = io.BytesIO()
    pq.write_table(table, stream)
    stream.seek(0)
    return stream


def test_nulls_are_refused() -> None:
    with pytest.raises(IntegrityError, match="1 nulls"):
        arrow_to_vectors(pa.array([[1.0, 2.0], None], type=vector_type(2)))
    with pytest.raises(IntegrityError, match="1 nulls"):
        arrow_to_vectors(pa.array([[1.0, None]], type=vector_type(2)))
    with pytest.raises(IntegrityError, match="1 nulls"):
        arrow_to_ragged(pa.array([None, []], type=pa.list_(vector_type(2))))


def test_wrong_matrices_are_refused() -> None:
    with pytest.raises(TypeError, match="float16"):
        vectors_to_arrow(np.zeros((2, 2), np.float32))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="offsets"):
        ragged_to_arrow(np.zeros((2, 2), np.float16), np.array([0, 1]))


def test_rows_beyond_float16_are_marked() -> None:
    matrix = np.array([[1.0, -65504.0], [65520.0, 0.0], [np.nan, 0.0], [np.inf, 1.0], [1e-9, 2.0]], np.float32)
    packed, is_valid = pack_vectors(matrix)
    assert packed.dtype == np.float16
    assert is_valid.tolist() == [True, False, False, False, True]
