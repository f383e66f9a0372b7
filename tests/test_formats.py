"""What released versions wrote stays readable: `tests/fixtures/formats/<release>/`, made once by `make.py` there."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import multilink
from newsroom.archive.index import open_index
from pipelines.exports.subset import Selection, write_subset
from schemas.lake import Folder, Lake
from schemas.manifest import read_manifest, verify
from training.data.loading import read_for_model
from training.linking.links import Linker
from training.linking.records import LinksManifest
from training.model import LinkModel, folder_digest
from training.promotions.keys import trusted_keys
from training.promotions.record import trusted_statements

FORMATS = Path(__file__).parent / "fixtures" / "formats"
RELEASES = sorted(path for path in FORMATS.iterdir() if path.is_dir() and (path / "expected.json").is_file())


@pytest.fixture(params=RELEASES, ids=lambda path: path.name)
def release(request: pytest.FixtureRequest) -> tuple[Path, dict[str, Any]]:
    path: Path = request.param
    return path, json.loads((path / "expected.json").read_text())


def links_of(path: Path, expected: dict[str, Any]) -> Folder:
    return Lake(Folder(str(path / "lake"))).links("documents", expected["version"], expected["model"], "1")


def test_a_data_set_is_whole_and_read(release: tuple[Path, dict[str, Any]]) -> None:
    path, expected = release
    manifest, folder = read_manifest(Lake.at(str(path / "lake")), "documents")
    assert manifest.version == expected["version"]
    assert list(verify(manifest, folder)) == []
    data = multilink.open_dataset("documents", lake=str(path / "lake"))
    assert {split: data.table("documents", split=split).num_rows for split in data.splits} == expected["documents"]
    first = next(iter(data.torch("test", features=["features.efficientnet-lite0"])))
    assert len(first["sentences"]) == len(first["images"]) == len(first["features.efficientnet-lite0"]) == 2


def test_a_subset_of_it_is_whole(release: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """Also where a struct of its images has a field that is no longer read."""
    lake = Lake.at(str(shutil.copytree(release[0] / "lake", tmp_path / "lake")))
    subset = write_subset(lake, *read_manifest(lake, "documents"), Selection(share=0.5), say=lambda _: None)
    assert list(verify(subset, lake.dataset("documents", subset.version))) == []


def test_a_model_links_as_it_did(release: tuple[Path, dict[str, Any]]) -> None:
    path, expected = release
    model = LinkModel.load(path / "model")
    version = read_manifest(Lake.at(str(path / "lake")), "documents")
    documents = read_for_model(model.card.config.reading, model.card.data, *version, "val")
    rows = pq.read_table(Path(links_of(path, expected).uri) / "links" / "val").to_pylist()
    stored = {(row["document"], row["sentence"], row["image"]): row["similarity"] for row in rows}
    links = [link for each in Linker(model=model, uri="m").link_set(documents) for link in each.links]
    found = {(link.document, link.sentence, link.image): link.similarity for link in links}
    assert found == pytest.approx(stored, abs=1e-5) and len(found) == 2 * expected["documents"]["val"]


def test_links_of_a_version_are_read(release: tuple[Path, dict[str, Any]]) -> None:
    path, expected = release
    folder = links_of(path, expected)
    manifest = LinksManifest.from_json(folder.read("manifest.json").decode(), where=folder.uri)
    assert sum(counts.links for counts in manifest.splits.values()) == expected["links"]
    for entry in manifest.files:
        assert pq.read_table(Path(folder.uri) / entry.path).num_rows == entry.rows


def test_a_promotion_is_proved(release: tuple[Path, dict[str, Any]]) -> None:
    path, expected = release
    home = Lake.at(str(path / "lake")).promotions(expected["model"])
    (statement,) = trusted_statements(home, trusted_keys([path / "keys"]))
    says = statement.predicate
    assert (says["champions"], says["model"]["digest"]) == (["1"], folder_digest(path / "model"))
    assert says["decision"]["is_promoted"] is expected["is_promoted"] is True


def test_an_index_is_opened_or_made_anew_after_one_line(release: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    path, expected = release
    lake, name = Lake.at(str(shutil.copytree(path / "lake", tmp_path / "lake"))), f"{expected['model']}-1"
    folder = lake.index("documents", expected["version"], name)
    shutil.copytree(path / "model", Path(folder.uri) / "model")
    index = open_index(folder.uri)
    assert index.manifest.images == 2 * sum(expected["documents"].values())
    for vector in index.vectors.rows[np.arange(index.manifest.rows)]:
        assert index.vectors.nearest(vector, 1).scores[0] == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("path", RELEASES, ids=lambda path: path.name)
def test_every_release_is_small(path: Path) -> None:
    assert sum(each.stat().st_size for each in path.rglob("*") if each.is_file()) < 700_000
