"""A user's own documents, well and badly written; and files of every source that are not UTF-8.

A record that is not UTF-8 has a failure row, or its file is refused in a line: no word is damaged silently.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from candidates import after_of, candidate_of, names, uris_of
from corpus_files import write_tar

from pipelines.sources.datasets.coherence import CiteSource
from pipelines.sources.datasets.corpora import CorpusSource
from pipelines.sources.datasets.documents import DocumentsSource
from pipelines.sources.datasets.hessel import RecipeqaSource
from pipelines.sources.datasets.mscoco import MscocoSource
from pipelines.sources.datasets.news import ArchiveSource
from pipelines.sources.datasets.vist import VistSource
from pipelines.sources.datasets.wikipedia import ImageclefSource, read_articles, with_sentences
from pipelines.sources.records import CandidateDocument
from schemas.documents import Link, Provenance, Role, Sentence, Split
from schemas.failures import Failure, Reason

DOCUMENT: dict[str, Any] = {"id": "d", "sentences": ["one", "two"], "images": [{"path": "a.jpg"}, {"path": "b.jpg"}]}


def read(tmp_path: Path, *lines: bytes | dict[str, Any]) -> list[CandidateDocument | Failure]:
    path = tmp_path / "mine.jsonl"
    path.write_bytes(b"\n".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines))
    return list(DocumentsSource(documents=str(path)).read())


def test_a_full_document(tmp_path: Path) -> None:
    record = {
        "id": "cat-1",
        "language": "de",
        "split": "val",
        "sentences": ["Eine Katze.", {"text": "Zwei", "role": "caption"}, {"text": "Drei"}],
        "images": [
            {"path": "cats/1.jpg", "after_sentence": 0}, {"url": "http://x.example/2.jpg"},
            {"path": "/3.jpg", "after_sentence": 3}, {"path": "../4.gif", "after_sentence": None},
        ],
        "links": [[1, 0], [0, 3], [1, 0]],
        "mood": "calm",
    }  # fmt: skip
    (draft,) = read(tmp_path, record)
    assert draft == candidate_of(
        id="cat-1",
        dataset="documents",
        sentences=(Sentence("Eine Katze."), Sentence("Zwei", Role.CAPTION), Sentence("Drei")),
        image_uris=("cats/1.jpg", "http://x.example/2.jpg", "/3.jpg", "../4.gif"),
        links=(Link(1, 0), Link(0, 3)),
        provenance=Provenance("documents", "cat-1"),
        language="de",
        split=Split.VAL,
        after_sentence=(0, None, 3, None),
    )


@pytest.mark.parametrize(("fields", "links"), [({}, None), ({"links": None}, None), ({"links": []}, ())])
def test_unknown_and_empty_links_are_different(tmp_path: Path, fields: dict[str, Any], links: object) -> None:
    (draft,) = read(tmp_path, DOCUMENT | fields)
    assert (draft.links, draft.language, draft.split) == (links, "und", None)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"id": " "}, "mine.jsonl:1 missing-field"),
        ({"id": ["d"]}, "mine.jsonl:1 broken-record"),
        ({"sentences": None}, "d missing-field"),
        ({"sentences": "one"}, "d broken-record"),
        ({"sentences": [7]}, "d broken-record"),
        ({"sentences": [{"role": "caption"}]}, "d missing-field"),
        ({"sentences": [{"text": "x", "role": "hero"}]}, "d broken-record"),
        ({"sentences": [{"text": "x", "role": ["caption"]}]}, "d broken-record"),
        ({"images": {"path": "a.jpg"}}, "d broken-record"),
        ({"split": "validation"}, "d broken-record"),
        ({"language": 3}, "d broken-record"),
        ({"links": [[0]]}, "d broken-record"),
        ({"links": [[0, "a"]]}, "d broken-record"),
        ({"links": [[0, True]]}, "d broken-record"),
        ({"links": {"0": 1}}, "d broken-record"),
        ({"sentences": []}, "d empty-document"),
        ({"images": []}, "d empty-document"),
    ],
)
def test_documents_that_cannot_be_used(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    assert names(read(tmp_path, DOCUMENT | changes)) == [expected]


def test_a_document_without_an_id_is_called_by_its_line(tmp_path: Path) -> None:
    assert names(read(tmp_path, DOCUMENT, DOCUMENT | {"id": None})) == ["d", "mine.jsonl:2"]


def test_broken_lines_do_not_stop_the_file(tmp_path: Path) -> None:
    lines = [b'\xef\xbb\xbf{"id": "x"', b"", b"[]", b"9" * 5000, b"[" * 100_000, DOCUMENT]
    expected = [f"mine.jsonl:{number} broken-record" for number in (1, 3, 4, 5)]
    assert names(read(tmp_path, *lines)) == [*expected, "d"]


def test_a_number_is_an_id_and_half_a_pair_is_replaced(tmp_path: Path) -> None:
    (draft,) = read(tmp_path, DOCUMENT | {"id": 12, "sentences": ["Grün", "\ud800"]})
    assert (draft.id, [s.text for s in draft.sentences]) == ("12", ["Grün", "\ufffd"])


def test_another_encoding_is_told_and_no_word_is_damaged(tmp_path: Path) -> None:
    line = json.dumps(DOCUMENT | {"sentences": ["Größe."]}, ensure_ascii=False)
    first, second = read(tmp_path, line.encode("latin-1"), line.encode())
    found = "expected UTF-8, found byte 0xf6 at character"
    assert first.reason is Reason.BROKEN_RECORD and found in first.message and "such as Latin-1?" in first.message
    assert second.sentences[0].text == "Größe."


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (7, "broken-record:$.images[0]: expected `object`, got `int`"),
        ({}, "missing-field:$.images[0]: expected the field 'path' or 'url', found none"),
        (
            {"path": "a.jpg", "url": "http://x.example"},
            "missing-field:$.images[0]: expected the field 'path' or 'url', found path",
        ),
        ({"path": ""}, "missing-field:"),
        ({"path": "row:3"}, "broken-record:$.images[0].path: expected the name of a file, found 'row:3'"),
        ({"path": "a\0.jpg"}, "broken-record:"),
        ({"path": "https://x.example/a.jpg"}, "broken-record:"),
        ({"url": "ftp://x.example"}, "broken-record:$.images[0].url: expected an http or https URL"),
        ({"path": "a.jpg", "after_sentence": 3}, "broken-record:$.images[0].after_sentence: got 3"),
        ({"path": "a.jpg", "after_sentence": -1}, "broken-record:$.images[0].after_sentence: expected `int` >= 0"),
        ({"path": "a.jpg", "after_sentence": 0.5}, "broken-record:$.images[0].after_sentence: expected `int"),
        ({"path": "a.jpg", "after_sentence": True}, "broken-record:"),
    ],
)
def test_an_image_that_cannot_be_used_has_an_address_that_says_why(tmp_path: Path, image: Any, reason: str) -> None:
    (draft,) = read(tmp_path, DOCUMENT | {"images": [image, {"path": "b.jpg", "after_sentence": 1}]})
    assert uris_of(draft)[0].startswith(f"unusable:{reason}")
    assert (uris_of(draft)[1], after_of(draft)) == ("b.jpg", (None, 1))


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"link": [[0, 0]]}, "$.link"),
        ({"license": "CC0-1.0"}, "$.license"),
        ({"images": ["a.jpg", {"path": "b.jpg", "license": "CC0-1.0"}]}, "$.images[1].license"),
        ({"images": ["a.jpg", {"path": "b.jpg", "captions": "B"}]}, "$.images[1].captions"),
    ],
)
def test_an_optional_field_that_is_misspelt_is_told(tmp_path: Path, changes: dict[str, Any], where: str) -> None:
    _, told = read(tmp_path, {"mood": "calm", "links": None} | DOCUMENT | changes)
    assert (told.record_id, told.reason, told.message.partition(":")[0]) == ("d", Reason.MISSPELT_FIELD, where)


def test_a_sentence_is_one_line(tmp_path: Path) -> None:
    texts = ["Line\none,\r\n line\u00a0two.", {"text": " It\u0019s \u001cquoted\u001d. ", "role": "lead"}]
    (draft,) = read(tmp_path, DOCUMENT | {"sentences": texts})
    assert draft.sentences == (Sentence("Line one, line two."), Sentence("It\u2019s \u201cquoted\u201d.", Role.LEAD))


def test_blank_sentences_go_and_links_are_renumbered(tmp_path: Path) -> None:
    record = DOCUMENT | {"sentences": ["one", " \t", "two", ""], "links": [[2, 1], [1, 0], [0, 0]]}
    draft, *failures = read(tmp_path, record)
    assert (draft.sentences, draft.links) == ((Sentence("one"), Sentence("two")), (Link(1, 1), Link(0, 0)))
    assert names(failures) == ["d empty-sentence", "d empty-sentence"]


@pytest.mark.parametrize(
    ("links", "kept"), [([[2, 0], [0, 2], [-1, 0], [1, 1]], (Link(1, 1),)), ([[7, 0], [0, 9], [0, 2]], None)]
)
def test_links_that_lead_nowhere_go_and_of_a_document_whose_all_do_none_is_known(
    tmp_path: Path, links: list[list[int]], kept: tuple[Link, ...] | None
) -> None:
    draft, *failures = read(tmp_path, DOCUMENT | {"links": links})
    assert (draft.links, names(failures)) == (kept, ["d bad-link"] * 3)


def test_a_document_of_blank_sentences_is_empty(tmp_path: Path) -> None:
    assert names(read(tmp_path, DOCUMENT | {"sentences": [" "]})) == ["d empty-document", "d empty-sentence"]


def test_blank_sentences_are_not_counted_before_an_image(tmp_path: Path) -> None:
    images = [{"path": f"{place}.jpg", "after_sentence": place} for place in range(5)]
    draft, *_ = read(tmp_path, DOCUMENT | {"sentences": [" ", "one", "", "two"], "images": images})
    assert (draft.sentences, after_of(draft)) == ((Sentence("one"), Sentence("two")), (0, 0, 1, 1, 2))


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
    write_tar(tmp_path / "a.tar", {"1.jpg": b"x", "1.txt": b"caf\xe9", "2.jpg": b"x", "2.txt": "café".encode()})
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
