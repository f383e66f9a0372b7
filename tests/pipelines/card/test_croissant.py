"""croissant.json has every part with its hash, and a field for every column; mlcroissant accepts and reads it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from picture_files import file_of, noise

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


EVERY_KIND = {
    "images": (
        FeatureColumn(name="likely", kind=FeatureKind.CLASSES, dimensions=0),
        FeatureColumn(name="detector", kind=FeatureKind.REGIONS, dimensions=4),
        FeatureColumn(name="net", dimensions=4),
        FeatureColumn(name="small", dimensions=4, storage=Storage.INT8),
    ),
    "documents": (FeatureColumn(name="use", dimensions=3),),
}


def make_manifest(*files: FileEntry) -> Manifest:
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
    return json.loads(croissant(make_manifest(*files)))


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
    folder.write("croissant.json", croissant(make_manifest(*written_parts(folder))).encode())
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
