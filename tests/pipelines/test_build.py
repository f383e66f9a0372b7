"""The whole build on Beam's local runner, on ten hand-written documents."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from builds import PLAIN, adds_up, build, documents_of, rows, tree
from picture_files import smooth
from servers import beam_services
from ten_documents import write_ten

from newsroom.search.reader import Extraction, add_vectors
from newsroom.search.reader import documents_of as documents_of_linking
from pipelines.config import recipe
from pipelines.documents.rules import SettledDocument
from pipelines.images.inspect import copy_packs
from pipelines.images.obtain import ImageAccess
from pipelines.run import BuildSummary, features_of, memory_lines
from pipelines.settings import Runner
from pipelines.sources.datasets.documents import DocumentsSource
from schemas.document_rows import to_row
from schemas.documents import Split
from schemas.failures import FAILURE_SCHEMA
from schemas.lake import Folder, Lake
from schemas.manifest import verify
from schemas.messages import BuildError, UsageError
from schemas.overrides import override
from schemas.parts import measured_ranges
from schemas.tables import check_schema

BEFORE_SPLITS = ("id", "sentences", "images", "links")


@pytest.fixture(scope="module")
def ten(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, BuildSummary]:
    """Give the file of ten documents, and its version with vectors in several shards."""
    path = write_ten(tmp_path_factory.mktemp("ten") / "own")
    return path, build(path, path.parents[1] / "lake", "shards.documents=4")


def test_ten_documents_are_built_and_what_is_wrong_is_named(ten: tuple[Path, BuildSummary]) -> None:
    _, summary = ten
    values = summary.to_json()
    splits = values["splits"].values()
    totals = {name: sum(split[name] for split in splits) for name in ("documents", "images", "sentences")}
    assert totals == {"documents": 10, "images": 30, "sentences": 40} and all(split["documents"] for split in splits)
    assert values["failures"] == {"broken-record": 1, "empty-document": 1, "not-found": 1}
    assert adds_up(summary) and "quality" not in summary.manifest.stages
    failures = {(row["record_id"], row["image"]): row["reason"] for row in rows(summary, "failures")}
    assert failures == {
        ("documents.jsonl:11", None): "broken-record", ("empty", None): "empty-document", ("p4", 1): "not-found",
    }  # fmt: skip
    assert list(verify(summary.manifest, Folder(summary.path))) == []
    measured = {name: asdict(found) for name, found in measured_ranges(summary.manifest, Folder(summary.path)).items()}
    assert summary.manifest.notes["vectors"] == measured and all(found["count"] for found in measured.values())


def test_rules_can_wait_for_valid_images_and_for_duplicates(tmp_path: Path) -> None:
    """Hessel 2019 fetches, compares all posts, and then counts captions and valid images."""
    folder = tmp_path / "own"
    folder.mkdir()
    for number in range(44):
        smooth(90, 90, number).save(folder / f"{number}.png")
    long, short = "We glued five boards together.", "Too short."
    made = {
        "album": (long, [*range(40), "dead"]),
        "one caption": (short, [40, 41]),
        "its twin": (long, [41, 42]),
        "one valid image": (long, [43, "gone"]),
    }
    records = [
        {"id": name, "sentences": [text] * 2, "images": [{"path": f"{image}.png"} for image in images]}
        for name, (text, images) in made.items()
    ]
    path = folder / "documents.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    rules = ("min_long_sentences=2", "long_sentence_tokens=5", "min_images=2", "max_images=40")
    settings = [f"documents.{rule}" for rule in rules]
    settings += ["documents.is_judged_after_dedupe=true", "dedupe.policy=drop-documents"]
    summary = build(path, tmp_path / "lake", *PLAIN, *settings)
    kept = {key: len(row["images"]) for key, row in documents_of(summary).items()}
    lost = {
        row["record_id"]: (row["stage"], row["reason"])
        for row in rows(summary, "failures")
        if row["record_id"] in made and row["image"] is None
    }
    assert kept == {"album": 40}
    assert lost == {
        "one caption": ("dedupe", "duplicate-image"),
        "its twin": ("dedupe", "duplicate-image"),
        "one valid image": ("rules", "too-few-images"),
    }
    assert "rules" in summary.manifest.stages and adds_up(summary)


def test_shards_hold_the_documents_their_links_and_their_vectors(ten: tuple[Path, BuildSummary]) -> None:
    _, summary = ten
    documents, images = documents_of(summary), {row["hash"]: row for row in rows(summary, "images")}
    assert [(link["sentence"], link["image"]) for link in documents["p4"]["links"]] == [(0, 0), (2, 2)]
    assert documents["p9"]["links"] is None
    assert documents["p0"]["sentences"][3] == {"text": "The end of project 0.", "role": "caption"}
    for row in documents.values():
        assert len(row["features.use-multilingual"]) == len(row["sentences"])
        assert all(len(vector) == 512 for vector in row["features.use-multilingual"])
        for image in row["images"]:
            assert images[image["hash"]]["source"] == image["source"]
            assert len(images[image["hash"]]["features.efficientnet-lite0"]) == 1280
    parts = [entry.path for entry in summary.manifest.files if "train" in entry.path and "documents" in entry.path]
    assert len(parts) == 2
    for path in parts:
        refs = {i["hash"] for row in pq.read_table(Path(summary.path) / path).to_pylist() for i in row["images"]}
        held = pq.read_table(Path(summary.path) / path.replace("documents", "images"))
        assert sorted(refs) == held.column("hash").to_pylist()
    failures = next(entry.path for entry in summary.manifest.files if entry.path.startswith("failures"))
    check_schema(pq.read_schema(Path(summary.path) / failures), FAILURE_SCHEMA, where=failures)


def test_the_plain_path_equals_the_beam_path(ten: tuple[Path, BuildSummary], tmp_path: Path) -> None:
    path, summary = ten
    config = override(recipe("documents"), [f"source.documents={path}"])
    scratch = Lake.at(str(tmp_path / "scratch"))
    access = ImageAccess(
        http=config.http,
        raw=scratch.raw,
        copies=copy_packs(scratch, config.images, config.dedupe.fingerprint),
        files=str(path.parent),
        config=config.images,
        fingerprint=config.dedupe.fingerprint,
    )
    found = list(documents_of_linking(DocumentsSource(documents=str(path)).read(), config.documents, access))
    documents = [item for item in found if isinstance(item, SettledDocument)]
    extraction = Extraction(plan=features_of(config, lake=scratch, workers=1), vectors="efficientnet-lite0")
    vectors = list(add_vectors(documents, config.documents, access.copies, extraction))
    settled = {each.document.id: each.document for each in documents}
    left, images = documents_of(summary), {row["hash"]: row for row in rows(summary, "images")}
    assert len(found) - len(documents) == sum(summary.manifest.failures.values())
    for item in vectors:
        row = left.pop(item.id)
        expected = to_row(replace(settled[item.id], split=Split.TRAIN))
        assert {name: row[name] for name in BEFORE_SPLITS} == {name: expected[name] for name in BEFORE_SPLITS}
        np.testing.assert_array_equal(np.array(row["features.use-multilingual"], np.float16), item.sentence_vectors)
        assert [image["source"] for image in row["images"]] == item.sources
        vectors_of_images = [images[image["hash"]]["features.efficientnet-lite0"] for image in row["images"]]
        np.testing.assert_array_equal(np.array(vectors_of_images, np.float16), item.image_vectors)
    assert left == {}


def test_a_second_build_gives_the_same_version_and_bytes(ten_documents: Path, tmp_path: Path) -> None:
    """Elsewhere, in the same lake, and where a killed run left a part of it."""
    first = build(ten_documents, tmp_path / "one", *PLAIN)
    held = tree(first.path)
    assert build(ten_documents, tmp_path / "one", *PLAIN).is_reused
    (Path(first.path) / "manifest.json").unlink()
    (Path(first.path) / "documents" / "train" / ".part.tmp").write_bytes(b"half a file")
    again = build(ten_documents, tmp_path / "one", *PLAIN)
    assert again.manifest == first.manifest and not again.is_reused
    assert list(verify(again.manifest, Folder(again.path))) == []
    moved = ten_documents.parent.rename(tmp_path / "elsewhere") / ten_documents.name
    second = build(moved, tmp_path / "two", *PLAIN)
    assert second.manifest == first.manifest
    assert tree(second.path) == held


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        (["source.documents=nowhere.jsonl"], UsageError, "source.documents = 'nowhere.jsonl': no such file"),
        (["source.documents="], UsageError, "expected the path of a file"),
        (["documents.min_images=9"], BuildError, r"(?s)no document is left of documents:.* times: .*all failures: "),
    ],
)
def test_a_build_that_cannot_be_says_why(
    ten_documents: Path, tmp_path: Path, settings: list[str], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        build(ten_documents, tmp_path / "lake", *PLAIN, *settings)
    assert Lake.at(str(tmp_path / "lake")).versions("documents") == []


@pytest.mark.slow
def test_every_runner_gives_the_same_bytes(ten_documents: Path, tmp_path: Path) -> None:
    """Documents that share a picture are dropped, as the policy says."""
    pictures = ten_documents.parent / "pictures"
    (pictures / "2-1.png").write_bytes((pictures / "7-0.png").read_bytes())
    settings = ("features.images=colour-shape", "features.sentences=", "dedupe.policy=drop-documents")
    expected = build(ten_documents, tmp_path / "one", *settings)
    dropped = {row["document"] for row in rows(expected, "duplicates") if row["is_dropped"]}
    assert {"p2", "p7"} <= dropped and expected.manifest.failures["duplicate-image"] == len(dropped)
    assert documents_of(expected).keys() == {f"p{number}" for number in range(10)} - dropped
    (tmp_path / "beam").mkdir()
    with beam_services(tmp_path / "beam", workers=1) as options:
        by_service = build(
            ten_documents, tmp_path / "portable", *settings, runner=Runner.PORTABLE, beam_options=options
        )
    for found in (by_service, build(ten_documents, tmp_path / "two", *settings, workers=2)):
        assert tree(found.path) == tree(expected.path)


def test_the_end_of_a_build_says_what_is_remembered_and_how_to_ask_again() -> None:
    hosts = {("a.test", "not-found"): 2, ("b.test", "not-found"): 3, ("b.test", "timed-out"): 4}
    passing, remembered, again = memory_lines(hosts)
    assert " 4;" in passing and "not-found 5" in remembered and again.endswith("--ask-again")
    assert memory_lines({("a.test", "robots-denied"): 1}) == []
