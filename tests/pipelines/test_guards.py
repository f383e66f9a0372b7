"""What keeps a data set honest, through the whole build: leaks between splits, and takedowns."""

import hashlib
import io
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from builds import PLAIN, build, documents_of, rows, tree

from schemas.lake import Folder, Lake
from schemas.manifest import verify
from schemas.messages import UsageError


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


def test_a_leak_is_listed_and_costs_the_training_side_its_document(leaking: Path, tmp_path: Path) -> None:
    summary = build(leaking, tmp_path / "lake", *PLAIN, "splits.on_leak=drop")
    ends = {(row["kind"], row["document"]) for row in rows(summary, "leaks")}
    assert ends == {("exact-image", "p1"), ("exact-image", "p8")}
    assert list(verify(summary.manifest, Folder(summary.path))) == []
    assert documents_of(summary).keys() == {f"p{number}" for number in range(10)} - {"p1"}
    assert summary.manifest.failures["leaked"] == 1


def test_a_version_does_not_name_what_is_taken_down(ten_documents: Path, tmp_path: Path) -> None:
    """By its id, by its address, a picture by its bytes; records have parts that fail, too, and stand there twice."""
    lines = ten_documents.read_text(encoding="utf-8").splitlines()
    for number, about in ((3, {"id": "unmistakable-id"}), (5, {"id": "unmistakable", "url": "https://h.example/page"})):
        record = json.loads(lines[number]) | about | {"links": [[99, 0]]}
        record["sentences"].append(" ")
        lines[number] = json.dumps(record)
        lines.append(json.dumps(record | {"sentences": [*record["sentences"], "More."]}))
    lines.append('{"id": "unmistakable-id", "sentences": [], "images": []}')
    ten_documents.write_text("\n".join(lines) + "\n", encoding="utf-8")
    listed = tmp_path / "takedown.txt"
    picture = hashlib.sha256((ten_documents.parent / "pictures" / "6-1.png").read_bytes()).hexdigest()
    listed.write_text(f"# of their makers\nid:unmistakable-id\nurl:https://h.example/page\nsha256:{picture}\n")
    before = build(ten_documents, tmp_path / "lake", *PLAIN)
    assert {"unmistakable-id", "unmistakable"} <= {row["record_id"] for row in rows(before, "failures")}
    after = build(ten_documents, tmp_path / "lake", *PLAIN, f"takedown_list={listed}")
    assert after.manifest.version != before.manifest.version
    assert {key: len(row["images"]) for key, row in documents_of(after).items()} == {
        f"p{number}": 2 if number == 6 else 3 for number in range(10) if number not in (3, 5)
    }
    for path, data in tree(after.path).items():
        said = repr(pq.read_table(io.BytesIO(data)).to_pylist()).encode() if path.endswith(".parquet") else data
        assert not [word for word in (b"unmistakable", b"h.example/page", picture.encode()) if word in said], path


@pytest.mark.parametrize("setting", ["source.documents=/nowhere/documents.jsonl", "features.images=nosuch"])
def test_a_refused_build_leaves_no_lake(ten_documents: Path, tmp_path: Path, setting: str) -> None:
    with pytest.raises(UsageError):
        build(ten_documents, tmp_path / "lake", setting)
    assert not (tmp_path / "lake").exists()
    Lake.at(str(tmp_path / "other")).root.write("mine.txt", b"mine")
    with pytest.raises(UsageError):
        build(ten_documents, tmp_path / "other", setting)
    assert (tmp_path / "other" / "mine.txt").exists()
