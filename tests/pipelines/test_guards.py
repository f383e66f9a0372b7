"""What keeps a data set honest, through the whole build: leaks between splits, and takedowns."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from builds import PLAIN, build, read_table

from pipelines.config import recipe
from pipelines.run import build_dataset
from schemas.errors import BuildError, UsageError
from schemas.lake import Folder, Lake
from schemas.manifest import verify
from schemas.overrides import override


@pytest.fixture
def leaking(ten_documents: Path) -> Path:
    """Give the documents splits: p0 to p5 train, p6 and p7 validate, p8 and p9 test; p8 shows a picture of p1."""
    lines = []
    for line in ten_documents.read_text(encoding="utf-8").splitlines()[:10]:
        record = json.loads(line)
        number = int(record["id"][1:])
        record["split"] = "train" if number < 6 else "val" if number < 8 else "test"
        lines.append(json.dumps(record))
    ten_documents.write_text("\n".join(lines) + "\n", encoding="utf-8")
    pictures = ten_documents.parent / "pictures"
    (pictures / "8-2.png").write_bytes((pictures / "1-0.png").read_bytes())
    return ten_documents


def test_a_leak_is_listed_and_counted(leaking: Path, tmp_path: Path) -> None:
    summary = build(leaking, tmp_path / "lake", *PLAIN)
    ends = {(row["kind"], row["document"]) for row in read_table(summary, "leaks").to_pylist()}
    assert ends == {("exact-image", "p1"), ("exact-image", "p8")}
    assert list(verify(summary.manifest, Folder(summary.path))) == []


def test_a_leak_costs_the_training_side_its_document(leaking: Path, tmp_path: Path) -> None:
    summary = build(leaking, tmp_path / "lake", *PLAIN, "splits.on_leak=drop")
    left = {row["id"] for row in read_table(summary, "documents").to_pylist()}
    assert left == {f"p{number}" for number in range(10)} - {"p1"}
    assert summary.manifest.failures["leaked"] == 1


def test_a_leak_fails_the_build_where_it_shall(leaking: Path, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="exact-image"):
        build(leaking, tmp_path / "lake", *PLAIN, "splits.on_leak=fail")
    assert Lake.at(str(tmp_path / "lake")).versions("documents") == []


def test_what_is_taken_down_is_in_no_later_version(ten_documents: Path, tmp_path: Path) -> None:
    before = build(ten_documents, tmp_path / "lake", *PLAIN)
    picture = ten_documents.parent / "pictures" / "5-1.png"
    listed = tmp_path / "takedown.txt"
    listed.write_text(
        f"# asked for by their makers\nid:p3\nsha256:{hashlib.sha256(picture.read_bytes()).hexdigest()}\n",
        encoding="utf-8",
    )
    after = build(ten_documents, tmp_path / "lake", *PLAIN, f"takedown_list={listed}")
    assert after.manifest.version != before.manifest.version
    documents = {row["id"]: row for row in read_table(after, "documents").to_pylist()}
    assert documents.keys() == {f"p{number}" for number in range(10)} - {"p3"}
    assert len(documents["p5"]["images"]) == 2
    assert after.manifest.failures["taken-down"] == 2


@pytest.mark.parametrize("entry", ["id:unmistakable-id", "url:https://h.example/unmistakable-page"])
def test_a_version_does_not_name_what_is_taken_down(entry: str, ten_documents: Path, tmp_path: Path) -> None:
    """Its record has parts that fail, too, and stands there twice."""
    lines = ten_documents.read_text(encoding="utf-8").splitlines()
    record = json.loads(lines[3]) | {"id": "unmistakable-id", "url": "https://h.example/unmistakable-page"}
    record |= {"links": [[99, 0]], "sentences": [*record["sentences"], " "]}
    lines[3] = json.dumps(record)
    lines.append(json.dumps(record | {"sentences": [*record["sentences"], "More."]}))
    lines += ['{"id": "unmistakable-id", "sentences": [], "images": []}'] * entry.startswith("id:")
    ten_documents.write_text("\n".join(lines) + "\n", encoding="utf-8")
    listed = tmp_path / "takedown.txt"
    listed.write_text(entry)
    before = build(ten_documents, tmp_path / "lake", *PLAIN)
    assert "unmistakable-id" in {row["record_id"] for row in read_table(before, "failures").to_pylist()}
    after = build(ten_documents, tmp_path / "lake", *PLAIN, f"takedown_list={listed}")
    assert len(read_table(after, "documents")) == 9
    for path in Path(after.path).rglob("*"):
        if path.is_file():
            data = repr(pq.read_table(path).to_pylist()).encode() if path.suffix == ".parquet" else path.read_bytes()
            assert b"unmistakable" not in data, path


def test_a_version_has_its_cards(ten_documents: Path, tmp_path: Path) -> None:
    summary = build(ten_documents, tmp_path / "lake", *PLAIN)
    card = (Path(summary.path) / "README.md").read_text(encoding="utf-8")
    croissant = json.loads((Path(summary.path) / "croissant.json").read_text(encoding="utf-8"))
    assert card.startswith("---\n")
    assert summary.manifest.version in card
    assert croissant["@type"] == "sc:Dataset"


@pytest.mark.parametrize("setting", ["source.documents=/nowhere/documents.jsonl", "features.images=nosuch"])
def test_a_refused_build_leaves_no_lake(ten_documents: Path, tmp_path: Path, setting: str) -> None:
    config = override(recipe("documents"), [f"source.documents={ten_documents}", setting])
    with pytest.raises(UsageError):
        build_dataset(config, lake=Lake.at(str(tmp_path / "lake")), say=lambda _: None)
    assert not (tmp_path / "lake").exists()
    Lake.at(str(tmp_path / "other")).root.write("mine.txt", b"mine")
    with pytest.raises(UsageError):
        build_dataset(config, lake=Lake.at(str(tmp_path / "other")), say=lambda _: None)
    assert (tmp_path / "other" / "mine.txt").exists()
