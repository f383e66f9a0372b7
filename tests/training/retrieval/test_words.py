"""BM25 over what is said of pictures: scores worked by hand, how words are compared, which words count."""

from __future__ import annotations

from collections import Counter
from math import log
from pathlib import Path

import numpy as np
import pytest

from training.retrieval.words import COMMON_SHARE, LEXICAL_WORDS, Words, words_of

TEXTS = (
    "Hochwasser in Köln: die Feuerwehr hilft am Rhein",
    "City hall, New York. The mayor speaks about floods, floods and floods",
    "York Minster",
    "",
    *["a common word"] * 12,
)


@pytest.fixture
def words() -> Words:
    return Words.of(TEXTS)


def by_hand(query: str, number: int) -> float:
    """Return the score of a text by Lucene's form of BM25, from its definition."""
    rows = [text.lower().replace(":", "").replace(",", "").replace(".", "").split() or [""] for text in TEXTS]
    mean, own = sum(map(len, rows)) / len(rows), Counter(rows[number])
    total = 0.0
    for word in query.split():
        having = sum(word in row for row in rows)
        weight = log(1 + (len(rows) - having + 0.5) / (having + 0.5))
        total += weight * own[word] / (own[word] + 1.2 * (1 - 0.75 + 0.75 * len(rows[number]) / mean))
    return total


def test_scores_are_those_of_the_definition(words: Words) -> None:
    found = words.rank("york floods minster", 10)
    assert found.rows.tolist() == sorted((1, 2), key=lambda row: -by_hand("york floods minster", row))
    expected = [by_hand("york floods minster", row) for row in found.rows.tolist()]
    assert found.scores == pytest.approx(expected, rel=1e-5)
    assert words.rank("york floods minster", 1).rows.tolist() == found.rows.tolist()[:1]


def test_capitals_and_accents_do_not_matter(words: Words) -> None:
    assert words_of("L'Été à KÖLN, straße 7") == ["l", "ete", "a", "koln", "strasse", "7"]
    assert words.rank("KOLN", 10).rows.tolist() == words.rank("köln", 10).rows.tolist() == [0]


def test_a_word_that_many_have_tells_nothing(words: Words) -> None:
    assert COMMON_SHARE * len(TEXTS) < 12
    for nothing in ("a common word", "...", "", "unheard", '" OR * NEAR('):
        assert words.rank(nothing, 10).rows.tolist() == []


def test_rows_that_are_left_out_take_no_place(words: Words) -> None:
    assert words.rank("york", 1, np.array([0, 2, 3])).rows.tolist() == [2]
    assert words.rank("york", 5, np.array([0, 3])).rows.tolist() == []


def test_of_a_long_text_the_rarest_words_count() -> None:
    often = [f"often{number}" for number in range(LEXICAL_WORDS + 6)]
    words = Words.of([" ".join(often), " ".join(often), "seldom", *["nothing"] * 20])
    found = words.rank(" ".join([*often, "seldom"]), 3)
    assert set(found.rows.tolist()) == {0, 1, 2}
    of_forty = words.rank(" ".join(often[:40]), 1).scores[0]
    assert found.scores[0] == pytest.approx((LEXICAL_WORDS - 1) / 40 * of_forty)  # the rarest of all is one of them


def test_they_come_back_from_files_that_are_equal_for_equal_texts(words: Words, tmp_path: Path) -> None:
    for name, each in (("one", words), ("two", Words.of(TEXTS))):
        each.save(tmp_path / name)
    files = [{path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("one", "two")]
    assert files[0] == files[1]
    opened, found = Words.open(tmp_path / "one"), words.rank("york floods", 10)
    assert opened.count == len(TEXTS)
    assert opened.rank("york floods", 10).rows.tolist() == found.rows.tolist()
    assert opened.rank("york floods", 10).scores.tolist() == found.scores.tolist()


def test_pictures_of_which_nothing_is_said_have_no_words(caplog: pytest.LogCaptureFixture) -> None:
    assert Words.of(["", ""]).rank("york", 3).rows.tolist() == []
    assert caplog.records == []
