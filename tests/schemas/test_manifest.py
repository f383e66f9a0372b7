"""Manifests: round trip, verification of every byte, differences."""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from schemas.features import FeatureColumn, FeatureKind, Storage
from schemas.lake import Folder, Lake
from schemas.manifest import FileEntry, Manifest, SplitStatistics, commit, diff, read_manifest, verify, version_name
from schemas.messages import IntegrityError

DATA = {
    "documents/train/part-00000-of-00001.parquet": b"documents",
    "images/train/part-00000-of-00001.parquet": b"images",
}


CONFIG = {"splits": {"seed": 0}}
INPUTS = {"records": "00"}
VERSION = version_name(CONFIG, INPUTS, {"documents": 1})


def make_manifest(**changes: object) -> Manifest:
    statistics = SplitStatistics(
        documents=1,
        images=1,
        sentences=1,
        unique_images=1,
        median_sentences=1,
        median_images=1,
        mean_sentences=1,
        mean_images=1,
        max_sentences=1,
        max_images=1,
        links=0,
        documents_with_known_links=0,
        density=None,
    )
    files = tuple(
        FileEntry(path=path, bytes=len(data), sha256=hashlib.sha256(data).hexdigest(), rows=1)
        for path, data in DATA.items()
    )
    manifest = Manifest(
        dataset="diy",
        version=VERSION,
        files=files,
        splits={"train": statistics},
        failures={"low-score": 2},
        stages={},
        features={"images": (FeatureColumn(name="efficientnet-lite0", dimensions=1280),), "documents": ()},
        config=CONFIG,
        inputs=INPUTS,
        schema_versions={"documents": 1},
    )
    return dataclasses.replace(manifest, **changes)  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    folder = Lake.at(str(tmp_path)).dataset("diy", VERSION)
    for path, data in DATA.items():
        folder.write(path, data)
    commit(Lake.at(str(tmp_path)), make_manifest())
    return folder


def test_feature_columns_read_back() -> None:
    columns = (
        FeatureColumn(name="detector", kind=FeatureKind.REGIONS, dimensions=2048, fingerprint="ab"),
        FeatureColumn(name="efficientnet-lite0", dimensions=1280, storage=Storage.INT8, fingerprint="cd"),
    )
    manifest = make_manifest(features={"images": columns, "documents": ()})
    found = Manifest.from_json(manifest.to_json())
    assert found == manifest and found.columns("images") == columns
    assert {kind: found.extractors("images", kind) for kind in FeatureKind} == {
        FeatureKind.VECTOR: {"efficientnet-lite0": 1280},
        FeatureKind.REGIONS: {"detector": 2048},
        FeatureKind.CLASSES: {},
    }
    assert found.extractors("documents") == {}


def test_a_committed_manifest_reads_back(folder: Folder, tmp_path: Path) -> None:
    manifest, found = read_manifest(Lake.at(str(tmp_path)), "diy")
    assert manifest == make_manifest()
    assert found == folder
    assert [entry.path for entry in manifest.parts("images", "train")] == ["images/train/part-00000-of-00001.parquet"]
    assert list(verify(manifest, folder)) == []


@pytest.mark.parametrize("byte", range(len(b"documents")))
def test_any_flipped_byte_is_found(folder: Folder, byte: int) -> None:
    data = bytearray(b"documents")
    data[byte] ^= 1
    folder.write("documents/train/part-00000-of-00001.parquet", bytes(data))
    (problem,) = verify(make_manifest(), folder)
    assert "SHA-256" in problem


def test_missing_extra_and_cut_files_are_found(folder: Folder) -> None:
    folder.delete("images/train/part-00000-of-00001.parquet")
    folder.write("images/train/.part.tmp", b"left over")
    folder.write("documents/train/part-00000-of-00001.parquet", b"docum")
    said = ("5 bytes, the manifest has 9", "missing", "extra file")
    problems = list(verify(make_manifest(), folder))
    assert [sum(words in problem for problem in problems) for words in said] == [1, 1, 1] and len(problems) == 3


def test_a_difference_names_the_key_and_both_values() -> None:
    new = make_manifest(config={"splits": {"seed": 7}}, failures={"low-score": 2, "not-found": 1})
    assert set(diff(make_manifest(), new)) == {"config.splits.seed: 0 -> 7", "failures.not-found: absent -> 1"}
    assert list(diff(new, new)) == []


@pytest.mark.parametrize("change", [{"version": "v2"}, {"inputs": {"records": "01"}}, {"config": {}}])
def test_a_manifest_that_does_not_make_its_own_version_is_found(folder: Folder, change: dict[str, Any]) -> None:
    (problem,) = verify(make_manifest(**change), folder)
    assert problem.startswith("manifest.json: of version")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"format": 1}', '{"format": 1, "files": [1]}', '{"format": 99}']
)
def test_what_is_no_manifest_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    Lake.at(str(tmp_path)).dataset("diy", "v1").write("manifest.json", text.encode())
    with pytest.raises(IntegrityError, match=r"diy/v1/manifest.json: .*manifest"):
        read_manifest(Lake.at(str(tmp_path)), "diy")


def test_a_committed_manifest_stays(folder: Folder, tmp_path: Path) -> None:
    before, lake = folder.read("manifest.json"), Lake.at(str(tmp_path))
    commit(lake, make_manifest())
    with pytest.raises(IntegrityError):
        commit(lake, dataclasses.replace(make_manifest(), failures={"low-score": 1}))
    assert folder.read("manifest.json") == before


def test_how_a_host_failed_for_the_moment_is_in_no_version() -> None:
    draft = make_manifest(failures={"timed-out": 1, "http-error": 2, "not-found": 4})
    assert draft.lasting.failures == {"not-found": 4, "unreached": 3}
    assert draft.lasting.lasting == draft.lasting


@pytest.mark.parametrize(
    "changes",
    [
        {"dataset": "../../evil"},
        {"version": "../x"},
        {"files": [{"path": "../x", "bytes": 1, "sha256": "", "rows": 0}]},
    ],
)
def test_a_manifest_that_leads_out_of_its_lake_is_none(changes: dict[str, Any]) -> None:
    values = json.loads(make_manifest().to_json())
    with pytest.raises(IntegrityError):
        Manifest.from_json(json.dumps(values | changes))
