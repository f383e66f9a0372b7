"""What changed between two versions: documents in and out, the reasons their failure rows give, and the Markdown."""

import os
import tracemalloc
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import lakes
import pytest

from pipelines.card.changes import NOT_IN_SOURCE, Changes, DocumentChange, as_markdown, changes_between, version_before
from pipelines.shards.writing import write_rows
from schemas.documents import Sentence, Split
from schemas.errors import IntegrityError
from schemas.failures import FAILURE_SCHEMA, Failure, Reason, Stage
from schemas.lake import MANIFEST, Lake
from schemas.manifest import read_manifest
from schemas.tables import row_of


def write(
    root: str, version: str, splits: Mapping[Split, Sequence[int]], failures: Sequence[Failure] = (),
    *, sentences: Mapping[int, Sequence[str]] | None = None,
) -> Lake:  # fmt: skip
    """Write a version of some of 12 documents, perhaps with other sentences, and its failures."""
    made = lakes.make_documents(Split.TRAIN, 12, lakes.World())
    for number, texts in (sentences or {}).items():
        documents = list(made.documents)
        documents[number] = replace(documents[number], sentences=tuple(map(Sentence, texts)))
        made = replace(made, documents=tuple(documents))
    chosen = {
        split: replace(made, documents=tuple(replace(made.documents[n], split=split) for n in numbers))
        for split, numbers in splits.items()
    }
    lake: Lake = lakes.write_lake(root, chosen, shards=2, version=version)
    manifest, folder = read_manifest(lake, f"synthetic@{version}")
    entry = write_rows(folder, "failures/part-00000-of-00001.parquet", [*map(row_of, failures)], FAILURE_SCHEMA)
    folder.write(MANIFEST, replace(manifest, files=(*manifest.files, entry)).to_json().encode())
    return lake


@pytest.fixture
def lake(tmp_path: object) -> Lake:
    few = Failure(Stage.RULES, "train-007", Reason.TOO_FEW_IMAGES, "expected 2 images, found 1")
    write(str(tmp_path), "v1", {Split.TRAIN: range(7), Split.TEST: (8, 9)}, [few])
    gone = [
        Failure(Stage.IMAGES, "train-001", Reason.NOT_FOUND, "404", image=2),
        Failure(Stage.SOURCES, "train-000", Reason.DELETED_RECORD, "taken `down` <b>"),
        Failure(Stage.SOURCES, "another", Reason.LOW_SCORE, "2"),
    ]
    return write(str(tmp_path), "v2", {Split.TRAIN: (2, 3, 4, 5, 7, 8, 10), Split.TEST: (9,)}, gone)


def test_documents_come_and_go_for_the_reasons_of_failure_rows(lake: Lake) -> None:
    found = changes_between(lake, "synthetic", "v1", "v2")
    assert [(each.document, each.after, each.reason, each.message) for each in found.added] == [
        ("train-007", "train", "too-few-images", "expected 2 images, found 1"),
        ("train-010", "train", NOT_IN_SOURCE, ""),
    ]
    assert [(each.document, each.before, each.reason, each.message) for each in found.removed] == [
        ("train-000", "train", "deleted-record", "taken `down` <b>"),
        ("train-001", "train", "not-found", "404"),
        ("train-006", "train", NOT_IN_SOURCE, ""),
    ]
    assert found.resplit == (DocumentChange(document="train-008", before="test", after="train"),)
    assert "splits.test.documents: 2 -> 1" in found.settings
    assert not [line for line in found.settings if line.startswith("files.")]


def test_documents_whose_text_changed_are_found_and_no_other(tmp_path: object) -> None:
    """Also where the same letters are divided otherwise."""
    count = len(lakes.make_documents(Split.TRAIN, 12, lakes.World()).documents[3].sentences)
    texts = ["ä b", "c", *["x"] * (count - 2)]
    kept = {Split.TRAIN: range(7)}
    lake = write(str(tmp_path), "v1", kept, sentences={3: texts, 4: texts})
    write(str(tmp_path), "v2", kept, sentences={3: ["ä ", "bc", *texts[2:]], 4: texts})
    found = changes_between(lake, "synthetic", "v1", "v2")
    assert found.rewritten == (DocumentChange(document="train-003", before="train", after="train"),)
    assert not found.added and not found.removed and not found.resplit and not found.is_nothing
    assert "**1 documents with another text**" in as_markdown(found) and "- `train-003` (train)" in as_markdown(found)


def test_backwards_it_is_the_other_way_round(lake: Lake) -> None:
    there, back = (changes_between(lake, "synthetic", *pair) for pair in (("v1", "v2"), ("v2", "v1")))
    assert [each.document for each in back.added] == [each.document for each in there.removed]
    assert {each.document: each.reason for each in back.removed}["train-007"] == "too-few-images"


def test_markdown_shows_what_others_wrote_as_code_and_nothing_else(lake: Lake) -> None:
    text = as_markdown(changes_between(lake, "synthetic", "v1", "v2"))
    assert text.startswith("Since v1:\n")
    assert "**2 documents added**: too-few-images 1, not in the source 1" in text
    assert "- `train-000` (train): deleted-record: `taken 'down' <b>`" in text
    assert "- `train-008`: test → train" in text
    assert as_markdown(changes_between(lake, "synthetic", "v1", "v1")) == "No difference to v1."


def test_markdown_is_bounded() -> None:
    added = tuple(DocumentChange(document=f"d{n}", before=None, after="train", reason="x") for n in range(100))
    found = Changes(dataset="d", before="1", after="2", added=added, removed=(), resplit=(), settings=())
    text = as_markdown(found)
    assert "**100 documents added**: x 100" in text and "- … and 70 more" in text
    assert len(text.splitlines()) < 40


def test_the_version_before_is_the_one_made_before(lake: Lake) -> None:
    for second, version in enumerate(("v2", "v1")):  # made in this order
        os.utime(lake.dataset("synthetic", version).local / MANIFEST, (1_000 + second, 1_000 + second))
    assert version_before(lake, "synthetic", "v1") == "v2"
    assert version_before(lake, "synthetic", "v2") is None


def test_a_damaged_part_is_said(lake: Lake) -> None:
    lake.dataset("synthetic", "v2").write("documents/train/part-00000-of-00002.parquet", b"PAR1")
    with pytest.raises(IntegrityError, match="damaged"):
        changes_between(lake, "synthetic", "v1", "v2")


def test_what_is_held_of_large_versions_is_their_difference(tmp_path: Path) -> None:
    """Two tables of all documents were held. Here a document has the same shard in both versions, as in builds."""
    made = lakes.make_documents(Split.TRAIN, 3000, lakes.World(sentences=(1, 1), images=(1, 1)))
    for version, documents in (("v1", made.documents[:-30]), ("v2", made.documents[30:])):
        lakes.write_lake(tmp_path, {Split.TRAIN: replace(made, documents=documents)}, shards=30, version=version)
    tracemalloc.start()
    found = changes_between(Lake.at(str(tmp_path)), "synthetic", "v1", "v2")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert {each.document for each in found.added} == {document.id for document in made.documents[-30:]}
    assert {each.document for each in found.removed} == {document.id for document in made.documents[:30]}
    assert peak < 2 * 3000 * 80  # manifests of 30 shards among them
