"""Given regions are found by image id or file name, and made of each form that they are published in by the example."""

import base64
import importlib.util
import json
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.features.catalogue import extractors
from pipelines.features.extraction import extracted
from pipelines.features.values import IMAGES, Regions, Rejected
from pipelines.settings import FeaturesConfig
from schemas.features import FeatureKind
from schemas.messages import ConfigError

FIXED = ("features.sentences=lengths", "features.threads=1")
ROOT = Path(__file__).resolve().parents[3]
WIDTH, HEIGHT, SIZE = 640, 480, 2048
NAME = "bottom-up"
_SPEC = importlib.util.spec_from_file_location("convert_regions", ROOT / "examples" / "convert_regions.py")
converter = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(converter)


def made(seed: int, count: int) -> dict[str, np.ndarray]:
    numbers = np.random.default_rng(seed)
    left, top = numbers.integers(0, 300, (2, count))
    boxes = np.stack([left, top, left + 100, top + 90], axis=1)
    return {
        "boxes": boxes.astype(np.float32),
        "features": numbers.random((count, SIZE)).astype(np.float32),
        "objects_id": numbers.integers(0, 3, count),
        "objects_conf": numbers.permutation(np.linspace(0.1, 0.9, count)).astype(np.float32),
        "attrs_id": numbers.integers(0, 2, count),
        "attrs_conf": np.where(np.arange(count) % 2, 0.05, 0.8).astype(np.float32),
    }


def encoded(array: np.ndarray) -> str:
    return base64.b64encode(array.tobytes()).decode()


def plain_line(image_id: str, values: dict[str, np.ndarray]) -> str:
    cells = [image_id, WIDTH, HEIGHT, len(values["boxes"]), encoded(values["boxes"]), encoded(values["features"])]
    return "\t".join(map(str, cells)) + "\n"


def classed_line(image_id: str, values: dict[str, np.ndarray]) -> str:
    told = [encoded(values[name]) for name in ("objects_id", "objects_conf", "attrs_id", "attrs_conf")]
    rest = [len(values["boxes"]), encoded(values["boxes"]), encoded(values["features"])]
    return "\t".join(map(str, [image_id, HEIGHT, WIDTH, *told, *rest])) + "\n"


def read(file: Path, *names: str, labels: tuple[list[str], ...] = (), **settings: object) -> list[Regions | Rejected]:
    """Return what a build has of the pictures of these names, given the table that the example makes of a file."""
    table = file.parent / "regions.parquet"
    converter.convert(converter.read(file), table, *labels)
    return looked_up(table, *names, **settings)


def looked_up(table: Path, *names: str, **settings: object) -> list[Regions | Rejected]:
    config = FeaturesConfig(images=(NAME,), weights=(f"{NAME}={table}",), **settings)  # type: ignore[arg-type]
    [extractor] = extractors([NAME], IMAGES, config)
    assert [(column.kind, column.dimensions) for column in extractor.columns] == [(FeatureKind.REGIONS, SIZE)]
    return [row[0] for row in extractor.extract(names)]  # type: ignore[misc]


def shares(values: dict[str, np.ndarray]) -> np.ndarray:
    return np.stack([box / (WIDTH, HEIGHT, WIDTH, HEIGHT) for box in values["boxes"]])


def check(found: Regions | Rejected, values: dict[str, np.ndarray], count: int) -> None:
    np.testing.assert_allclose(found.boxes, shares(values)[:count], rtol=1e-6)
    np.testing.assert_array_equal(found.vectors, values["features"][:count])
    assert found.labels == ("",) * count and found.scores.tolist() == [1.0] * count


def test_the_published_tsv_is_read_by_the_number_in_a_name(tmp_path: Path) -> None:
    first, second = made(0, 36), made(1, 36)
    file = tmp_path / "trainval_36.tsv"
    file.write_text(plain_line("150367", first) + plain_line("42", second))
    one, other, missing = read(file, "COCO_val2014_000000000042.jpg", "https://host/a/150367.jpg?x=1", "7.jpg")
    check(one, second, 36)
    check(other, first, 36)
    assert isinstance(missing, Rejected) and missing.message == f"{file.parent}/regions.parquet has no regions of 7.jpg"


def test_adaptive_regions_are_cut_and_a_folder_holds_several_files(tmp_path: Path) -> None:
    first, second = made(0, 60), made(1, 12)
    folder = tmp_path / "resnet101"
    folder.mkdir()
    for number, (image_id, values) in enumerate({"1": first, "2": second}.items()):
        (folder / f"karpathy_train_resnet101_faster_rcnn_genome.tsv.{number}").write_text(plain_line(image_id, values))
    many, few = read(folder, "1.jpg", "000000000002.jpg", max_regions=50)
    check(many, first, 50)
    check(few, second, 12)


def test_classes_and_attributes_are_concepts_the_surest_first(tmp_path: Path) -> None:
    values = made(3, 20)
    file = tmp_path / "val.tsv"
    file.write_text(classed_line("COCO_val2014_000000000042", values))
    (tmp_path / "objects.txt").write_text("dog,puppy\ncat\nold tree\n")
    classes = converter.names_in(tmp_path / "objects.txt")
    for labels in ((classes,), (classes, ["red", "green"])):
        [found] = read(file, "42.jpg", labels=labels, max_regions=8, min_regions=4)
        assert isinstance(found, Regions)
        order = sorted(range(20), key=lambda row: -values["objects_conf"][row])[:8]
        expected = []
        for row in order:
            label = ("dog", "cat", "old tree")[values["objects_id"][row]]
            is_told = len(labels) == 2 and values["attrs_conf"][row] >= 0.1
            expected.append(f"{('red', 'green')[values['attrs_id'][row]]} {label}" if is_told else label)
        assert list(found.labels) == expected
        np.testing.assert_array_equal(found.scores, values["objects_conf"][order])
        np.testing.assert_array_equal(found.vectors, values["features"][order])
        np.testing.assert_allclose(found.boxes, shares(values)[order], rtol=1e-6)


@pytest.mark.parametrize("is_turned", [False, True])
def test_an_archive_an_image(tmp_path: Path, is_turned: bool) -> None:
    values = made(4, 10)
    folder = tmp_path / "npz"
    folder.mkdir()
    vectors = values["features"].T if is_turned else values["features"]
    info = {"objects_id": values["objects_id"]}  # pickled, as published; it is not read
    np.savez(
        folder / "9001.npz",
        x=vectors, bbox=values["boxes"], num_bbox=10, image_w=WIDTH, image_h=HEIGHT, info=np.array(info, dtype=object),
    )  # fmt: skip
    check(read(folder, "9001.jpg")[0], values, 10)


@pytest.mark.parametrize(("is_adaptive", "suffix"), [(False, ".pkl"), (True, ".json")])
def test_hdf5_and_its_index(tmp_path: Path, is_adaptive: bool, suffix: str) -> None:
    h5py = pytest.importorskip("h5py")
    pictures = [made(number, 12 + number * 3 if is_adaptive else 36) for number in range(3)]
    name = tmp_path / "train36.hdf5"
    spatial = [np.concatenate([shares(values), np.zeros((len(values["boxes"]), 2))], axis=1) for values in pictures]
    with h5py.File(name, "w") as file:
        join = np.concatenate if is_adaptive else np.stack
        file["image_features"] = join([values["features"] for values in pictures])
        file["image_bb"] = join([values["boxes"] for values in pictures])
        file["spatial_features"] = join([rows.astype(np.float32) for rows in spatial])
        if is_adaptive:
            ends = np.cumsum([0, *(len(rows) for rows in spatial)])
            file["pos_boxes"] = np.stack([ends[:-1], ends[1:]], axis=1)
    index = {500 + number: number for number in range(3)}
    data = json.dumps(index).encode() if suffix == ".json" else pickle.dumps(index)
    (tmp_path / f"train36_imgid2idx{suffix}").write_bytes(data)
    for number, found in enumerate(read(name, *(f"COCO_train2014_000000000{500 + n}.jpg" for n in range(3)))):
        check(found, pictures[number], min(36, len(spatial[number])))


def test_a_pickle_that_names_a_class_is_refused() -> None:
    with pytest.raises(pickle.UnpicklingError, match=r"pathlib.* is no plain value"):
        converter.load_plain(pickle.dumps({1: Path("x")}))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"name": ["a"], "box": [[0.0, 0, 1, 1]]}, "expected vector, found name, box"),
        ({"name": [], "box": [], "vector": []}, "no picture's regions"),
        (
            {"name": ["a", "b", "a"], "box": [[0.0, 0, 1, 1]] * 3, "vector": [[1.0]] * 3},
            "expected the rows of a picture together",
        ),
        (None, "expected a Parquet file"),
    ],
)
def test_what_is_no_such_table_is_said(columns: dict[str, object] | None, message: str, tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    file.write_text("1\t2\t3\n")
    if columns is not None:
        pq.write_table(pa.table(columns), file)
    with pytest.raises(ConfigError, match=message):
        looked_up(file, "1.jpg")


def test_regions_across_row_groups_and_one_picture_that_is_damaged(tmp_path: Path) -> None:
    pictures = {f"{n}.jpg": made(n, 5 + n) for n in range(6)}
    rows = [
        {"name": name, "box": box, "vector": vector}
        for name, values in pictures.items()
        for box, vector in zip(shares(values), values["features"], strict=True)
    ]
    rows += [{"name": "bad.jpg", "box": [0.0, 0, 1, 1], "vector": [1.0] * size} for size in (SIZE, 3)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet", row_group_size=4)
    found = looked_up(tmp_path / "a.parquet", *pictures, max_regions=50)
    for each, values in zip(found, pictures.values(), strict=True):
        check(each, values, len(values["boxes"]))
    [extractor] = extractors([NAME], IMAGES, FeaturesConfig(images=(NAME,), weights=(f"{NAME}={tmp_path}/a.parquet",)))
    one, bad = (row[0] for row in extracted(extractor, ["1.jpg", "bad.jpg"]))
    check(one, pictures["1.jpg"], 6)  # type: ignore[arg-type]
    assert isinstance(bad, Rejected)
