"""An article is read once, whichever process searches for it; and a part's footer once, whichever picture is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from newsroom.pages.search_request import SearchParameters
from running_newsroom import Newsroom, searched, shown

from newsroom.decisions.store import Article
from newsroom.pages import search_jobs
from newsroom.pages.archives import Choice
from newsroom.pages.pictures import jpeg_of
from newsroom.pages.searches import Opened
from schemas.lake import MANIFEST, Lake
from schemas.links import IndexManifest

ARTICLE = Article(texts={"headline": "Neptun, einer der »Gasriesen«.", "body": "In Graz blieben die Leute stehen."})


def opened(newsroom: Newsroom) -> Opened:
    manifest = IndexManifest.from_json(Path(newsroom.folder, MANIFEST).read_text(), where=newsroom.folder)
    return Opened(Choice(uri=newsroom.folder, manifest=manifest), ())


@pytest.mark.slow
@pytest.mark.parametrize(
    "asked",
    [{}, {"leave": ["body.2"]}, {"rank": "fused", "where": ["date=2020"]}, {"entity": ["Graz"], "language": "en"}],
)
def test_the_second_look_at_an_article_reads_nothing(
    newsroom: Newsroom, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters = SearchParameters.model_validate(asked)
    own = opened(newsroom)
    found = search_jobs.find(own, ARTICLE, parameters, b"")
    monkeypatch.setattr(type(own.queries), "read", None)
    monkeypatch.setattr("newsroom.pages.searches.find_entities", None)
    again = search_jobs.find(own, ARTICLE, parameters, b"")
    assert again.groups == found.groups and again.query == found.query and again.facets == found.facets
    assert [each.name for each in again.entities] == ["Graz"]
    own.close()


@pytest.mark.slow
def test_pictures_are_moved_without_reading_the_sentences_again(
    newsroom: Newsroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = opened(newsroom)
    images = [each.image for each in own.index.records.pictures([0, 1, 2])]
    paragraphs = ("Neptun ist ein Planet. Er ist blau.", "In Graz blieben die Leute stehen.")
    first = search_jobs.propose_places(own, ARTICLE, paragraphs, images, dict.fromkeys(images))
    monkeypatch.setattr(type(own.queries), "vectors", None)
    assert search_jobs.propose_places(own, ARTICLE, paragraphs, images, dict.fromkeys(images)) == first
    moved = search_jobs.propose_places(own, ARTICLE, paragraphs, images, dict.fromkeys(images[1:]))
    assert set(moved.places) <= set(images[1:]) and moved.pictures == first.pictures
    own.close()


@pytest.mark.slow
def test_the_footer_of_a_part_is_read_once(newsroom: Newsroom, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []
    make = pq.ParquetFile

    def counted(stream: Any, metadata: Any = None) -> pq.ParquetFile:
        read.extend([stream] * (metadata is None))
        return make(stream, metadata=metadata)

    lake = Lake.at(str(Path(newsroom.folder).parents[3]))
    with newsroom.client() as client:
        page = client.get(f"{searched(client, {'headline': 'Ein Bild.'}, index=newsroom.news).url}&n=48")
    own = opened(newsroom)
    pictures = search_jobs.look_up(own, shown(page.text))
    dataset = own.index.manifest.dataset
    monkeypatch.setattr("newsroom.pages.pictures.find_copies", lambda *_: {})
    monkeypatch.setattr("newsroom.pages.pictures.pq.ParquetFile", counted)
    found = {jpeg_of(lake, dataset, image, each.part) for image, each in pictures.items()}
    assert len(found) == len(pictures) > 40 and len(read) == len({each.part for each in pictures.values()})
    own.close()
