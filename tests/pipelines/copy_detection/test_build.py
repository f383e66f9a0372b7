"""A build finds crops and frames that hashes miss."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from builds import build, rows
from PIL import Image

from pipelines.card.show import describe
from schemas.errors import ConfigError
from schemas.lake import Folder
from schemas.manifest import verify

SEARCHED = tuple(
    f"copy_detection.{each}" for each in ("extractor=efficientnet-lite0", "cosine=0.75", "policy=keep-first")
)
FIXED = ("features.sentences=", "splits.val=0", "splits.test=0")


@pytest.fixture
def documents(tmp_path: Path, photographs: dict[str, bytes]) -> Path:
    """Write a document a photograph, and one more with the cat cropped and the cat framed."""
    folder, records = tmp_path / "own", []
    folder.mkdir()
    for name in ("cat", "coffee", "flower"):
        (folder / f"{name}.jpg").write_bytes(photographs[name])
        records.append({"id": name, "sentences": [f"A {name}."], "images": [{"path": f"{name}.jpg"}]})
    with Image.open(folder / "cat.jpg") as cat:
        width, height = cat.size
        cat.crop((width // 8, height // 8, width * 7 // 8, height * 7 // 8)).save(folder / "crop.png")
        sheet = Image.new("RGB", (width * 5 // 4, height * 5 // 4), "white")
        sheet.paste(cat, (width // 8, height // 8))
        sheet.save(folder / "frame.png")
    records.append({"id": "copies", "sentences": ["Twice."], "images": [{"path": "crop.png"}, {"path": "frame.png"}]})
    path = folder / "documents.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def test_crops_and_frames_are_found_that_hashes_miss(documents: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    plain = build(documents, lake, *FIXED)
    assert rows(plain, "duplicates") == rows(plain, "near-copies") == []
    assert "near_copies" not in plain.manifest.notes
    summary = build(documents, lake, *FIXED, *SEARCHED)
    found = rows(summary, "near-copies")
    of = {image["source"]: image["hash"] for image in rows(plain, "images")}
    cats = {of[name] for name in ("cat.jpg", "crop.png", "frame.png")}
    assert {row["image"] for row in found} == cats
    assert {row["cluster"] for row in found} == {min(cats)}
    vectors = {row["hash"]: row["features.efficientnet-lite0"] for row in rows(plain, "images")}

    def cosine(first: str, second: str) -> float:
        left, right = pa.array(vectors[first]).to_numpy(), pa.array(vectors[second]).to_numpy()
        left, right = left.astype(float), right.astype(float)
        return float(left @ right / ((left @ left) * (right @ right)) ** 0.5)

    for row in found:
        nearest = max(cats - {row["image"]}, key=lambda other: cosine(row["image"], other))
        assert row["nearest"] == nearest
        assert row["cosine"] == pytest.approx(cosine(row["image"], nearest), abs=1e-6)
        assert row["is_dropped"] == (row["document"] == "copies")
    assert {row["id"] for row in rows(summary, "documents")} == {"cat", "coffee", "flower"}
    assert [row["record_id"] for row in rows(summary, "failures")] == ["copies"]
    assert summary.manifest.stages["copy-detection"] == {"in": 4, "out": 3, "rejected": 1, "failed": 0}
    assert any(
        line.startswith("near copies by vectors: 3 images in 1 clusters")
        for line in describe(summary.manifest, Folder(summary.path))
    )
    assert list(verify(summary.manifest, Folder(summary.path))) == []


def test_settings_that_cannot_work_are_refused(documents: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with pytest.raises(ConfigError, match=r"must be one of features\.images: efficientnet-lite0"):
        build(documents, lake, *FIXED, "copy_detection.extractor=sscd")
