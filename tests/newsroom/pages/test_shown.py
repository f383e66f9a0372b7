"""What a page shows, made by hand: words and their shares, folded pictures, names, languages, addresses."""

import re
import string
from pathlib import Path

import archives
import pytest
from fastapi import Request
from hypothesis import given
from hypothesis import strategies as st

from newsroom.archive.records import Picture
from newsroom.pages.rendering import (
    LANGUAGES,
    address,
    catalogue,
    language_name,
    own_path,
    preferred,
    translator,
)
from newsroom.pages.search_jobs import fold
from newsroom.pages.words import Gazetteer, find_entities, shown_texts
from newsroom.search.queries import Query
from newsroom.search.search import RankedImage
from pipelines.sources.text import found_language
from schemas.metadata import Metadata

PICTURES = (
    Metadata(title="Flood", credit="Keystone", place="Zürich, Switzerland", keywords=("water",)),
    Metadata(title="Fest", credit="dpa", place="Nantes", keywords=("Tux",)),
    Metadata(title="Nantes by night", credit="dpa", place="Nantes"),
)


@pytest.fixture
def gazetteer(tmp_path: Path) -> Gazetteer:
    pictures = [Picture(image=f"{number:064x}", metadata=said) for number, said in enumerate(PICTURES)]
    return Gazetteer(archives.write_records(tmp_path, pictures))


def test_words_of_a_text_are_shown_with_what_they_add() -> None:
    query = Query(texts={"headline": "Flood in  Köln!", "lead": "A lead"}, left_out=frozenset({("headline", 1)}))
    headline, lead = shown_texts(query, [("headline", "Flood Köln!")], {"headline": [0.7, 0.2, 0.1]})
    assert [(word.text, word.share, word.is_left_out) for word in headline.words] == [
        ("Flood", pytest.approx(0.7), False), ("in", None, True), ("Köln", pytest.approx(0.2), False),
        ("!", pytest.approx(0.1), False),
    ]  # fmt: skip
    assert [word.step for word in headline.words] == [3, 0, 0, 0]  # 2.1 times an even share of 1/3; 0.6; 0.3
    assert [word.step for word in lead.words] == [0, 0] and (headline.is_read, lead.is_read) == (True, False)
    assert "".join(word.gap + word.text for word in headline.words) + headline.rest == "Flood in Köln!"


def test_influence_is_each_words_part_of_what_words_add() -> None:
    (text,) = shown_texts(Query(texts={"headline": "a b c"}), [("headline", "a b c")], {"headline": [0.3, -0.2, 0.1]})
    assert [word.share for word in text.words] == pytest.approx([0.75, 0.0, 0.25])
    assert [word.step for word in text.words] == [3, 0, 0]


@given(st.text(max_size=60), st.sets(st.integers(0, 20)))
def test_every_letter_of_a_text_is_shown(text: str, out: set[int]) -> None:
    query = Query(texts={"body": text}, left_out=frozenset(("body", number) for number in out))
    for shown in shown_texts(query, [], {}):
        joined = "".join(word.gap + word.text for word in shown.words) + shown.rest
        assert joined in (" ".join(text.split()), " ".join(text.split()).lower())


def test_near_duplicates_follow_the_first_of_them() -> None:
    ranked = [
        RankedImage(rank=rank, picture=Picture(image=image, cluster=cluster), similarity=0.0, score=0.0)
        for rank, (image, cluster) in enumerate([("a", "a"), ("b", None), ("c", "a"), ("d", None), ("e", "a")], start=1)
    ]
    assert [[each.rank for each in group] for group in fold(ranked)] == [[1, 3, 5], [2], [4]]


def test_names_are_found_as_the_archive_writes_them(gazetteer: Gazetteer) -> None:
    text = "Heute in Zurich: das Wasser stieg. Danach NANTES und Tux, sagt Keystone. Niemand kam nach Bern."
    found = find_entities(text, gazetteer)
    assert [(each.name, each.kind, each.images, each.written) for each in found] == [
        ("Nantes", "LOC", 2, "NANTES"), ("Zürich", "LOC", 1, "Zurich"), ("Keystone", "ORG", 1, "Keystone"),
        ("Tux", "MISC", 1, "Tux"),
    ]  # fmt: skip
    assert gazetteer.images("nantes") == 2 and gazetteer.images('"; --') == 0 and gazetteer.images("") == 0
    assert [each.name for each in gazetteer.proposed("nantse")] == ["Nantes"]
    assert gazetteer.proposed("dpx") == []  # too short for a slip to be forgiven


def test_a_slip_is_forgiven_where_a_person_typed_and_not_in_a_text(gazetteer: Gazetteer) -> None:
    assert find_entities("Nnates, Keystona, Zürihc.", gazetteer) == []
    assert [each.name for each in gazetteer.proposed("Keystona")] == ["Keystone"]


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("In Graz blieben die Leute stehen: Ein offenes Vorhängeschloss.", "de"),
        ("À la une : une machine à laver et un dindon.", "fr"),
        ("The paper's readers had asked for it.", "en"),
        ("12 345 67", "und"),
        ("", "und"),
    ],
)
def test_a_language_is_found_out(text: str, language: str) -> None:
    assert found_language(text) == language
    assert found_language(text, ["de", "fr", "en"]) in (language, "de", "fr", "en")


def test_languages_have_names_in_each_other() -> None:
    assert [language_name("fr", ui) for ui in LANGUAGES] == ["French", "Französisch", "français"]
    assert language_name("qqx", "de") == "qqx"


def fields_of(language: str) -> dict[str, dict[str, set[str]]]:
    """Return the fields of each form of each text of the interface."""
    forms = {key: text if isinstance(text, dict) else {"other": text} for key, text in catalogue(language).items()}
    return {key: {form: fields(text) for form, text in texts.items()} for key, texts in forms.items()}


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_text_of_the_interface_is_in_every_language(language: str) -> None:
    own, english = fields_of(language), fields_of("en")
    assert own == english and list(own) == list(english)


def test_every_text_is_used_and_every_use_is_a_text() -> None:
    folder = Path(__file__).resolve().parents[3] / "newsroom" / "pages"
    sources = [path.read_text(encoding="utf-8") for path in (*folder.glob("*.py"), *(folder / "templates").iterdir())]
    used = {
        *re.findall(r'"([a-z]+\.[a-zA-Z_0-9]*)"', "\n".join(sources))
    }  # whole, or begun: t("articles.kind_" ~ kind)
    keys = catalogue("en")
    begun = tuple(each for each in used if each.endswith(("_", ".")))
    assert {key for key in keys if key not in used and not key.startswith(begun)} == set()
    called = set(re.findall(r'\bt\("([a-z]+\.[a-zA-Z_0-9]+)"', "\n".join(sources)))
    assert {name for name in called if not any(key == name or key.startswith(name) for key in keys)} == set()


def fields(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def test_numbers_are_written_as_the_language_does() -> None:
    many, none = ([translator(code)("articles.images", n=n) for code in LANGUAGES] for n in (12345, 0))
    assert many == ["12,345 pictures", "12.345 Bilder", "12\u202f345 images"]
    assert none == ["0 pictures", "0 Bilder", "0 image"]


@pytest.mark.parametrize(
    ("accepted", "language"),
    [
        ("de-CH,fr;q=0.8", "de"),
        ("it, fr;q=0.2", "fr"),
        ("", "en"),
        ("*", "en"),
        ("en;q=0.1, fr;q=0.9", "fr"),
        ("de;q=x", "en"),
    ],
)
def test_a_browsers_language_is_taken(accepted: str, language: str) -> None:
    assert preferred(accepted) == language


def test_an_address_keeps_what_is_not_changed() -> None:
    scope = {"type": "http", "path": "/articles/k", "query_string": b"leave=a.1&leave=a.2&n=12", "headers": []}
    request = Request(scope)
    assert address(request, n=None) == "/articles/k?leave=a.1&leave=a.2"
    assert address(request, leave=["a.2"], n="24") == "/articles/k?leave=a.2&n=24"
    assert address(request, leave=[], n=None) == "/articles/k"
    below = Request(scope | {"root_path": "/news", "path": "/news/articles/k"})
    assert address(below, leave=[]) == "/news/articles/k?n=12" and address(below, "/x", a="b") == "/news/x?a=b"
    assert address(Request(scope | {"root_path": "/news"}), leave=[]) == "/news/articles/k?n=12"


@pytest.mark.parametrize(
    "target", ["//evil.example", "https://evil.example", "/\\evil.example", "", "javascript:x", "/a\nb"]
)
def test_nobody_is_sent_elsewhere(target: str) -> None:
    request = Request({"type": "http", "path": "/", "query_string": b"", "headers": [], "root_path": "/news"})
    assert own_path(request, target) == "/news/"
    assert own_path(request, "/news/articles/k?n=1") == "/news/articles/k?n=1"
