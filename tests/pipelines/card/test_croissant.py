"""croissant.json has every part with its hash, and a field for every column; mlcroissant accepts and reads it."""

import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipelines.card.croissant import croissant
from pipelines.shards.writing import write_rows
from schemas.document_rows import to_row
from schemas.documents import Document, ImageRef, Link, Provenance, Sentence, Split, document_schema, image_schema
from schemas.features import FeatureColumn, FeatureKind, Storage
from schemas.lake import Folder
from schemas.manifest import FileEntry, Manifest

PART = "part-00000-of-00001.parquet"
DOCUMENTS = FileEntry(path=f"documents/train/{PART}", bytes=1234, sha256="d" * 64, rows=5)
IMAGES = FileEntry(path=f"images/train/{PART}", bytes=99, sha256="1" * 64, rows=7)
FAILURES = FileEntry(path=f"failures/{PART}", bytes=5, sha256="f" * 64, rows=1)
CARD = FileEntry(path="README.md", bytes=5, sha256="c" * 64, rows=0)


FEATURES = {
    "images": (FeatureColumn(name="resnet152", dimensions=2048),),
    "documents": (FeatureColumn(name="use-multilingual", dimensions=512),),
}


def make_manifest(*files: FileEntry) -> Manifest:
    return Manifest(
        dataset="news",
        version="00000000000000e5",
        files=tuple(sorted(files)),
        splits={},
        failures={},
        stages={},
        features=FEATURES,
        config={},
        inputs={},
        schema_versions={},
    )


def describe(*files: FileEntry) -> Any:
    return json.loads(croissant(make_manifest(*files)))


def field(description: Any, record_set: str, name: str) -> Any:
    (records,) = (item for item in description["recordSet"] if item["@id"] == record_set)
    (found,) = (item for item in records["field"] if item["@id"] == f"{record_set}/{name}")
    return found


def test_the_data_set_conforms_and_is_named() -> None:
    description = describe(DOCUMENTS, IMAGES)
    assert description["@type"] == "sc:Dataset"
    assert description["conformsTo"] == "http://mlcommons.org/croissant/1.0"
    assert (description["name"], description["version"]) == ("news", "1.0.0+00000000000000e5")


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


def test_every_column_is_a_field_and_images_take_their_split_from_the_path() -> None:
    description = describe(DOCUMENTS, IMAGES)
    names = {records["@id"]: [item["@id"] for item in records["field"]] for records in description["recordSet"]}
    documents, images = document_schema(FEATURES["documents"]).names, image_schema(FEATURES["images"]).names
    assert names == {
        "documents": [f"documents/{name}" for name in documents],
        "images": [*(f"images/{name}" for name in images), "images/split"],
    }
    assert field(description, "images", "split")["source"] == {
        "fileSet": {"@id": "images-parts"},
        "extract": {"fileProperty": "fullpath"},
        "transform": {"regex": "images/([^/]+)/.+"},
    }


def test_fields_have_the_types_of_their_columns() -> None:
    description = describe(DOCUMENTS, IMAGES)
    types = {
        name: field(description, "images", name)["dataType"]
        for name in ("hash", "width", "is_flat", "jpeg", "features.resnet152")
    }
    assert types == {
        "hash": "sc:Text",
        "width": "sc:Integer",
        "is_flat": "sc:Boolean",
        "jpeg": "sc:ImageObject",
        "features.resnet152": "sc:Float",
    }
    assert field(description, "images", "features.resnet152")["repeated"] is True
    assert "repeated" not in field(description, "images", "jpeg")
    assert field(description, "documents", "split")["dataType"] == ["sc:Text", "cr:Split"]


def test_lists_of_structs_repeat_and_have_subfields() -> None:
    links = field(describe(DOCUMENTS, IMAGES), "documents", "links")
    assert links["repeated"] is True
    assert "dataType" not in links
    assert [(item["@id"], item["dataType"], item["source"]["transform"]) for item in links["subField"]] == [
        ("documents/links/sentence", "sc:Integer", {"jsonPath": "sentence"}),
        ("documents/links/image", "sc:Integer", {"jsonPath": "image"}),
    ]


def test_a_version_without_parts_describes_no_records() -> None:
    description = describe(FAILURES)
    assert (description["distribution"], description["recordSet"]) == ([], [])


def test_regions_classes_and_scaled_vectors_have_subfields() -> None:
    columns = (
        FeatureColumn(name="detector", kind=FeatureKind.REGIONS, dimensions=4),
        FeatureColumn(name="likely", kind=FeatureKind.CLASSES, dimensions=0),
        FeatureColumn(name="small", dimensions=4, storage=Storage.INT8),
    )
    manifest = dataclasses.replace(make_manifest(DOCUMENTS, IMAGES), features={"images": columns})
    description = json.loads(croissant(manifest))
    found = {
        name: {
            item["name"].rsplit("/", 1)[-1]: (item["dataType"], item.get("repeated", False))
            for item in field(description, "images", name)["subField"]
        }
        for name in ("regions.detector", "classes.likely", "features.small")
    }
    assert found == {
        "regions.detector": {"label": ("sc:Text", False), "score": ("sc:Float", False)},
        "classes.likely": {"label": ("sc:Text", False), "probability": ("sc:Float", False)},
        "features.small": {"scale": ("sc:Float", False), "values": ("sc:Integer", True)},
    }
    assert field(description, "images", "regions.detector")["repeated"]
    assert "repeated" not in field(description, "images", "features.small")


EVERY_KIND = {
    "images": (
        FeatureColumn(name="likely", kind=FeatureKind.CLASSES, dimensions=0),
        FeatureColumn(name="detector", kind=FeatureKind.REGIONS, dimensions=4),
        FeatureColumn(name="net", dimensions=4),
        FeatureColumn(name="small", dimensions=4, storage=Storage.INT8),
    ),
    "documents": (FeatureColumn(name="use", dimensions=3),),
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
    picture = io.BytesIO()
    Image.new("RGB", (4, 3)).save(picture, "JPEG")
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
    rows["images"] |= {"hash": "00", "width": 4, "is_flat": True, "jpeg": picture.getvalue()}
    return tuple(write_rows(folder, f"{table}/train/{PART}", [rows[table]], schemas[table]) for table in rows)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of its own libraries
def test_mlcroissant_accepts_it_and_reads_every_column(tmp_path: Path) -> None:
    import mlcroissant

    folder = Folder(str(tmp_path))
    manifest = dataclasses.replace(make_manifest(*written_parts(folder)), features=EVERY_KIND)
    folder.write("croissant.json", croissant(manifest).encode())
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
