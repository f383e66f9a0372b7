"""The card says what the manifest says, in YAML that Hugging Face reads and words that people read.

croissant.json has every part with its hash, and a field for every column; mlcroissant accepts and reads it.
"""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from picture_files import file_of, noise

from pipelines.card.card import dataset_card, write_cards
from pipelines.card.croissant import croissant
from pipelines.card.show import leak_lines
from pipelines.shards.writing import write_rows
from schemas.document_rows import to_row
from schemas.documents import Document, ImageRef, Link, Provenance, Sentence, Split, document_schema, image_schema
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


PART = "part-00000-of-00001.parquet"
DOCUMENTS = FileEntry(path=f"documents/train/{PART}", bytes=1234, sha256="d" * 64, rows=5)
IMAGES = FileEntry(path=f"images/train/{PART}", bytes=99, sha256="1" * 64, rows=7)
FAILURES = FileEntry(path=f"failures/{PART}", bytes=5, sha256="f" * 64, rows=1)
CARD = FileEntry(path="README.md", bytes=5, sha256="c" * 64, rows=0)


EVERY_KIND = {
    "images": (
        FeatureColumn(name="likely", kind=FeatureKind.CLASSES, dimensions=0),
        FeatureColumn(name="detector", kind=FeatureKind.REGIONS, dimensions=4),
        FeatureColumn(name="net", dimensions=4),
        FeatureColumn(name="small", dimensions=4, storage=Storage.INT8),
    ),
    "documents": (FeatureColumn(name="use", dimensions=3),),
}


def manifest_of(*files: FileEntry) -> Manifest:
    return Manifest(
        dataset="news",
        version="00000000000000e5",
        files=tuple(sorted(files)),
        splits={},
        failures={},
        stages={},
        features=EVERY_KIND,
        config={},
        inputs={},
        schema_versions={},
    )


def describe(*files: FileEntry) -> Any:
    return json.loads(croissant(manifest_of(*files)))


def fields(description: Any, record_set: str) -> dict[str, Any]:
    """Return the fields of a record set by their names."""
    (records,) = (item for item in description["recordSet"] if item["@id"] == record_set)
    return {item["@id"].removeprefix(f"{record_set}/"): item for item in records["field"]}


def shape(field: Any) -> Any:
    """Return the type of a field, or those of its parts; in a list where it repeats."""
    parts = {part["@id"].rpartition("/")[2]: shape(part) for part in field.get("subField", ())}
    found = parts or field["dataType"]
    return [found] if field.get("repeated") else found


def test_the_data_set_conforms_and_is_named() -> None:
    description = describe(DOCUMENTS, IMAGES)
    assert {name: description[name] for name in ("@type", "conformsTo", "name", "version")} == {
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": "news",
        "version": "1.0.0+00000000000000e5",
    }


def test_each_part_is_a_file_with_its_hash_and_each_table_a_set() -> None:
    distribution = describe(CARD, DOCUMENTS, FAILURES, IMAGES)["distribution"]
    assert [item["@id"] for item in distribution] == [DOCUMENTS.path, IMAGES.path, "documents-parts", "images-parts"]
    assert distribution[0] == {
        "@type": "cr:FileObject",
        "@id": "documents/train/part-00000-of-00001.parquet",
        "name": "documents/train/part-00000-of-00001.parquet",
        "contentUrl": "documents/train/part-00000-of-00001.parquet",
        "contentSize": "1234 B",
        "encodingFormat": "application/x-parquet",
        "sha256": "d" * 64,
    }
    assert distribution[3]["includes"] == "images/*/*.parquet"
    nothing = describe(FAILURES)
    assert (nothing["distribution"], nothing["recordSet"]) == ([], [])


def test_every_column_is_a_field_of_its_type() -> None:
    """Lists repeat, structs have parts, and images take their split from the path."""
    description = describe(DOCUMENTS, IMAGES)
    documents, images = fields(description, "documents"), fields(description, "images")
    assert list(documents) == document_schema(EVERY_KIND["documents"]).names
    assert list(images) == [*image_schema(EVERY_KIND["images"]).names, "split"]
    expected = {
        "hash": "sc:Text",
        "width": "sc:Integer",
        "is_flat": "sc:Boolean",
        "jpeg": "sc:ImageObject",
        "features.net": ["sc:Float"],
        "features.small": {"scale": "sc:Float", "values": ["sc:Integer"]},
        "regions.detector": [{"label": "sc:Text", "score": "sc:Float"}],
        "classes.likely": [{"label": "sc:Text", "probability": "sc:Float"}],
    }
    assert {name: shape(images[name]) for name in expected} == expected
    assert documents["split"]["dataType"] == ["sc:Text", "cr:Split"]
    assert shape(documents["links"]) == [{"sentence": "sc:Integer", "image": "sc:Integer"}]
    paths = [part["source"]["transform"] for part in documents["links"]["subField"]]
    assert paths == [{"jsonPath": "sentence"}, {"jsonPath": "image"}]
    assert images["split"]["source"] == {
        "fileSet": {"@id": "images-parts"},
        "extract": {"fileProperty": "fullpath"},
        "transform": {"regex": "images/([^/]+)/.+"},
    }


def written_parts(folder: Folder) -> tuple[FileEntry, ...]:
    """Write one document and its image with a feature of every kind; return the entries of both parts."""
    document = Document(
        id="a1",
        dataset="news",
        sentences=(Sentence("Sand it."), Sentence("Paint it.")),
        images=(ImageRef("00"),),
        links=(Link(1, 0),),
        provenance=Provenance("test", "a1"),
        split=Split.TRAIN,
    )
    values = {
        "classes.likely": [{"label": "cat", "probability": 0.5}],
        "regions.detector": [],
        "features.net": np.ones(4, np.float16),
        "features.small": {"scale": 0.5, "values": [1, 2, 3, 4]},
    }
    schemas = {
        table: make(EVERY_KIND[table]) for table, make in (("documents", document_schema), ("images", image_schema))
    }
    rows = {
        "documents": to_row(document) | {"features.use": np.ones((2, 3), np.float16).tolist()},
        "images": dict.fromkeys(schemas["images"].names) | values,
    }
    rows["images"] |= {"hash": "00", "width": 4, "is_flat": True, "jpeg": file_of(noise(4, 3), "JPEG")}
    return tuple(write_rows(folder, f"{table}/train/{PART}", [rows[table]], schemas[table]) for table in rows)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of its own libraries
def test_mlcroissant_accepts_it_and_reads_every_column(tmp_path: Path) -> None:
    import mlcroissant

    folder = Folder(str(tmp_path))
    folder.write("croissant.json", croissant(manifest_of(*written_parts(folder))).encode())
    found = mlcroissant.Dataset(jsonld=str(tmp_path / "croissant.json"))
    assert found.metadata.ctx.issues.errors == set()
    (document,), (image,) = list(found.records("documents")), list(found.records("images"))
    assert document["documents/split"] in (b"train", "train")
    assert document["documents/sentences"][1]["documents/sentences/text"] == b"Paint it."
    assert document["documents/links"] == [{"documents/links/sentence": 1, "documents/links/image": 0}]
    assert image["images/jpeg"].size == (4, 3)
    assert image["images/features.net"] == [1, 1, 1, 1]
    assert image["images/features.small"]["images/features.small/values"] == [1, 2, 3, 4]
    assert image["images/classes.likely"][0]["images/classes.likely/probability"] == 0.5
    assert image["images/split"] in (b"train", "train")
