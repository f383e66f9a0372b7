"""A local file that is not UTF-8 has a failure row, or is refused in a line: no word of it is damaged silently."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from corpus_files import write_tar

from pipelines.sources.datasets.coherence import CiteSource
from pipelines.sources.datasets.corpora import CorpusSource
from pipelines.sources.datasets.hessel import RecipeqaSource
from pipelines.sources.datasets.mscoco import MscocoSource
from pipelines.sources.datasets.news import ArchiveSource
from pipelines.sources.datasets.vist import VistSource
from pipelines.sources.datasets.wikipedia import ImageclefSource, read_articles, with_sentences
from pipelines.sources.records import CandidateDocument
from schemas.failures import Failure, Reason

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"


def mscoco(captions: str) -> MscocoSource:
    return MscocoSource(captions=(captions,), images="i", true_images=1, fake_images=0, distractors=0)


def articles(source: ImageclefSource) -> Iterator[CandidateDocument | Failure]:
    for outcome in read_articles(source, min_images=0):
        yield from [outcome] if isinstance(outcome, Failure) else with_sentences(outcome, source=source)


@pytest.mark.parametrize(
    ("name", "file", "word", "read"),
    [
        ("cite", "data.csv", "crème", lambda at: CiteSource(train=at).read()),
        ("mscoco", "captions_train2014.json", "café", lambda at: mscoco(at).read()),
        ("recipeqa", "train.json", "è", lambda at: RecipeqaSource(train=at).read()),
        ("vist", "train.description-in-isolation.json", "café", lambda at: VistSource(train=at).read()),
        ("imageclef", "all_text/text/en/2/4410.xml", "café", None),
    ],
)
def test_a_byte_that_is_not_utf8_is_a_failure_of_its_record(
    name: str, file: str, word: str, read: Any, tmp_path: Path
) -> None:
    root = tmp_path / name
    shutil.copytree(FIXTURES / name, root)
    path = root / file
    read = read or (lambda _: articles(ImageclefSource(texts=str(root))))
    assert word.encode() in path.read_bytes()
    before = list(read(str(path)))
    path.write_bytes(path.read_bytes().replace(word.encode(), word.encode("latin-1"), 1))
    after = list(read(str(path)))
    new = [each for each in after if isinstance(each, Failure) and "expected UTF-8" in each.message]
    assert [each.reason for each in new] == [Reason.BROKEN_RECORD]
    of_half_pairs = ascii(before).count("\\ufffd")  # that are written as escapes
    assert ascii(after).count("\\ufffd") <= of_half_pairs
    assert any(word in repr(each) for each in before)


def test_a_caption_that_is_not_utf8_is_a_failure(tmp_path: Path) -> None:
    captions = {"1.jpg": b"x", "1.txt": b"caf\xe9", "2.jpg": b"x", "2.txt": "café".encode()}
    write_tar(tmp_path / "a.tar", captions)
    first, second = CorpusSource(format="webdataset", documents=(str(tmp_path / "a.tar"),)).read()
    assert "expected UTF-8, found byte 0xe9" in first.message
    assert second.sentences[0].text == "café"


RECORDS = [{"id": str(n), "image": "a.jpg"} for n in range(9)]
LINES = "".join(f"{json.dumps(record)}\n" for record in RECORDS)


@pytest.mark.parametrize(
    ("data", "form"),
    [
        (json.dumps(RECORDS).encode(), "a JSON array: expected one object a line (JSON Lines)"),
        (json.dumps(RECORDS, indent=1).encode(), "a JSON array: expected one object a line (JSON Lines)"),
        (LINES.encode("utf-16"), "UTF-16: expected UTF-8"),
        (f"\ufeff{LINES}".encode("utf-16-be"), "UTF-16: expected UTF-8"),
    ],
)
def test_a_file_of_another_form_is_named(data: bytes, form: str, tmp_path: Path) -> None:
    path = tmp_path / "archive.jsonl"
    path.write_bytes(data)
    (found,) = ArchiveSource(archive=str(path)).read()
    assert found.message == f"archive.jsonl: {form}"
