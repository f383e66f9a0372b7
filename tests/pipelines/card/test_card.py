"""The card says what the manifest says, in YAML that Hugging Face reads and words that people read."""

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.card.card import dataset_card, write_cards
from pipelines.card.show import leak_lines
from schemas.documents import image_schema
from schemas.features import FeatureColumn, FeatureKind, Storage
from schemas.lake import MANIFEST, Folder
from schemas.manifest import FileEntry, Manifest, SplitStatistics, verify, version_name

CONFIG = {"dataset": "wiki", "dedupe": {"policy": "keep-all", "radius": 3}, "source": {"titles": ["A|B", "C`"]}}
INPUTS = {"code": "c0de", "records": "00ff"}
SCHEMA_VERSIONS = {"documents": 1, "images": 1}
NO_DOCUMENT = SplitStatistics(
    documents=0, images=0, sentences=0, unique_images=0, median_sentences=0, median_images=0, mean_sentences=0,
    mean_images=0, max_sentences=0, max_images=0, links=0, documents_with_known_links=0, density=None,
)  # fmt: skip
TWO_DOCUMENTS = SplitStatistics(
    documents=2, images=5, sentences=7, unique_images=4, median_sentences=3.5, median_images=2.5, mean_sentences=3.5,
    mean_images=2.5, max_sentences=4, max_images=3, links=4, documents_with_known_links=1, density=0.25,
)  # fmt: skip


def entry(path: str, rows: int = 1) -> FileEntry:
    return FileEntry(path=path, bytes=10, sha256=hashlib.sha256(path.encode()).hexdigest(), rows=rows)


def make_manifest(**changes: Any) -> Manifest:
    """Return the manifest of a version with training and test documents, and no validation ones."""
    manifest = Manifest(
        dataset="wiki",
        version="00000000000000e5",
        files=(
            entry("documents/test/part-00000-of-00001.parquet"),
            entry("documents/train/part-00000-of-00001.parquet"),
            entry("duplicates/part-00000-of-00001.parquet", 0),
            entry("failures/part-00000-of-00001.parquet", 3),
            entry("images/test/part-00000-of-00001.parquet"),
            entry("images/train/part-00000-of-00001.parquet"),
        ),
        splits={"train": TWO_DOCUMENTS, "val": NO_DOCUMENT, "test": TWO_DOCUMENTS},
        failures={"low-score": 1, "not-found": 2},
        stages={"sources": {"in": 6, "out": 5, "rejected": 1, "failed": 0}},
        features={
            "images": (FeatureColumn(name="resnet50", dimensions=2048),),
            "documents": (FeatureColumn(name="use-multilingual", dimensions=512),),
        },
        config=CONFIG,
        inputs=INPUTS,
        schema_versions=SCHEMA_VERSIONS,
    )
    return dataclasses.replace(manifest, **changes)


def front_matter(card: str) -> Any:
    _, yaml_text, _ = card.split("---\n", 2)
    return yaml.safe_load(yaml_text)


def test_the_front_matter_names_a_glob_for_each_split_that_has_files() -> None:
    found = front_matter(dataset_card(make_manifest()))
    found.pop("dataset_info")
    assert found == {
        "pretty_name": "wiki",
        "license": "unknown",
        "tags": ["multilink", "image-text"],
        "size_categories": ["n<1K"],
        "configs": [
            {
                "config_name": "documents",
                "default": True,
                "data_files": [
                    {"split": "train", "path": "documents/train/*.parquet"},
                    {"split": "test", "path": "documents/test/*.parquet"},
                ],
            },
            {
                "config_name": "images",
                "data_files": [
                    {"split": "train", "path": "images/train/*.parquet"},
                    {"split": "test", "path": "images/test/*.parquet"},
                ],
            },
        ],
    }


def test_hugging_face_is_told_which_column_holds_pictures() -> None:
    columns = (
        FeatureColumn(name="detector", kind=FeatureKind.REGIONS, dimensions=4),
        FeatureColumn(name="likely", kind=FeatureKind.CLASSES, dimensions=0),
        FeatureColumn(name="resnet50", dimensions=2048),
        FeatureColumn(name="small", dimensions=4, storage=Storage.INT8),
    )
    manifest = make_manifest(features={"images": columns, "documents": ()})
    (info,) = front_matter(dataset_card(manifest))["dataset_info"]
    assert info["config_name"] == "images"
    features = {feature.pop("name"): feature for feature in info["features"]}
    assert list(features) == image_schema(columns).names  # a cast to fewer columns fails
    types = {"jpeg": {"dtype": "image"}, "width": {"dtype": "int32"}, "is_flat": {"dtype": "bool"}}
    assert {name: features[name] for name in types} == types
    assert list(features["features.resnet50"].items()) == [("sequence", "float16"), ("length", 2048)]  # in this order
    assert features["features.small"]["struct"][1] == {"name": "values", "sequence": "int8", "length": 4}
    assert [field["name"] for field in features["regions.detector"]["list"]] == ["box", "label", "score", "vector"]
    assert features["classes.likely"]["list"][1] == {"name": "probability", "dtype": "float32"}
    assert "dataset_info" not in front_matter(dataset_card(make_manifest(files=())))


@pytest.mark.parametrize(
    ("documents", "category"),
    [(999, "n<1K"), (1_000, "1K<n<10K"), (37_000, "10K<n<100K"), (528_000, "100K<n<1M"), (10_000_000, "n>10M")],
)
def test_the_size_category_counts_documents(documents: int, category: str) -> None:
    train = dataclasses.replace(TWO_DOCUMENTS, documents=documents)
    card = dataset_card(make_manifest(splits={"train": train, "val": NO_DOCUMENT, "test": NO_DOCUMENT}))
    assert front_matter(card)["size_categories"] == [category]


@pytest.mark.parametrize("name", ["1.5", "true", "2018-01"])
def test_a_name_that_yaml_could_take_for_something_else_stays_a_name(name: str) -> None:
    assert front_matter(dataset_card(make_manifest(dataset=name)))["pretty_name"] == name


def test_the_text_tells_statistics_failures_vectors_and_settings() -> None:
    lines = dataset_card(make_manifest(), {("h.test", "not-found"): 2}).splitlines()
    train = "train          2         3.5, 3.5, 4       2.5, 2.5, 3         5         4         25.0%"
    told = (
        "# wiki",
        train,
        "sources            6         5         1         0",
        "| low-score | 1 |",
        "| not-found | 2 |",
        "| h.test | not-found | 2 |",
        "- `features.resnet50` of `images`: 2048 float16 values per image",
        "- `features.use-multilingual` of `documents`: 512 float16 values per sentence",
        'dedupe.policy = "keep-all"',
        "dedupe.radius = 3",
        'source.titles = ["A|B","C`"]',
        "`multilink build wiki`, multilink 0.1.0, schemas: documents 1, images 1.",
        "records: 00ff",
        'documents = datasets.load_dataset("00000000000000e5", "documents", split="train")',
    )
    assert not [line for line in told if line not in lines]


def test_leaks_are_told_where_the_build_looked() -> None:
    assert "Leaks" not in dataset_card(make_manifest())
    assert "No image, exact or near, and no text is shared" in dataset_card(make_manifest(notes={"leaks": []}))
    row = {"kind": "exact-image", "split": "test", "other_split": "train", "keys": 610, "documents": 600}
    (line,) = leak_lines(make_manifest(notes={"leaks": [row]}))
    assert all(str(value) in line for value in row.values())
    card = dataset_card(make_manifest(notes={"leaks": [row]}))
    assert "| exact-image | test | train | 610 | 600 |" in card and "dropped" not in card
    dropped = make_manifest(notes={"leaks": [row]}, config={"splits": {"on_leak": "drop"}})
    assert "Before the documents of the weaker split were dropped" in dataset_card(dropped)


@pytest.mark.parametrize(
    ("chosen", "told"), [({"ids": None}, "its"), ({"ids": "5e1f"}, "listed"), ({"where": "language == 'en'"}, "its")]
)
def test_the_card_of_a_subset_names_its_parent(chosen: dict[str, str | None], told: str) -> None:
    """A version of an earlier release, which had a condition instead of ids, has a card, too."""
    card = dataset_card(make_manifest(config=CONFIG | {"subset": {"parent": "wiki@1", "share": 0.5, **chosen}}))
    assert f"A subset of `wiki@1`: 50% of {told} documents by their ids." in card


def test_a_version_without_failures_or_documents_has_a_card() -> None:
    card = dataset_card(make_manifest(failures={}, files=(), features={}, config={}))
    assert front_matter(card)["configs"] is None
    assert "Nothing was rejected, and nothing failed." in card


def test_cards_stand_beside_a_version_and_are_no_part_of_it(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    manifest = make_manifest(files=(), version=version_name(CONFIG, INPUTS, SCHEMA_VERSIONS))
    folder.write(MANIFEST, manifest.to_json().encode())
    write_cards(folder, manifest)
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == dataset_card(manifest)
    assert (tmp_path / "croissant.json").exists() and list(verify(manifest, folder)) == []
    folder.write("notes.txt", b"")
    assert list(verify(manifest, folder)) == ["notes.txt: extra file, not in the manifest"]
