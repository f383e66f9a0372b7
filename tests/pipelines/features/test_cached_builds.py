"""Builds on one lake compute only what is missing, whichever extractors, images and storage they want."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from typer.testing import CliRunner

from orchestration.cli import app
from pipelines.card.show import describe
from pipelines.config import recipe
from pipelines.run import BuildSummary, build_dataset
from pipelines.sweep import sweep_lake
from schemas.documents import Split
from schemas.features import FeatureKind, Storage
from schemas.lake import Folder, Lake
from schemas.manifest import Manifest, diff, read_manifest, verify
from schemas.overrides import override
from training.data.documents import DocumentSet
from training.data.lake import Columns, read_split

Say = Callable[[str], None]


def build(path: Path, lake: Lake, quiet: Say, *settings: str) -> BuildSummary:
    fixed = [f"source.documents={path}", "features.sentences=lengths", "features.threads=1"]
    config = override(recipe("documents"), [*fixed, *settings])
    return build_dataset(config, lake=lake, say=quiet)


def add_document(path: Path) -> None:
    """Add a document of one image that no extractor can use, one that is there already, and a new one."""
    Image.new("RGB", (100, 90), "white").save(path.parent / "pictures" / "white.png")
    Image.new("RGB", (100, 90), "red").save(path.parent / "pictures" / "red.png")
    images = [{"path": f"pictures/{name}.png"} for name in ("white", "0-0", "red")]
    links = [[0, 0], [0, 1], [1, 2]]
    added = {"id": "added", "sentences": ["New words.", "And more."], "images": images, "links": links}
    with path.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(added) + "\n")


def images_of(summary: BuildSummary) -> dict[str, dict[str, object]]:
    paths = [entry.path for entry in summary.manifest.files if entry.path.startswith("images/")]
    table = pa.concat_tables(pq.read_table(Path(summary.path) / path, partitioning=None) for path in paths)
    return {str(row["source"]): row for row in table.to_pylist()}


def read_all(manifest: Manifest, folder: Folder) -> DocumentSet:
    columns = Columns(images="colours", sentences="auto", regions="auto", classes="auto")
    return read_split(manifest, folder, Split.TRAIN, columns)


def test_a_data_set_grows_by_what_is_missing(
    ten_documents: Path, tmp_path: Path, quiet: Say, counts: Counter[str]
) -> None:
    lake = Lake.at(str(tmp_path / "lake"))
    first = build(ten_documents, lake, quiet, "features.images=cells")
    assert counts == {"cells": 30, "lengths": 10, "sentences": 40}

    add_document(ten_documents)
    second = build(
        ten_documents, lake, quiet, "features.images=cells,hues,colours", "features.storage=int8", "features.device=cpu"
    )
    assert counts == {"cells": 30 + 2, "hues": 32, "colours": 32, "lengths": 11, "sentences": 42}
    assert second.manifest.version != first.manifest.version

    # What an extractor rejected is told, with its document left without it and its links counted anew.
    assert second.manifest.failures["feature-missing"] == 1
    assert second.manifest.stages["features"] == {"in": 32, "out": 31, "rejected": 0, "failed": 1}
    images = images_of(second)
    assert len(images) == 31
    assert "pictures/white.png" not in images
    documents = Path(second.path) / "documents"
    rows = {row["id"]: row for path in documents.rglob("*.parquet") for row in pq.read_table(path).to_pylist()}
    assert [image["source"] for image in rows["added"]["images"]] == ["pictures/0-0.png", "pictures/red.png"]
    assert [(link["sentence"], link["image"]) for link in rows["added"]["links"]] == [(0, 0), (1, 1)]

    # Values are those of the first build where there were any, and those of the pictures everywhere.
    for source, row in images_of(first).items():
        assert images[source]["regions.cells"] == row["regions.cells"]
    red = images["pictures/red.png"]
    assert [region["label"] for region in red["regions.cells"]] == ["red"] * 4  # type: ignore[attr-defined]
    assert red["classes.hues"][0]["label"] == "red"  # type: ignore[index]
    assert list(verify(second.manifest, Folder(second.path))) == []

    # The manifest tells of each column; both versions are read by training.
    manifest, folder = read_manifest(lake, "documents")
    assert manifest.extractors("images") == {"colours": 12}
    assert {column.name: (column.kind, column.dimensions) for column in manifest.columns("images")} == {
        "cells": (FeatureKind.REGIONS, 3),
        "colours": (FeatureKind.VECTOR, 12),
        "hues": (FeatureKind.CLASSES, 0),
    }
    assert manifest.columns("documents")[0].storage is Storage.INT8
    assert all(column.fingerprint for column in manifest.columns("images"))
    assert any("regions.cells" in line and "3 float16 values" in line for line in describe(manifest, ""))
    differences = list(diff(first.manifest, manifest))
    assert any(line.startswith("features.images.colours.dimensions: absent -> ") for line in differences)
    check_banks(read_all(manifest, folder), images)
    check_sweep(lake, folder)


def check_banks(found: DocumentSet, images: dict[str, dict[str, object]]) -> None:
    """Check that training reads what the parts hold, in the order of the image vectors."""
    by_hash = {str(row["hash"]): row for row in images.values()}
    regions, classes = found.regions, found.classes
    assert regions is not None and classes is not None and found.sentence_vectors is not None
    assert regions.images.offsets.tolist() == list(range(0, 4 * len(found.image_hashes) + 1, 4))
    for row, key in enumerate(found.image_hashes):
        stored = by_hash[key]["regions.cells"]
        mine = regions.images.rows(row)
        assert list(regions.labels[mine]) == [region["label"] for region in stored]  # type: ignore[attr-defined]
        assert regions.vectors[mine].tolist() == [region["vector"] for region in stored]  # type: ignore[attr-defined]
        shares = [(label["label"], label["probability"]) for label in by_hash[key]["classes.hues"]]  # type: ignore[attr-defined]
        assert list(zip(classes.labels[row], classes.probabilities[row].tolist(), strict=True)) == shares
        vector = by_hash[key]["features.colours"]
        expected = np.float32(vector["scale"]) * np.array(vector["values"], np.float32)  # type: ignore[index]
        np.testing.assert_array_equal(found.image_bank[row], expected)
    lengths = np.array([(len(text), len(text.split())) for text in found.texts])
    np.testing.assert_allclose(found.sentence_vectors, lengths, atol=lengths.max() / 254 + 1e-4)


def check_sweep(lake: Lake, folder: Folder) -> None:
    """Check that a sweep deletes what no version uses, and no more, and nothing young."""
    before = sorted(lake.root.files())
    lake.features.child("hues", "0" * 16).write("one.parquet", b"123")
    lake.images.child("of-another-method").write("one.parquet", b"1")
    lake.dataset("documents", "unfinished").write("documents/train/part.parquet", b"12345")
    (cells,) = lake.features.child("cells").names()
    lake.features.child("cells", cells).write(".one.parquet.0123.tmp", b"12")
    later = time.time() + 2 * 86_400
    assert sweep_lake(lake, dry_run=False).paths == ()
    found = sweep_lake(lake, dry_run=True, now=later)
    assert found == sweep_lake(lake, dry_run=False, now=later)
    own = [path for path in found.paths if not path.startswith("builds/")]
    assert own == [
        "datasets/documents/unfinished/documents/train/part.parquet",
        f"features/cells/{cells}/.one.parquet.0123.tmp",
        f"features/hues/{'0' * 16}/one.parquet",
        "images/of-another-method/one.parquet",
    ]
    assert [path for path in before if not path.startswith("builds/")] == [
        path for path in sorted(lake.root.files()) if not path.startswith("builds/")
    ]

    folder.delete("manifest.json")  # the other version was made of cells and lengths alone
    result = CliRunner().invoke(app, ["lake", "sweep", "--lake", lake.root.uri, "--json", "--dry-run"])
    assert json.loads(result.stdout.splitlines()[-1]) == {"paths": [], "bytes": 0, "dry_run": True}
    sweep_lake(lake, dry_run=False, now=later)
    assert {name.split("/")[0] for name in lake.features.files()} == {"cells", "lengths"}
