"""The recorded news archive: its files fit together, and the pipeline reads of them what their maker wrote."""

import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builds import build_of, by_source
from PIL import Image

from pipelines.images.metadata import read_metadata
from schemas.metadata import Metadata

NEWS = Path(__file__).parent / "recording" / "news"


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (NEWS / name).read_text(encoding="utf-8").splitlines()]


ARTICLES, RECORDS = lines("articles.jsonl"), lines("archive.jsonl")


def test_every_article_has_a_picture_of_its_own_and_the_archive_has_no_other() -> None:
    shown = [article["image"] for article in ARTICLES]
    assert len(set(shown)) == len(ARTICLES) == 360
    assert [record["image"] for record in RECORDS] == shown
    assert {path.relative_to(NEWS).as_posix() for path in NEWS.rglob("*.jpg")} == set(shown)
    assert len({article["caption"] for article in ARTICLES}) == 360


def test_languages_and_splits_are_mixed() -> None:
    counts = Counter((article["language"], article["split"]) for article in ARTICLES)
    assert set(counts) == {(a, b) for a in ("en", "de", "fr") for b in ("train", "val", "test")}
    assert all(counts[language, "test"] == 26 and counts[language, "train"] == 81 for language in ("en", "de", "fr"))


def test_texts_name_what_the_picture_shows() -> None:
    for article in ARTICLES:
        first = article["headline"].split(": ", 1)[1]
        second = article["lead"].split(": ", 1)[1]
        assert article["caption"] == f"{first} {second}"
        assert first in article["body"] and second in article["body"]


def test_what_is_said_of_a_picture_is_in_its_record_or_in_its_file() -> None:
    for article, record in zip(ARTICLES, RECORDS, strict=True):
        own = read_metadata((NEWS / record["image"]).read_bytes())[0]
        if "title" in record:
            assert own is None and article["picture"] == {name: record[name] for name in article["picture"]}
        else:
            assert own is not None and own.title and own.credit and own.date and own.place and own.keywords
            assert "picture" not in article
        with Image.open(io.BytesIO((NEWS / record["image"]).read_bytes())) as picture:
            assert min(picture.size) >= 200


@pytest.mark.slow
def test_the_archive_becomes_a_data_set_without_a_failure(tmp_path: Path) -> None:
    summary = build_of("archive", tmp_path, f"source.archive={NEWS}/archive.jsonl", "features.images=[]")
    assert not summary.manifest.failures
    rows = by_source(summary).values()
    assert len(rows) == 360 and {row["licence"] for row in rows} == {"GPL-2.0-or-later"}
    said = {row["source"]: msgspec.convert(row["metadata"], Metadata | None) for row in rows}
    for record in RECORDS:
        found = said[record["image"]]
        assert found is not None and found.title and len(found.keywords) > 0
        assert record.get("title", found.title) == found.title and record.get("date", found.date) == found.date
