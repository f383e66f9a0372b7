"""From stored pictures to the squares that networks look at.

ONNX Runtime reports its use to its maker, from its import on, unless it is told not to.

Which regions are kept; values come back from packs as they were; what no storage can hold is rejected.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from pipelines.features.pixels import PictureExtractor, Preprocessing, Square
from pipelines.features.values import (
    DOCUMENTS,
    IMAGES,
    Classes,
    Regions,
    Rejected,
    Value,
    checked,
    feature_array,
    feature_packs,
    kept_regions,
    value_array,
    value_rows,
)
from pipelines.images.inspect import encode_jpeg
from pipelines.ledger import texts_key
from pipelines.packs import PackRef
from pipelines.settings import FeaturesConfig
from schemas.features import (
    FeatureColumn,
    FeatureKind,
    Storage,
    column_to_classes,
    column_to_regions,
    column_to_vectors,
    image_fields,
    sentence_fields,
)
from schemas.lake import Lake
from schemas.messages import IntegrityError

NO_SCALE = {"mean": (0.0, 0.0, 0.0), "deviation": (1.0, 1.0, 1.0)}


def edge_at(share: float, width: int = 300) -> Image.Image:
    """Return red with green in it up to a share of its width."""
    pixels = np.zeros((256, width, 3), np.uint8)
    pixels[..., 0] = 255
    pixels[:, : int(share * width), 1] = 200
    return Image.fromarray(pixels)


def edge_of(square: np.ndarray) -> int:
    return int(np.argmax(square[len(square) // 2, :, 1] < 100))


def test_a_centre_crop_is_a_cut() -> None:
    square = Preprocessing(**NO_SCALE).square(encode_jpeg(edge_at(0.5), quality=100)).pixels
    assert (square.shape, square.dtype) == ((224, 224, 3), np.uint8)
    np.testing.assert_allclose(square[100, 50], [255, 200, 0], atol=3)
    assert abs(edge_of(square) - (150 - (300 - 224) // 2)) <= 1


def test_a_squashed_picture_is_whole() -> None:
    square = Preprocessing(**NO_SCALE, fit="squash").square(encode_jpeg(edge_at(0.1), quality=100)).pixels
    assert square.shape == (224, 224, 3)
    assert abs(edge_of(square) - 22) <= 1


@pytest.mark.parametrize("shorter_side_px", [64, 512])
def test_another_size_than_the_stored_one_is_resized(shorter_side_px: int) -> None:
    stored = encode_jpeg(edge_at(0.5), shorter_side_px=shorter_side_px, quality=100)
    assert abs(edge_of(Preprocessing(**NO_SCALE).square(stored).pixels) - 112) <= 2


@pytest.mark.parametrize("fit", ["centre", "squash"])
def test_the_square_lies_where_it_says(fit: str) -> None:
    picture = encode_jpeg(edge_at(0.4), quality=100)
    square, (left, top, right, bottom) = Preprocessing(**NO_SCALE, fit=fit).square(picture)  # type: ignore[arg-type]
    assert left + edge_of(square) / 224 * (right - left) == pytest.approx(0.4, abs=0.01)
    assert (top, bottom) == ((1 / 16, 15 / 16) if fit == "centre" else (0, 1))


class Sums(PictureExtractor):
    """The sum of a picture's pixels, in batches."""

    columns, batch = ("sums",), 3

    def __init__(self) -> None:
        super().__init__(FeaturesConfig(), Preprocessing(**NO_SCALE))
        self.seen: list[np.ndarray] = []

    def rows(self, squares: Sequence[Square], pixels: np.ndarray) -> list[Any]:
        self.seen.append(pixels)
        return [(each.sum(dtype=np.int64),) for each in pixels]


def test_batches_are_of_one_shape_and_filled_up_with_black() -> None:
    pictures = [encode_jpeg(edge_at(share)) for share in (0.2, 0.4, 0.6, 0.8)]
    sums = Sums()
    first, broken, *others = sums.extract([pictures[0], b"", *pictures[1:]])
    assert isinstance(broken[0], Rejected)
    expected = [sums.preprocessing.square(picture).pixels.sum(dtype=np.int64) for picture in pictures]
    assert [first[0], *(row[0] for row in others)] == expected
    assert [pixels.shape for pixels in sums.seen] == [(3, 224, 224, 3)] * 2
    assert sorted(int(pixels.any(axis=(1, 2, 3)).sum()) for pixels in sums.seen) == [2, 2]


def test_what_is_no_picture_is_rejected_with_the_reason() -> None:
    whole = encode_jpeg(edge_at(0.5))
    for broken, reason in ((b"", "not-an-image"), (b"text", "not-an-image"), (whole[:900], "corrupt-image")):
        found = Preprocessing(**NO_SCALE).square(broken)
        assert isinstance(found, Rejected) and found.message.startswith(reason)


@pytest.mark.parametrize("module", ["pipelines.features.pixels", "pipelines.features.extractors.use_multilingual"])
def test_nothing_is_reported_to_the_maker_of_the_runtime(module: str, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    code = f"import {module}, onnxruntime"
    subprocess.run([sys.executable, "-c", code], env=environment | {"TMPDIR": str(tmp_path)}, check=True)
    assert list(tmp_path.iterdir()) == []  # else there is a file of its session with the collector


REGIONS = Regions(
    np.array([[0, 0, 0.5, 1], [0.25, 0, 1, 1]], np.float32),
    ("traffic light", "Bär"),
    np.array([0.9, 0.3], np.float32),
    np.arange(6, dtype=np.float32).reshape(2, 3),
)
NO_REGIONS = Regions(np.zeros((0, 4), np.float32), (), np.zeros(0, np.float32), np.zeros((0, 3), np.float32))
CLASSES = Classes(("tabby", "tiger cat"), np.array([0.6, 0.1], np.float32))


def column(kind: FeatureKind = FeatureKind.VECTOR, storage: Storage = Storage.FLOAT16, size: int = 3) -> FeatureColumn:
    dimensions = 0 if kind is FeatureKind.CLASSES else size
    return FeatureColumn(name="x", kind=kind, dimensions=dimensions, storage=storage, fingerprint="f" * 64)


def kept(lake: Lake, of: FeatureColumn, table: str, values: list[Value | Rejected]) -> list[PackRef]:
    writer = feature_packs(lake, of, table).writer()
    messages = [value.message if isinstance(value, Rejected) else None for value in values]
    keys = [f"{number:064x}" for number in range(len(values))]
    refs = writer.add({"key": keys, "value": value_rows(values), "rejected": messages})
    writer.close()
    return refs


vectors = st.lists(st.floats(-60_000, 60_000, width=32), min_size=3, max_size=3).map(np.float32)


@settings(max_examples=20)
@given(st.lists(vectors, min_size=1, max_size=9), st.sampled_from(Storage))
def test_a_column_read_from_packs_is_that_of_the_values(
    tmp_path_factory: pytest.TempPathFactory, values: list[Any], storage: Storage
) -> None:
    lake, of = Lake.at(str(tmp_path_factory.mktemp("lake"))), column(storage=storage)
    refs = kept(lake, of, IMAGES, [*values, Rejected("dark")])
    found = feature_array(lake, of, IMAGES, refs[-2::-1])
    assert found.cast(image_fields([of])[0].type) == value_array(values[::-1], of, IMAGES)
    if storage is Storage.FLOAT32:
        np.testing.assert_array_equal(column_to_vectors(found), np.stack(values[::-1]))


def test_documents_have_lists_of_vectors(tmp_path: Path) -> None:
    lake, of = Lake.at(str(tmp_path)), column(storage=Storage.INT8)
    matrices: list[Any] = [np.ones((2, 3), np.float32), np.zeros((0, 3), np.float32), np.full((3, 3), 5, np.float32)]
    refs = kept(lake, of, DOCUMENTS, matrices)
    found = feature_array(lake, of, DOCUMENTS, [refs[2], refs[1], refs[0]])
    assert found.type == sentence_fields([of])[0].type
    assert found.value_lengths().to_pylist() == [3, 0, 2]
    np.testing.assert_allclose(column_to_vectors(found.flatten()), np.concatenate(matrices[::-1]), rtol=1e-6)


def test_regions_and_classes_come_back(tmp_path: Path) -> None:
    lake = Lake.at(str(tmp_path))
    of = column(FeatureKind.REGIONS)
    refs = kept(lake, of, IMAGES, [REGIONS, NO_REGIONS, REGIONS])
    regions = column_to_regions(feature_array(lake, of, IMAGES, refs))
    assert regions.offsets.tolist() == [0, 2, 2, 4]
    assert tuple(regions.labels) == REGIONS.labels * 2
    np.testing.assert_array_equal(regions.boxes[2:], REGIONS.boxes)
    np.testing.assert_array_equal(regions.vectors[:2], REGIONS.vectors)
    of = column(FeatureKind.CLASSES)
    classes = column_to_classes(feature_array(lake, of, IMAGES, kept(lake, of, IMAGES, [CLASSES])))
    assert tuple(classes.labels) == CLASSES.labels
    np.testing.assert_array_equal(classes.probabilities, CLASSES.probabilities)


def test_packs_are_plain_tables(tmp_path: Path) -> None:
    lake, of = Lake.at(str(tmp_path)), column()
    [ref, _] = kept(lake, of, IMAGES, [np.float32([1, 2, 3]), Rejected("dark")])
    table = pq.read_table(tmp_path / "features" / "x" / ("f" * 16) / f"{ref.pack}.parquet")
    assert table["value"].to_pylist() == [[1, 2, 3], None]
    assert table["rejected"].to_pylist() == [None, "dark"]
    assert all(field.metadata[b"meaning"] for field in table.schema)


@pytest.mark.parametrize(
    ("value", "is_sound"), [([1.0, 65504.0], True), ([1.0, 7e4], False), ([np.inf, 0.0], False), ([np.nan, 0.0], False)]
)
def test_what_float16_cannot_hold_is_rejected(value: list[float], is_sound: bool) -> None:
    vector = np.array(value, np.float32)
    for storage in Storage:
        assert isinstance(checked(vector, column(storage=storage, size=2)), Rejected) is not is_sound
    regions = Regions(np.zeros((1, 4), np.float32), ("dog",), np.ones(1, np.float32), vector[None])
    assert isinstance(checked(regions, column(FeatureKind.REGIONS, size=2)), Rejected) is not is_sound


@pytest.mark.parametrize("value", [np.zeros(3, np.float32), np.zeros((1, 3), np.float32), NO_REGIONS, CLASSES])
def test_a_value_of_another_shape_is_the_extractors_fault(value: Value) -> None:
    with pytest.raises(IntegrityError, match="extractor x: expected 2 float16 values"):
        checked(value, column(size=2))


def test_the_key_of_texts_tells_their_borders() -> None:
    assert texts_key(["a", "b"]) == texts_key(iter(("a", "b")))
    assert len({texts_key(texts) for texts in (["a", "b"], ["ab"], ["b", "a"], ["a", "b", ""], [])}) == 5


KEPT_FROM = np.array([0.1, 0.9, 0.3, 0.3, 0.05, 0.6], np.float32)


@pytest.mark.parametrize(
    ("least", "most", "score", "kept"),
    [
        (0, 6, 0.2, [1, 5, 2, 3]),
        (0, 3, 0.2, [1, 5, 2]),
        (5, 6, 0.2, [1, 5, 2, 3, 0]),
        (6, 6, 1.0, [1, 5, 2, 3, 0, 4]),
        (10, 36, 0.95, [1, 5, 2, 3, 0, 4]),
        (0, 6, 0.95, []),
        (0, 6, 0.3, [1, 5, 2, 3]),
    ],
)
def test_regions_are_kept_by_score_within_limits(least: int, most: int, score: float, kept: list[int]) -> None:
    config = FeaturesConfig(min_regions=least, max_regions=most, min_score=score)
    # 0.3 as float32 is a little above 0.3.
    assert kept_regions(KEPT_FROM, config).tolist() == kept
    assert kept_regions(KEPT_FROM[:0], config).tolist() == []
