"""Float16 vectors in Arrow columns: whole matrices between numpy and Arrow, without touching single values."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.errors import IntegrityError
from schemas.tables import vector_type

Vectors = npt.NDArray[np.float16]  # N x d
Offsets = npt.NDArray[np.int64]  # N + 1, from 0: rows offsets[i] : offsets[i + 1] belong to list i


def pack_vectors(matrix: npt.NDArray[np.floating]) -> tuple[Vectors, npt.NDArray[np.bool_]]:
    """Return an N x d matrix as float16, and for each row whether it has only finite float16 values.

    A value beyond +-65504 overflows: its row is not valid, and must not be stored.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        packed = np.ascontiguousarray(matrix, dtype=np.float16)
    return packed, np.asarray(np.isfinite(packed).all(axis=1))


def vectors_to_arrow(matrix: Vectors) -> pa.FixedSizeListArray:
    """Return the rows of an N x d float16 matrix as a column of `vector_type(d)`; a contiguous matrix is not copied.

    Raises:
        TypeError: the matrix is not float16 (`pack_vectors` makes it so, and says which rows overflow).
    """
    if matrix.dtype != np.float16 or matrix.ndim != 2:
        raise TypeError(f"expected an N x d matrix of float16, found {matrix.ndim} axes of {matrix.dtype}")
    values = pa.array(np.ascontiguousarray(matrix).reshape(-1), type=pa.float16())
    return pa.FixedSizeListArray.from_arrays(values, type=vector_type(matrix.shape[1]))


def arrow_to_vectors(column: pa.Array | pa.ChunkedArray) -> Vectors:
    """Return a column of `vector_type(d)` as an N x d float16 matrix, without copying where it is one chunk.

    The matrix may be read-only.

    Raises:
        IntegrityError: a vector or a value is null.
    """
    array = _one_chunk(column)
    values = array.flatten()
    if array.null_count or values.null_count:
        raise IntegrityError(f"expected vectors without nulls, found {array.null_count + values.null_count} nulls")
    flat: Vectors = values.to_numpy(zero_copy_only=True)
    return flat.reshape(len(array), array.type.list_size)


def ragged_to_arrow(matrix: Vectors, offsets: Offsets) -> pa.ListArray:
    """Return a column of lists of vectors: list `i` holds rows `offsets[i]:offsets[i + 1]` of an R x d matrix."""
    if offsets[0] != 0 or offsets[-1] != len(matrix) or (np.diff(offsets) < 0).any():
        raise ValueError(f"expected offsets that rise from 0 to {len(matrix)}, found {offsets[0]}..{offsets[-1]}")
    return pa.ListArray.from_arrays(pa.array(offsets, type=pa.int32()), vectors_to_arrow(matrix))


def arrow_to_ragged(column: pa.Array | pa.ChunkedArray) -> tuple[Vectors, Offsets]:
    """Return a column of lists of vectors as its R x d matrix and N + 1 offsets (see `ragged_to_arrow`).

    Raises:
        IntegrityError: a list, a vector or a value is null.
    """
    array = _one_chunk(column)
    if array.null_count:
        raise IntegrityError(f"expected lists of vectors without nulls, found {array.null_count} nulls")
    offsets = array.offsets.to_numpy().astype(np.int64)
    rows = array.values.slice(offsets[0], offsets[-1] - offsets[0])
    return arrow_to_vectors(rows), offsets - offsets[0]


def _one_chunk(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
