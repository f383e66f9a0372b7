"""An article is read once, whichever process searches for it; and a part's footer once, whichever picture is shown."""

from typing import Any

import pyarrow.parquet as pq
import pytest
from running_newsroom import Newsroom, searched, shown

from newsroom.decisions.store import Article
from newsroom.pages import search_jobs
from newsroom.pages.pictures import jpeg_of
from newsroom.pages.search_jobs import SearchParameters
from newsroom.pages.searches import Opened
from schemas.lake import Lake

ARTICLE = Article(texts={"headline": "Neptun, einer der »Gasriesen«.", "body": "In Graz blieben die Leute stehen."})


@pytest.mark.slow
@pytest.mark.parametrize(
    "asked",
    [{}, {"leave": ["body.2"]}, {"rank": "fused", "where": ["date=2020"]}, {"entity": ["Graz"], "language": "en"}],
)
def test_the_second_look_at_an_article_reads_nothing(
    opened: Opened, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters = SearchParameters.model_validate(asked)
    found = search_jobs.find(opened, ARTICLE, parameters, b"")
    monkeypatch.setattr(type(opened.queries), "read", None)
    monkeypatch.setattr("newsroom.pages.searches.find_entities", None)
    again = search_jobs.find(opened, ARTICLE, parameters, b"")
    assert again.groups == found.groups and again.query == found.query and again.facets == found.facets
    assert [each.name for each in again.entities] == ["Graz"]


@pytest.mark.slow
def test_the_footer_of_a_part_is_read_once(newsroom: Newsroom, opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []
    make = pq.ParquetFile

    def counted(stream: Any, metadata: Any = None) -> pq.ParquetFile:
        read.extend([stream] * (metadata is None))
        return make(stream, metadata=metadata)

    lake = Lake.at(str(newsroom.lake))
    with newsroom.client() as client:
        page = searched(client, {"headline": "Ein Bild."}, index=newsroom.news, n="48")
    pictures = search_jobs.look_up(opened, shown(page.text))
    dataset = opened.index.manifest.dataset
    monkeypatch.setattr("newsroom.pages.pictures.find_copies", lambda *_: {})
    monkeypatch.setattr("newsroom.pages.pictures.pq.ParquetFile", counted)
    found = {jpeg_of(lake, dataset, image, each.part) for image, each in pictures.items()}
    assert len(found) == len(pictures) > 40 and len(read) == len({each.part for each in pictures.values()})
