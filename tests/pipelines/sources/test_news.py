"""News in its three formats; the expected documents are written by hand from the fixtures."""

import json
from pathlib import Path
from typing import Literal

import pytest
from candidates import candidate_of, licences_of, names, parted, uris_of

from pipelines.sources.datasets.news import NewsSource
from pipelines.sources.records import CandidateDocument
from schemas.documents import Link, Provenance, Role, Sentence, Split
from schemas.errors import BuildError
from schemas.failures import Failure, Reason, Stage

Format = Literal["jsonl", "goodnews", "visualnews"]
FOLDER = Path(__file__).parents[2] / "fixtures" / "news"
HEADLINE, LEAD, CAPTION, BODY = Role.HEADLINE, Role.LEAD, Role.CAPTION, Role.BODY


def outcomes(format_: Format, path: Path) -> tuple[list[CandidateDocument], list[str]]:
    drafts, failures = parted(NewsSource(format=format_, articles=str(path)).read())
    return drafts, names(failures)


def draft(
    record_id: str, texts: dict[Role, str], image: str, *, source: str, language: str, url: str | None = None
) -> CandidateDocument:
    return candidate_of(
        id=record_id,
        dataset="news",
        sentences=tuple(Sentence(text, role) for role, text in texts.items()),
        image_uris=(image,),
        links=tuple(Link(index, 0) for index in range(len(texts))),
        provenance=Provenance(source, record_id, url),
        language=language,
        after_sentence=(list(texts).index(CAPTION),) if CAPTION in texts else (),
    )


def test_json_lines() -> None:
    drafts, failures = outcomes("jsonl", FOLDER / "articles.jsonl")
    assert drafts == [
        draft(
            "n-1",
            {
                HEADLINE: "Zug & Flug",
                LEAD: "Wer fliegt noch?",
                CAPTION: "Ein Zug in Chur.",
                BODY: "Immer mehr Menschen nehmen den Zug. Das zeigt eine Studie.",
            },
            "pictures/n-1.jpg",
            source="news",
            language="de",
        ),
        draft("2", {HEADLINE: "Only a headline"}, "https://news.example/2.png", source="news", language="und"),
        draft("n-3", {BODY: "Un texte."}, "3.jpg", source="news", language="fr"),
        draft("n-1", {HEADLINE: "Another of this id"}, "7.jpg", source="news", language="und"),
    ]
    assert failures == [
        "n-3 empty-sentence",
        "n-3 empty-sentence",
        "n-4 missing-field",
        "n-5 empty-document",
        "n-5 empty-sentence",
        "articles.jsonl:7 missing-field",
        "articles.jsonl:8 broken-record",
        "n-1 empty-sentence",
        "articles.jsonl:10 broken-record",
        "n-9 broken-record",
        "n-10 missing-field",
        "articles.jsonl:13 broken-record",
    ]


def test_goodnews() -> None:
    drafts, failures = outcomes("goodnews", FOLDER / "captioning_dataset.json")
    shared = {HEADLINE: "A Bridge \u2019Falls\u2019", LEAD: "It fell at noon."}
    body = {BODY: "The bridge fell at noon. Nobody was hurt."}
    bridge = {"source": "goodnews", "language": "en", "url": "https://www.nytimes.com/1"}
    assert drafts == [
        draft("4fd1c_0", {**shared, CAPTION: "The bridge on Monday.", **body}, "4fd1c_0.jpg", **bridge),
        draft("4fd1c_2", {**shared, **body}, "4fd1c_2.jpg", **bridge),
        draft("4fd1c_3", {**shared, **body}, "4fd1c_3.jpg", **bridge),
        draft(
            "4fd1d_0",
            {CAPTION: "Owners.", BODY: "Café owners protest."},
            "4fd1d_0.jpg",
            source="goodnews",
            language="en",
        ),
        draft("4fd21_1", {CAPTION: "Good."}, "4fd21_1.jpg", source="goodnews", language="en"),
    ]
    assert failures == [
        "4fd1c_3 empty-sentence",
        "4fd1e too-few-images",
        "4fd1f broken-record",
        "4fd20 broken-record",
        "4fd21_0 broken-record",
    ]


def test_goodnews_splits_and_urls_are_those_published(tmp_path: Path) -> None:
    splits, urls = tmp_path / "img_splits.json", tmp_path / "img_urls.json"
    published = {"4fd1c_0": "train", "4fd1c_2": "val", "4fd1d_0": "test", "4fd21_1": "train", "elsewhere_0": "test"}
    splits.write_text(json.dumps(published))
    urls.write_text(json.dumps({"4fd1c": {"0": "https://h/a.jpg", "2": None}, "4fd1d": {}}))
    articles = str(FOLDER / "captioning_dataset.json")
    source = NewsSource(format="goodnews", articles=articles, splits=str(splits), urls=str(urls))
    drafts, failures = parted(source.read())
    assert {draft.id: (str(draft.split), uris_of(draft)[0]) for draft in drafts} == {
        "4fd1c_0": ("train", "https://h/a.jpg"),
        "4fd1c_2": ("val", "4fd1c_2.jpg"),
        "4fd1d_0": ("test", "4fd1d_0.jpg"),
        "4fd21_1": ("train", "4fd21_1.jpg"),
    }
    message = "expected the split of this article in img_splits.json, found none"
    assert Failure(Stage.SOURCES, "4fd1c_3", Reason.NOT_FOUND, message) in failures
    for text, problem in (
        ('{"a": "x"}', ": expected one of train"),
        ('{"a": 1}', r"\$\.a: expected `str`, got `int`"),
    ):
        splits.write_text(text)
        with pytest.raises(BuildError, match=problem):
            list(source.read())


def test_own_articles_may_say_their_split_and_licence(tmp_path: Path) -> None:
    record = {"image": "1.jpg", "caption": "A cat.", "licence": "CC0-1.0"}
    records = [record | {"id": 1, "split": "dev"}, record | {"id": 2, "split": 7}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, records)))
    (article,), failures = outcomes("jsonl", tmp_path / "a.jsonl")
    assert (article.split, licences_of(article), article.provenance.licence) == (Split.VAL, ("CC0-1.0",), "CC0-1.0")
    assert failures == ["2 broken-record"]


def test_visualnews() -> None:
    drafts, failures = outcomes("visualnews", FOLDER / "visualnews" / "data.json")
    assert drafts == [
        draft(
            "5",
            {CAPTION: "A judge in London.", BODY: "A judge spoke. Then she left."},
            "bbc/images/0000/005.jpg",
            source="visualnews/bbc",
            language="en",
        ),
        draft(
            "6",
            {CAPTION: "Fish & chips", BODY: "Fish costs £10 more."},
            "guardian/images/0001/006.jpg",
            source="visualnews/guardian",
            language="en",
        ),
        draft(
            "8", {CAPTION: "No article was said."}, "bbc/images/0000/008.jpg", source="visualnews/bbc", language="en"
        ),
        draft("9", {CAPTION: "Leads out."}, "../../etc/passwd", source="visualnews/bbc", language="en"),
        draft("10", {CAPTION: "Leads out, too."}, "a.jpg", source="visualnews/bbc", language="en"),
        draft("5", {CAPTION: "The same id."}, "b.jpg", source="visualnews/bbc", language="en"),
    ]
    assert failures == [
        "7 empty-document",
        "7 not-found",
        "8 not-found",
        "9 forbidden",
        "10 forbidden",
        "5 not-found",
        "data.json:8 missing-field",
        "data.json:9 broken-record",
        "11 missing-field",
    ]


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", ["data.json broken-record"]),
        (b'{"id": 1}', ["data.json broken-record"]),
        (b"<html>", ["data.json broken-record"]),
        (b"[]", []),
        (b'[{"id": 1, "caption": "x", "image_path": "x.jpg"}, {"id": 2', ["data.json broken-record"]),
        (b'[{"id": 1, "caption": "x", "image_path": "x.jpg"}, nope', ["data.json broken-record"]),
    ],
)
def test_files_that_are_not_what_they_should_be(tmp_path: Path, content: bytes, found: list[str]) -> None:
    (tmp_path / "data.json").write_bytes(content)
    drafts, failures = outcomes("visualnews", tmp_path / "data.json")
    assert [*(draft.id for draft in drafts), *(each for each in failures if each != "1 not-found")] == found
