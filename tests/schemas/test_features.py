"""Feature columns: every storage and kind reads back, and a storage loses no more than its arithmetic allows."""

import io
import json
from dataclasses import asdict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from schemas.configs import restore
from schemas.documents import document_schema, image_schema
from schemas.features import (
    FeatureColumn,
    FeatureKind,
    Storage,
    column_to_classes,
    column_to_regions,
    column_to_vectors,
    quantise,
    storable,
    vectors_to_column,
)
from schemas.messages import IntegrityError
from schemas.tables import MEANING, UNIT

MATRICES = hnp.arrays(
    np.float32,
    st.tuples(st.integers(0, 5), st.integers(1, 40)),
    elements=st.floats(-1e4, 1e4, width=32, allow_subnormal=False),
)


def through_parquet(column: pa.Array) -> pa.ChunkedArray:
    stream = io.BytesIO()
    pq.write_table(pa.table({"x": column}), stream)
    return pq.read_table(stream).column("x")


def storage_loss(matrix: np.ndarray, storage: Storage) -> np.ndarray:
    """Return for each row 1 - the cosine between it and what is read back; a row of zeros loses nothing."""
    before = np.asarray(matrix, np.float64)
    after = np.asarray(column_to_vectors(vectors_to_column(matrix, storage)), np.float64)
    lengths = np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1)
    return np.where(lengths > 0, 1 - (before * after).sum(axis=1) / np.where(lengths > 0, lengths, 1), 0.0)


@given(MATRICES, st.sampled_from([np.float32, np.float16]))
def test_floats_read_back_as_the_nearest(matrix: np.ndarray, kind: type[np.floating]) -> None:
    found = column_to_vectors(vectors_to_column(matrix, Storage(kind.__name__)))
    assert (found.dtype, found.tobytes()) == (kind, matrix.astype(kind).tobytes())


@given(MATRICES)
def test_int8_is_off_by_half_a_step_at_most(matrix: np.ndarray) -> None:
    found = column_to_vectors(vectors_to_column(matrix, Storage.INT8))
    step = np.abs(matrix).max(axis=1, keepdims=True, initial=0).astype(np.float64) / 127
    assert (np.abs(found - matrix.astype(np.float64)) <= step / 2 * (1 + 1e-5) + 1e-38).all()
    scales, integers = quantise(matrix)
    assert integers.min(initial=0) >= -127  # symmetric: -v is stored as the negative of v
    np.testing.assert_array_equal(quantise(-matrix)[1], -integers)
    np.testing.assert_array_equal(quantise(matrix)[0], scales)


@given(MATRICES, st.sampled_from(list(Storage)))
def test_the_loss_is_within_what_rounding_allows(matrix: np.ndarray, storage: Storage) -> None:
    """The bound is on the angle between v and v + e: its sine is at most |e| / |v|, with |e| from the number format."""
    values = matrix.astype(np.float64)
    lengths = np.linalg.norm(values, axis=1)
    widest = np.abs(values).max(axis=1, initial=0)
    root = np.sqrt(matrix.shape[1])
    error = {
        Storage.FLOAT32: np.zeros(len(matrix)),
        Storage.FLOAT16: lengths * 2.0**-11 + root * 2.0**-25,  # 11 significant bits, and steps of 2^-24 near zero
        Storage.INT8: root * widest / 254 * (1 + 1e-5),
    }[storage]
    sine = np.where(lengths > 0, error / np.where(lengths > 0, lengths, 1), 0)
    within = sine < 1  # a vector of tiny values alone has no bound in float16
    bound = 1 - np.sqrt(1 - np.minimum(sine, 1) ** 2)
    assert (storage_loss(matrix, storage)[within] <= bound[within] + 1e-12).all()


def test_what_does_not_fit_a_storage_is_told() -> None:
    matrix = np.array([[1, 2], [7e4, 0], [np.inf, 0], [np.nan, 0]], np.float32)
    assert storable(matrix, Storage.FLOAT16).tolist() == [True, False, False, False]
    for storage in (Storage.FLOAT32, Storage.INT8):
        assert storable(matrix, storage).tolist() == [True, True, False, False]
    for storage in Storage:
        with pytest.raises(IntegrityError, match=f"a value that is not finite as {storage}"):
            vectors_to_column(matrix, storage)


@pytest.mark.parametrize("storage", list(Storage))
def test_a_vector_column_is_its_type_and_survives_a_file(storage: Storage) -> None:
    column = vectors_to_column(np.random.default_rng(1).normal(size=(4, 5)).astype(np.float32), storage)
    assert column.type == FeatureColumn(name="x", dimensions=5, storage=storage).type
    found = column_to_vectors(through_parquet(column))
    np.testing.assert_array_equal(found, column_to_vectors(column))
    np.testing.assert_array_equal(column_to_vectors(column.slice(1, 2)), found[1:3])
    chunked = pa.chunked_array([column, column.slice(3)])
    np.testing.assert_array_equal(column_to_vectors(chunked), found[[0, 1, 2, 3, 3]])
    broken = pa.array([None, *column.to_pylist()[1:]], column.type)
    with pytest.raises(IntegrityError, match="nulls"):
        column_to_vectors(broken)


def test_vectors_are_not_copied_and_may_lack_no_value() -> None:
    matrix = np.arange(12, dtype=np.float16).reshape(4, 3)
    assert np.shares_memory(column_to_vectors(vectors_to_column(matrix, Storage.FLOAT16)), matrix)
    with pytest.raises(IntegrityError, match="1 nulls"):
        column_to_vectors(pa.array([[1.0, None]], type=pa.list_(pa.float16(), 2)))


REGIONS = FeatureColumn(name="x", kind=FeatureKind.REGIONS, dimensions=2)
CLASSES = FeatureColumn(name="x", kind=FeatureKind.CLASSES, dimensions=0)


def region(label: str, score: float, corner: float, vector: tuple[int, int]) -> dict[str, object]:
    return {"box": [corner, 0, 1, 1], "label": label, "score": score, "vector": np.array(vector, np.float16)}


def test_regions_read_back() -> None:
    rows = [
        [region("dog", 0.5, 0, (0, 1)), region("traffic light", 0.25, 0.5, (2, 3))],
        [],
        [region("dog", 1, 0.75, (4, 5))],
    ]
    column = pa.array(rows, REGIONS.type)
    found = column_to_regions(through_parquet(column))
    assert (found.offsets.tolist(), found.labels) == ([0, 2, 2, 3], ["dog", "traffic light", "dog"])
    assert found.labels[0] is found.labels[2]
    assert found.boxes.tolist() == [[0, 0, 1, 1], [0.5, 0, 1, 1], [0.75, 0, 1, 1]]
    assert (found.scores.tolist(), found.vectors.tolist()) == ([0.5, 0.25, 1], [[0, 1], [2, 3], [4, 5]])
    assert (found.boxes.dtype, found.scores.dtype, found.vectors.dtype) == (np.float32, np.float32, np.float16)
    last = column_to_regions(column.slice(2))
    assert (last.offsets.tolist(), last.labels, last.vectors.tolist()) == ([0, 1], ["dog"], [[4, 5]])


@pytest.mark.parametrize("images", [0, 1])
def test_no_regions_at_all_read_back(images: int) -> None:
    found = column_to_regions(pa.array([[]] * images, REGIONS.type))
    assert (found.offsets.tolist(), found.vectors.shape, found.boxes.shape) == ([0] * (images + 1), (0, 2), (0, 4))


def test_classes_read_back() -> None:
    tabby, lynx = {"label": "tabby", "probability": 0.5}, {"label": "lynx", "probability": 0.25}
    found = column_to_classes(through_parquet(pa.array([[tabby, lynx], [tabby]], CLASSES.type)))
    assert (found.offsets.tolist(), found.labels) == ([0, 2, 3], ["tabby", "lynx", "tabby"])
    assert found.probabilities.tolist() == [0.5, 0.25, 0.5]


def test_null_lists_and_rows_are_refused() -> None:
    with pytest.raises(IntegrityError, match="nulls"):
        column_to_regions(pa.array([None], REGIONS.type))
    with pytest.raises(IntegrityError, match="nulls"):
        column_to_classes(pa.array([[None]], CLASSES.type))


COLUMNS = (
    FeatureColumn(name="detector", kind=FeatureKind.REGIONS, dimensions=2048, fingerprint="ab"),
    FeatureColumn(name="net", dimensions=1280, storage=Storage.INT8),
    FeatureColumn(name="net-classes", kind=FeatureKind.CLASSES, dimensions=0),
)


def test_columns_have_names_meanings_and_units() -> None:
    schema = image_schema(COLUMNS)
    assert schema.names[-3:] == ["regions.detector", "features.net", "classes.net-classes"]
    assert not [field.name for field in list(schema)[-3:] if field.nullable or not field.metadata[MEANING]]
    assert schema.field("features.net").metadata[UNIT] == b"a value is scale x integer"
    box = schema.field("regions.detector").type.value_type.field("box")
    assert box.metadata == {MEANING: b"left, top, right, bottom", UNIT: b"share of width, height"}
    sentences = document_schema([FeatureColumn(name="use", dimensions=4, storage=Storage.FLOAT32)])
    assert sentences.field("features.use").type == pa.list_(pa.list_(pa.float32(), 4))


def test_a_column_is_plain_in_json() -> None:
    for column in COLUMNS:
        assert restore(FeatureColumn, json.loads(json.dumps(asdict(column)))) == column
