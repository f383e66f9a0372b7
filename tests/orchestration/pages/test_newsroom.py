"""The article page over HTTP alone, as a browser without a script uses it: forms and links, against the library."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace

import httpx
import pytest
from newsroom import NEWS, Newsroom, searched, shown, token_in

from orchestration.inference.archive import Archive
from orchestration.pages.articles import link_of
from orchestration.pages.asking import Coloured, SearchParameters, _texts
from training.retrieval.queries import Query
from training.retrieval.records import Picture
from training.retrieval.search import RankBy

pytestmark = pytest.mark.slow  # builds the news and trains on them
TEXTS = {
    "headline": "Gesprächsthema: Neptun, einer der »Gasriesen« in unserem Sonnensystem.",
    "lead": "In Graz blieben die Leute stehen: Ein offenes Vorhängeschloss.",
}
LINES = (NEWS / "articles.jsonl").read_text(encoding="utf-8").splitlines()
ARTICLES = {row["id"]: row for row in map(json.loads, LINES)}


def links(page: str, pattern: str) -> list[str]:
    """Return the addresses of links whose opening tag matches."""
    return [html.unescape(found) for found in re.findall(rf'<a (?=[^>]*{pattern})[^>]*href="([^"]*)"', page)]


def ranked(newsroom: Newsroom, client: httpx.Client, texts: dict[str, str], **options: str) -> httpx.Response:
    return searched(client, texts, index=newsroom.news, **options)


def with_(client: httpx.Client, page: httpx.Response, **parameters: str) -> httpx.Response:
    """Return the page whose address has some other parameters."""
    return client.get(page.url.copy_merge_params(parameters))


def expected(archive: Archive, **query: object) -> list[str]:
    found = archive.search(**{**TEXTS, "language": "de", "top": 56, **query})  # type: ignore[arg-type]
    return [each.picture.image for each in found.images][:12]


def test_a_search_without_a_script_is_the_librarys(newsroom: Newsroom, archive: Archive) -> None:
    with newsroom.client() as client:
        page = ranked(newsroom, client, TEXTS)
        assert shown(page.text) == expected(archive)
        again = client.get(str(page.url))  # the address is all it takes
        assert shown(again.text) == shown(page.text) and html.escape(TEXTS["lead"]) in again.text
        more = ranked(newsroom, client, TEXTS, n="24")
        assert shown(more.text)[:12] == shown(page.text) and len(shown(more.text)) == 24
        assert "German (found)" in page.text and "of 360" in page.text
        for by in RankBy:
            (address,) = links(page.text, f'id="rank-{by}"')
            assert shown(client.get(address).text) == expected(archive, rank_by=by)


def test_a_word_left_out_is_not_read(newsroom: Newsroom, archive: Archive) -> None:
    with newsroom.client() as client:
        page = ranked(newsroom, client, TEXTS)
        words = re.findall(r'id="w-headline-(\d+)" class="w([^"]*)"[^>]*>([^<]*)</a>', page.text)
        assert [word for _, _, word in words][:3] == ["Gesprächsthema", ":", "Neptun"]
        (address,) = links(page.text, 'id="w-headline-2"')
        without = client.get(address)
        assert shown(without.text) == expected(archive, headline=TEXTS["headline"].replace("Neptun", ""))
        assert 'class="w out"' in without.text
        (back,) = links(without.text, 'id="w-headline-2"')
        assert shown(client.get(back).text) == shown(page.text)
        found = archive.search(**TEXTS, language="de", top=1)
        source = next(each for each in found.sources if each.role == "headline")
        even = 1 / len(source.tokens)
        steps = [sum(share >= times * even for times in (1, 1.5, 2)) for share in source.attention]
        assert [int(re.search(r"s(\d)", kind)[1]) if " s" in kind else 0 for _, kind, _ in words] == steps  # type: ignore[index]
        bars = [float(value) for value in re.findall(r'<meter[^>]*value="([\d.]+)" aria-label="Weight', page.text)]
        assert bars == pytest.approx([each.weight for each in found.sources], abs=1e-3)


def test_names_are_counted_and_filter(newsroom: Newsroom) -> None:
    truth = sum(row.get("picture", {}).get("place") == "Graz" for row in ARTICLES.values())  # the others say it in XMP
    with newsroom.client() as client:
        page = ranked(newsroom, client, TEXTS)
        chip = re.search(
            r'<a class="chip" id="e-1-LOC" href="([^"]*)">Graz <span class="number">(\d+)</span>', page.text
        )
        assert chip is not None and int(chip[2]) >= truth > 0
        assert "No spaCy model" in page.text
        filtered = client.get(html.unescape(chip[1]))
        assert f"of {chip[2]}." in filtered.text and 0 < len(shown(filtered.text)) <= 12
        assert 'aria-current="true">Graz' in filtered.text
        slip = with_(client, page, entity="Nantse")
        assert "Nothing is called “Nantse” here. Shown instead: Nantes" in slip.text
        assert shown(slip.text) == shown(with_(client, page, entity="Nantes").text)
        none = with_(client, page, entity="Zzyzx")
        assert "Nothing is called “Zzyzx” here." in none.text and shown(none.text) == []


def test_facets_and_conditions_leave_what_they_say(newsroom: Newsroom) -> None:
    with newsroom.client() as client:
        page = ranked(newsroom, client, TEXTS, n="96")
        facet = re.search(r'<a id="f-date-1" href="([^"]*)">(\d+)</a> <span class="number">(\d+)</span>', page.text)
        assert facet is not None
        year, number = facet[2], facet[3]
        of_year = client.get(html.unescape(facet[1]))
        dates = re.findall(r'class="note credit">[^<]*· (\d{4})-', of_year.text)
        assert set(dates) == {year} and len(dates) == min(96, int(number)) and f"of {number}." in of_year.text
        both = with_(client, page, date=year, where="orientation=square")
        assert set(shown(both.text)) < set(shown(of_year.text))
        assert with_(client, page, where="colour=red").status_code == 400
        assert with_(client, page, n="0").status_code == 400
        assert with_(client, page, leave="x").status_code == 400


def test_pictures_refine_and_are_queries(newsroom: Newsroom, archive: Archive) -> None:
    with newsroom.client() as client:
        page = ranked(newsroom, client, TEXTS)
        (more, *_), (less, *_) = links(page.text, 'id="more-'), links(page.text, 'id="less-')
        first = shown(page.text)[0]
        assert shown(client.get(more).text) == expected(archive, like=[first])
        assert shown(client.get(f"{less}&weak=1").text) == expected(archive, unlike=[first])
        alone = client.get("/", params={"like": first, "index": newsroom.news})
        assert shown(alone.text)[0] == first
        path = NEWS / "pictures" / "007.jpg"
        form = {"csrf": token_in(page.text), "then": f"/?n=24&index={newsroom.news}"}
        by_picture = client.post("/uploads", data=form, files={"picture": (path.name, path.read_bytes(), "image/jpeg")})
        assert by_picture.status_code == 200 and len(shown(by_picture.text)) == 24
        found = archive.search(image=str(path), top=12)
        assert shown(by_picture.text)[:12] == [each.picture.image for each in found.images]
        assert found.images[0].similarity == pytest.approx(1, abs=1e-3)
        broken = client.post("/uploads", data=form, files={"picture": ("x.jpg", b"<svg/>", "image/jpeg")})
        assert broken.status_code == 400 and "cannot be used" in broken.text


def test_nothing_likely_is_said_instead_of_a_grid(newsroom: Newsroom) -> None:
    with newsroom.client() as client:
        page = ranked(newsroom, client, {"headline": "Qwertz uiopü asdf"})
        assert "With less than 50% is one of the first ten" in page.text and shown(page.text) == []
        (address,) = links(page.text, 'id="show-weak"')
        weak = client.get(address)
        probabilities = [float(value) for value in re.findall(r'value="([\d.]+)" aria-label="Probability"', weak.text)]
        assert len(probabilities) == 10 and max(probabilities) < 0.5  # beyond the first ten nothing is known
        likely = ranked(newsroom, client, TEXTS)
        assert 'id="first-ten"' in likely.text and "At least one of the first ten is right with" in likely.text


def test_words_of_no_picture_are_said_to_be_so(newsroom: Newsroom) -> None:
    with newsroom.client() as client:
        page = ranked(newsroom, client, {"headline": "Qwertz"})
        (address,) = links(page.text, 'id="rank-lexical"')
        found = client.get(address).text
        assert shown(found) == [] and "None of the words stands in a title or a caption" in found


def test_colours_are_explained_where_there_are_some(newsroom: Newsroom, archive: Archive) -> None:
    with newsroom.client() as client:
        assert "Colours show the attention" in ranked(newsroom, client, {"headline": "Neptun"}).text
    query = Query(texts={"headline": "Neptun"}, language="de")
    found = archive.search(headline="Neptun", language="de", top=3)
    assert _texts(archive, query, found, SearchParameters())[1] is Coloured.ATTENTION
    unattended = replace(found, sources=())  # as a tower without attention reads it
    texts, coloured = _texts(archive, query, unattended, SearchParameters())
    assert coloured is Coloured.INFLUENCE and [word.share for text in texts for word in text.words] == [1.0]
    texts, coloured = _texts(archive, query, replace(unattended, images=()), SearchParameters())
    assert coloured is Coloured.NOTHING and [word.share for text in texts for word in text.words] == [None]


def test_a_picture_is_shown_large_with_all_that_is_known(newsroom: Newsroom) -> None:
    with newsroom.client() as client:
        page = ranked(newsroom, client, TEXTS)
        address = links(page.text, 'class="open"')[0]
        large = client.get(address)
        assert large.status_code == 200 and "GPL-2.0-or-later" in large.text
        (back,) = links(large.text, 'id="back"')
        assert shown(client.get(back).text) == shown(page.text)
        copy = re.search(r'<img src="([^"]*)"', large.text)
        assert copy is not None
        jpeg = client.get(html.unescape(copy[1]))
        assert jpeg.content.startswith(b"\xff\xd8\xff") and jpeg.headers["content-type"] == "image/jpeg"
        assert "immutable" in jpeg.headers["cache-control"]


def test_an_article_of_the_data_set_is_opened(newsroom: Newsroom) -> None:
    with newsroom.client() as client:
        page = client.get("/documents", params={"index": newsroom.news, "split": "test"})
        names = re.findall(r'name="id" value="([^"]*)"', page.text)
        assert len(names) == 40 and all(ARTICLES[name]["split"] == "test" for name in names)
        form = {"csrf": token_in(page.text), "index": newsroom.news, "split": "test", "id": names[0]}
        opened = client.post("/documents", data=form)
        assert html.escape(ARTICLES[names[0]]["body"], quote=False)[:40] in html.unescape(opened.text)
        assert names[0] in opened.text and len(shown(opened.text)) == 12
        assert client.post("/documents", data={**form, "id": "nobody"}).status_code == 404
        second = client.get("/documents", params={"index": newsroom.news, "split": "test", "start": "40"})
        assert not set(names) & set(re.findall(r'name="id" value="([^"]*)"', second.text))


def test_the_interface_speaks_three_languages(newsroom: Newsroom) -> None:
    with newsroom.client() as client:
        page = ranked(newsroom, client, TEXTS)
        for code, word in (("de", "Bilder ordnen"), ("fr", "Classer les images"), ("en", "Rank the pictures")):
            translated = with_(client, page, ui=code).text
            assert f'<html lang="{code}">' in translated and word in translated
            assert shown(translated) == shown(page.text)


def test_an_address_of_a_script_is_no_link() -> None:
    assert link_of(Picture(image="a", source="https://example.org/a.jpg")) == "https://example.org/a.jpg"
    for source in ("javascript:alert(1)", "data:text/html,x", "/etc/passwd", None, "JaVaScRiPt:x"):
        assert link_of(Picture(image="a", source=source)) is None
