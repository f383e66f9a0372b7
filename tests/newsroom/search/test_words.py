"""BM25 over what is known of pictures: scores worked by hand, how words are compared, which words count, filters."""

from collections import Counter
from math import log
from pathlib import Path

import archives
import numpy as np
import pytest

from newsroom.archive.filters import parse_filters
from newsroom.archive.records import Picture
from newsroom.archive.words import COMMON_SHARE, LEXICAL_WORDS, Words, plain, words_of
from schemas.indexes import WORDS
from schemas.messages import IntegrityError
from schemas.metadata import Metadata

TEXTS = (
    "Hochwasser in Köln: die Feuerwehr hilft am Rhein",
    "City hall, New York. The mayor speaks about floods, floods and floods",
    "York Minster",
    "",
    *["a common word"] * 12,
)
TITLES = ("Flut", "York and its floods", *[""] * 14)


def pictures(captions: tuple[str, ...] = TEXTS, titles: tuple[str, ...] = TITLES) -> list[Picture]:
    """Return pictures in order of their keys, with years from 2000 on."""
    return [
        Picture(
            image=f"{number:016x}{number:048x}",
            metadata=Metadata(caption=caption or None, title=title or None, date=str(2000 + number)),
        )
        for number, (caption, title) in enumerate(zip(captions, titles or ("",) * len(captions), strict=True))
    ]


@pytest.fixture
def words(tmp_path: Path) -> Words:
    return words_in(tmp_path / "words", pictures())


def words_in(folder: Path, given: list[Picture]) -> Words:
    found: Words = archives.write_records(folder, given).words
    return found


def by_hand(query: str, number: int) -> float:
    """Return the score of a picture: BM25 of each field, from its definition, summed up."""
    total = 0.0
    for texts in (TEXTS, TITLES):
        rows = [text.lower().replace(":", "").replace(",", "").replace(".", "").split() for text in texts]
        filled, own = [row for row in rows if row], Counter(rows[number])
        mean = sum(map(len, filled)) / len(rows)
        for word in query.split():
            having = sum(word in row for row in rows)
            weight = log(1 + (len(rows) - having + 0.5) / (having + 0.5))
            total += weight * 2.2 * own[word] / (own[word] + 1.2 * (1 - 0.75 + 0.75 * len(rows[number]) / mean))
    return total


def test_scores_are_those_of_the_definition(words: Words) -> None:
    found = words.rank("york floods minster", 10)
    assert found.rows.tolist() == sorted((1, 2), key=lambda row: -by_hand("york floods minster", row))
    expected = [by_hand("york floods minster", row) for row in found.rows.tolist()]
    assert found.scores == pytest.approx(expected, rel=1e-5)
    assert words.rank("york floods minster", 1).rows.tolist() == found.rows.tolist()[:1]
    assert words.rank("flut floods", 5, fields=("caption",)).rows.tolist() == [1]
    assert words.rank("york", 0).rows.tolist() == []


def test_capitals_and_accents_do_not_matter(words: Words) -> None:
    assert words_of("L'Été à KÖLN, straße 7") == ["l", "ete", "a", "koln", "strasse", "7"]
    assert plain("  Łódź, Ελλάδα; Йод IMG_12 ") == "lodz ελλαδα иод img 12"
    assert words_of("Ko\u0308ln") == ["koln"]  # as some file systems spell it
    assert words.rank("KOLN", 10).rows.tolist() == words.rank("köln", 10).rows.tolist() == [0]


def test_a_word_that_many_have_tells_nothing(words: Words) -> None:
    assert COMMON_SHARE * len(TEXTS) < 12
    for nothing in ("a common word", "...", "", "unheard", '" OR * NEAR('):
        assert words.rank(nothing, 10).rows.tolist() == []


def test_rows_that_are_left_out_take_no_place(words: Words) -> None:
    assert words.rank("york", 1, parse_filters(["date>=2002"])).rows.tolist() == [2]
    assert words.rank("york", 5, parse_filters(["date!=2001", "date!=2002"])).rows.tolist() == []
    assert words.rank("york", 5, parse_filters(["title~its floods"])).rows.tolist() == [1]
    whole, some = words.rank("york", 5), words.rank("york", 5, parse_filters(["date>=2002"]))
    assert some.scores.tolist() == whole.scores[whole.rows == 2].tolist()


def test_of_a_long_text_the_rarest_words_count(tmp_path: Path) -> None:
    often = [f"often{number}" for number in range(LEXICAL_WORDS + 6)]
    words = words_in(tmp_path, pictures((" ".join(often), " ".join(often), "seldom", *["nothing"] * 20), ()))
    found = words.rank(" ".join([*often, "seldom"]), 3)
    assert set(found.rows.tolist()) == {0, 1, 2}
    of_forty = words.rank(" ".join(often[:40]), 1).scores[0]
    longest = found.scores[found.rows.tolist().index(0)]
    assert longest == pytest.approx((LEXICAL_WORDS - 1) / 40 * of_forty)  # the rarest of all is one of them


def test_parts_are_ranked_as_one(words: Words, tmp_path: Path) -> None:
    records = archives.write_records(tmp_path, pictures(), 3)
    found, whole = records.words.rank("york floods minster", 10), words.rank("york floods minster", 10)
    assert found.scores == pytest.approx(whole.scores, rel=1e-6)
    hashes = [picture.image for picture in records.pictures(found.rows.tolist())]
    assert hashes == [pictures()[row].image for row in whole.rows.tolist()]


def test_words_of_another_library_are_refused(tmp_path: Path) -> None:
    archives.write_records(tmp_path, pictures())
    (folder,) = tmp_path.glob(f"*/{WORDS}")
    (segment,) = folder.glob("*.term")
    segment.write_bytes(b"x" * 100)
    with pytest.raises(IntegrityError, match="make the index again"):
        Words.open([folder], np.array([0]))


def test_pictures_of_which_nothing_is_said_have_no_words(tmp_path: Path) -> None:
    words = words_in(tmp_path, pictures(("", ""), ()))
    assert words.rank("york", 3).rows.tolist() == [] and words.number(parse_filters(entities=["york"])) == 0
