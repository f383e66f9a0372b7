"""The stage in Beam, in one cell and in many, against a comparison of all images with all.

A build finds crops and frames that hashes miss.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from all_with_all import going
from apache_beam.testing.util import assert_that, equal_to
from builds import build, rows
from PIL import Image as Picture

from pipelines.card.show import describe
from pipelines.copy_detection.transforms import by_vector
from pipelines.dedupe.transforms import FindDuplicates
from pipelines.features.extraction import FeaturedDocument, FeaturedImage, FeaturePlan
from pipelines.features.values import IMAGES, feature_packs
from pipelines.images.inspect import PackedImage
from pipelines.launch import Runner, run_pipeline
from pipelines.settings import CopyDetectionConfig, FeaturesConfig, HttpConfig, Policy
from schemas.documents import Document, Image, Provenance
from schemas.duplicates import NearCopy
from schemas.features import FeatureColumn
from schemas.lake import Folder, Lake
from schemas.manifest import verify
from schemas.messages import ConfigError

LEAST = 0.9
COLUMN = FeatureColumn(name="cnn", dimensions=10, fingerprint="f" * 64)
CONFIG = CopyDetectionConfig(extractor="cnn", cosine=LEAST)


def hashed(number: int) -> str:
    return hashlib.sha256(f"image {number}".encode()).hexdigest()


def planned(lake: Lake) -> FeaturePlan:
    return FeaturePlan(
        images=(COLUMN,), sentences=(), config=FeaturesConfig(), http=HttpConfig(), lake=lake, copies="copies"
    )


def made_up(lake: Lake, vectors: np.ndarray, shown: Sequence[Sequence[int]], flat: int = -1) -> list[FeaturedDocument]:
    """Return documents that show images of these numbers; the vectors of all images are in the lake's packs."""
    writer = feature_packs(lake, COLUMN, IMAGES).writer()
    keys = [hashed(number) for number in range(len(vectors))]
    refs = writer.add({"key": keys, "value": list(vectors), "rejected": [None] * len(keys)})
    writer.close()
    found = []
    for number, images in enumerate(shown):
        whole = Document(f"d{number:03}", "made-up", (), (), None, Provenance("made-up", str(number)))
        pictures = [PackedImage(Image(keys[image], is_flat=image == flat)) for image in images]
        featured = [FeaturedImage(one, (refs[image],)) for one, image in zip(pictures, images, strict=True)]
        found.append(FeaturedDocument(whole, tuple(featured)))
    return found


def clouds(seed: int = 0) -> np.ndarray:
    """Return 40 directions with one to four copies each."""
    numbers = np.random.default_rng(seed)
    centres = np.repeat(numbers.normal(size=(40, 10)), numbers.integers(1, 5, 40), axis=0)
    return (centres + 0.05 * numbers.normal(size=centres.shape)).astype(np.float16).astype(np.float32)


def cosine(first: np.ndarray, second: np.ndarray) -> float:
    left, right = first.astype(float), second.astype(float)
    return round(float(left @ right / (np.linalg.norm(left) * np.linalg.norm(right))), 6)


def brute_force(vectors: np.ndarray, shown: Sequence[Sequence[int]], policy: Policy, flat: int) -> list[NearCopy]:
    images = sorted({image for some in shown for image in some if image != flat})
    near = {(a, b): value for a, b in combinations(images, 2) if (value := cosine(vectors[a], vectors[b])) >= LEAST}
    cluster = {image: {image} for image in images}
    for a, b in near:
        whole = cluster[a] | cluster[b]
        cluster |= dict.fromkeys(whole, whole)
    rows = []
    for number, some in enumerate(shown):
        for position, image in enumerate(some):
            others = [(-near[key], hashed(sum(key) - image)) for key in near if image in key]
            if others:
                value, nearest = min(others)
                name = min(map(hashed, cluster[image]))
                rows.append(NearCopy(name, f"d{number:03}", position, hashed(image), nearest, -value, False))
    gone = going(rows, policy)
    return sorted(replace(row, is_dropped=(row.document, row.cluster) in gone) for row in rows)


@pytest.mark.parametrize(("policy", "exact_below"), [(Policy.KEEP_FIRST, 1000), (Policy.DROP_DOCUMENTS, 5)])
def test_the_stage_gives_what_comparing_all_with_all_gives(policy: Policy, exact_below: int, tmp_path: Path) -> None:
    """Images that occur in several documents, an image twice in one, and a flat one among them."""
    lake, vectors = Lake.at(str(tmp_path)), clouds()
    numbers = np.random.default_rng(1)
    shown = [numbers.integers(len(vectors), size=3).tolist() for _ in range(50)]
    given, expected = made_up(lake, vectors, shown, flat=7), brute_force(vectors, shown, policy, flat=7)
    images, clusters = ({getattr(row, name) for row in expected} for name in ("image", "cluster"))
    assert len(clusters) > 15

    def assemble(root: beam.Pipeline) -> None:
        search = by_vector(CONFIG, planned(lake), exact_below=exact_below)
        assert search is not None
        found = root | beam.Create(given) | FindDuplicates(search, policy, rows=20)
        assert_that(found.duplicates, equal_to(expected), label="rows")
        gone = sorted({row.document for row in expected if row.is_dropped})
        assert_that(found.dropped | beam.Distinct(), equal_to(gone), label="dropped")
        counts = found.counts | beam.CombinePerKey(sum) | beam.Filter(lambda thing: thing[0][1] != "left")
        numbers = {"occurrences": expected, "images": images, "clusters": clusters}
        things = [(("near-copies", thing), len(those)) for thing, those in numbers.items()]
        assert_that(counts, equal_to(things), label="counts")

    run_pipeline(assemble, runner=Runner.LOCAL, workers=1)


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
    with Picture.open(folder / "cat.jpg") as cat:
        width, height = cat.size
        cat.crop((width // 8, height // 8, width * 7 // 8, height * 7 // 8)).save(folder / "crop.png")
        sheet = Picture.new("RGB", (width * 5 // 4, height * 5 // 4), "white")
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
    assert {(row["image"], row["cluster"]) for row in found} == {(cat, min(cats)) for cat in cats}
    vectors = {row["hash"]: row["features.efficientnet-lite0"] for row in rows(plain, "images")}

    def cosine(first: str, second: str) -> float:
        left, right = pa.array(vectors[first]).to_numpy(), pa.array(vectors[second]).to_numpy()
        left, right = left.astype(float), right.astype(float)
        return float(left @ right / ((left @ left) * (right @ right)) ** 0.5)

    for row in found:
        nearest = max(cats - {row["image"]}, key=lambda other: cosine(row["image"], other))
        assert (row["nearest"], row["is_dropped"]) == (nearest, row["document"] == "copies")
        assert row["cosine"] == pytest.approx(cosine(row["image"], nearest), abs=1e-6)
    assert {row["id"] for row in rows(summary, "documents")} == {"cat", "coffee", "flower"}
    assert [row["record_id"] for row in rows(summary, "failures")] == ["copies"]
    assert summary.manifest.stages["copy-detection"] == {"in": 4, "out": 3, "rejected": 1, "failed": 0}
    assert any(
        line.startswith("near copies by vectors: 3 images in 1 clusters")
        for line in describe(summary.manifest, Folder(summary.path))
    )
    assert list(verify(summary.manifest, Folder(summary.path))) == []


def test_settings_that_cannot_work_are_refused(documents: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"must be one of features\.images: efficientnet-lite0"):
        build(documents, tmp_path / "lake", *FIXED, "copy_detection.extractor=sscd")
