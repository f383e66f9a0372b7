"""News articles of JSON Lines; the expected documents are written by hand from the fixture."""

import json
from pathlib import Path

from candidates import candidate_of, licences_of, names, parted

from pipelines.sources.datasets.news import NewsSource
from pipelines.sources.records import CandidateDocument
from schemas.documents import Link, Provenance, Role, Sentence, Split

FOLDER = Path(__file__).parents[2] / "fixtures" / "news"
HEADLINE, LEAD, CAPTION, BODY = Role.HEADLINE, Role.LEAD, Role.CAPTION, Role.BODY


def outcomes(path: Path) -> tuple[list[CandidateDocument], list[str]]:
    drafts, failures = parted(NewsSource(articles=str(path)).read())
    return drafts, names(failures)


def draft(record_id: str, texts: dict[Role, str], image: str, *, language: str) -> CandidateDocument:
    return candidate_of(
        id=record_id,
        dataset="news",
        sentences=tuple(Sentence(text, role) for role, text in texts.items()),
        image_uris=(image,),
        links=tuple(Link(index, 0) for index in range(len(texts))),
        provenance=Provenance("news", record_id),
        language=language,
        after_sentence=(list(texts).index(CAPTION),) if CAPTION in texts else (),
    )


def test_json_lines() -> None:
    drafts, failures = outcomes(FOLDER / "articles.jsonl")
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
            language="de",
        ),
        draft("2", {HEADLINE: "Only a headline"}, "https://news.example/2.png", language="und"),
        draft("n-3", {BODY: "Un texte."}, "3.jpg", language="fr"),
        draft("n-1", {HEADLINE: "Another of this id"}, "7.jpg", language="und"),
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


def test_articles_may_say_their_split_licence_and_address(tmp_path: Path) -> None:
    record = {"image": "1.jpg", "caption": "A cat.", "licence": "CC0-1.0", "url": "https://h/1"}
    records = [record | {"id": 1, "split": "dev"}, record | {"id": 2, "split": 7}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, records)))
    (article,), failures = outcomes(tmp_path / "a.jsonl")
    assert (article.split, licences_of(article)) == (Split.VAL, ("CC0-1.0",))
    assert article.provenance == Provenance("news", "1", "https://h/1", "CC0-1.0")
    assert failures == ["2 broken-record"]
