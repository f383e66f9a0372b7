"""The article page over HTTP alone, as a browser without a script uses it: forms and links, against the library."""

import html
import io
import re
from dataclasses import replace

import httpx
import numpy as np
import pytest
from PIL import Image
from running_newsroom import ARTICLES, NEWS, Newsroom, decide, searched, shown

from newsroom.pages.rendering import environment
from newsroom.pages.search_jobs import SearchParameters, _influence
from newsroom.pages.searches import Opened
from newsroom.search.archive import Archive
from newsroom.search.queries import Query, QueryReader
from newsroom.search.search import RankBy

pytestmark = pytest.mark.slow  # builds the news and trains on them
TEXTS = {
    "headline": "Gesprächsthema: Neptun, einer der »Gasriesen« in unserem Sonnensystem.",
    "lead": "In Graz blieben die Leute stehen: Ein offenes Vorhängeschloss.",
}


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


def test_a_search_without_a_script_is_the_librarys(newsroom: Newsroom, archive: Archive, client: httpx.Client) -> None:
    page = ranked(newsroom, client, TEXTS)
    assert shown(page.text) == expected(archive)
    again = client.get(str(page.url))  # the address is all it takes
    assert shown(again.text) == shown(page.text) and html.escape(TEXTS["lead"]) in again.text
    assert not re.search("no credit|without a title", page.text)  # what is unknown is left out
    (further,) = links(page.text, 'id="further"')
    more = client.get(further)
    assert shown(more.text)[:12] == shown(page.text) and len(shown(more.text)) == 24
    assert "German (found)" in page.text and f"of {len(ARTICLES)}" in page.text
    for by in RankBy:
        (address,) = links(page.text, f'id="rank-{by}"')
        assert shown(client.get(address).text) == expected(archive, rank_by=by)


def test_a_word_left_out_is_not_read(newsroom: Newsroom, archive: Archive, client: httpx.Client) -> None:
    page = ranked(newsroom, client, TEXTS)
    words = re.findall(r'id="w-headline-(\d+)" class="w([^"]*)"[^>]*>([^<]*)</button>', page.text)
    assert [word for _, _, word in words][:3] == ["Gesprächsthema", ":", "Neptun"]
    without = with_(client, page, leave="headline.2")
    assert shown(without.text) == expected(archive, headline=TEXTS["headline"].replace("Neptun", ""))
    assert 'class="w out"' in without.text
    (back,) = links(without.text, 'id="w-headline-2"')
    assert shown(client.get(back).text) == shown(page.text)


def test_names_are_counted_and_filter(newsroom: Newsroom, client: httpx.Client) -> None:
    truth = sum(row.get("picture", {}).get("place") == "Graz" for row in ARTICLES.values())  # the others say it in XMP
    page = ranked(newsroom, client, TEXTS)
    chip = re.search(r'<a class="chip" id="e-1-LOC" href="([^"]*)">Graz <span class="number">(\d+)</span>', page.text)
    assert chip is not None and int(chip[2]) >= truth > 0
    filtered = client.get(html.unescape(chip[1]))
    assert f"of {chip[2]}." in filtered.text and 0 < len(shown(filtered.text)) <= 12
    assert 'aria-current="true">Graz' in filtered.text and 'aria-label="Graz: remove the filter"' in filtered.text
    slip = with_(client, page, entity="Nantse")
    assert "Nothing is called “Nantse” here. Shown instead: Nantes" in slip.text
    assert shown(slip.text) == shown(with_(client, page, entity="Nantes").text)
    none = with_(client, page, entity="Zzyzx")
    assert "Nothing is called “Zzyzx” here." in none.text and shown(none.text) == []


def test_facets_and_conditions_leave_what_they_say(newsroom: Newsroom, client: httpx.Client) -> None:
    page = ranked(newsroom, client, TEXTS, n="96")
    facet = re.search(r'<a id="f-date-1" href="([^"]*)">(\d+)</a> <span class="number">(\d+)</span>', page.text)
    year, number = facet[2], facet[3]
    of_year = client.get(html.unescape(facet[1]))
    dates = re.findall(r'class="note credit">[^<]*· (\d{4})-\d\d', of_year.text)
    assert set(dates) == {year} and len(dates) == min(96, int(number)) and f"of {number}." in of_year.text
    assert set(shown(client.get(f"{of_year.url}&where=orientation%3Dsquare").text)) < set(shown(of_year.text))
    wrong = with_(client, page, where="colour=red", entity="--")
    assert shown(wrong.text) == shown(page.text) and "no field &#39;colour&#39;" in wrong.text
    assert wrong.text.count('<li class="problem">') == 2 and 'aria-describedby="wrong"' in wrong.text
    assert with_(client, page, n="0").status_code == 400
    assert with_(client, page, leave="x").status_code == 400


def test_pictures_refine_and_are_queries(newsroom: Newsroom, archive: Archive, client: httpx.Client) -> None:
    page = ranked(newsroom, client, TEXTS)
    (more, *_), (less, *_) = links(page.text, 'id="more-'), links(page.text, 'id="less-')
    first = shown(page.text)[0]
    assert shown(client.get(more).text) == expected(archive, like=[first])
    assert shown(client.get(less).text) == expected(archive, unlike=[first])
    assert shown(client.get("/", params={"like": first, "index": newsroom.news}).text)[0] == first
    path = NEWS / "pictures" / "007.jpg"
    form = {"then": f"/?n=24&index={newsroom.news}"}
    by_picture = client.post("/uploads", data=form, files={"picture": (path.name, path.read_bytes(), "image/jpeg")})
    assert by_picture.status_code == 200 and len(shown(by_picture.text)) == 24
    found = archive.search(image=str(path), top=12)
    assert shown(by_picture.text)[:12] == [each.picture.image for each in found.images]
    assert found.images[0].similarity == pytest.approx(1, abs=1e-3)
    (copy,) = re.findall(r'src="(/uploads/[0-9a-f]{24}\.jpg)"', by_picture.text)
    assert max(Image.open(io.BytesIO(client.get(copy).content)).size) <= 512
    broken = client.post("/uploads", data=form, files={"picture": ("x.jpg", b"<svg/>", "image/jpeg")})
    assert broken.status_code == 400 and "cannot be used" in broken.text


def test_a_word_says_how_near_a_picture_is_and_numbers_are_under_more(
    newsroom: Newsroom, archive: Archive, client: httpx.Client
) -> None:
    found = archive.search(**TEXTS, language="de", top=12, rank_by=RankBy.VISUAL)  # type: ignore[arg-type]
    shares = archive.index.confidence.any_of_first.probability(np.array([each.similarity for each in found.images]))
    words = ["strong" if share >= 2 / 3 else "fair" if share >= 1 / 3 else "weak" for share in shares]
    assert [each.strength for each in found.images] == words and len({*words}) > 1
    likely = ranked(newsroom, client, TEXTS, rank="visual").text
    assert re.findall(r'No\. (\d+) · <span class="strength \w+">(\w+)<', likely) == [
        (str(number), word) for number, word in enumerate(words, start=1)
    ]
    beside = re.sub(r"<details class=\"more\">.*?</details>", "", likely[likely.index('id="pictures"') :], flags=re.S)
    assert "%" not in re.sub("<[^>]*>", "", beside[: beside.index("</ol>")]) and "<meter" not in likely
    assert "a right picture was among the first ten in" in likely
    unlikely = ranked(newsroom, client, {"headline": "Qwertz uiopü asdf"}, rank="visual").text
    assert "The archive likely has no right picture" in unlikely and len(shown(unlikely)) == 12
    picture = client.get("/", params={"like": shown(likely)[0], "index": newsroom.news}).text
    assert 'class="strength' not in picture and "No. 1" in picture  # of such queries nothing is known


def test_words_of_no_picture_are_said_to_be_so(newsroom: Newsroom, client: httpx.Client) -> None:
    (address,) = links(ranked(newsroom, client, {"headline": "Qwertz"}).text, 'id="rank-lexical"')
    found = client.get(address).text
    assert shown(found) == [] and "No title or caption of a picture has one of these words" in found


def test_colours_are_explained_where_there_are_some(
    newsroom: Newsroom, archive: Archive, opened: Opened, client: httpx.Client
) -> None:
    page = ranked(newsroom, client, {"headline": "Neptun"})
    assert "Colours show" not in page.text
    (address,) = links(page.text, 'id="show-influence"')
    assert "Colours show how much a word adds" in client.get(address).text
    query = Query(texts={"headline": "Neptun und ein Schloss"}, language="de")
    found = archive.search(headline=query.texts["headline"], language="de", top=3)
    asked = SearchParameters(influence=True)
    assert _influence(opened, query, found, SearchParameters()) == {}
    images = archive.index.vectors.rows[archive.index.records.rows_named([p.picture.image for p in found.images])]
    expected = QueryReader(archive.index.model).influence(query, images)["headline"]
    assert _influence(opened, query, found, asked) == {"headline": pytest.approx(expected, abs=1e-6)}
    assert _influence(opened, query, replace(found, images=()), asked) is None
    assert _influence(opened, Query(texts={"body": "Wort " * 501}, language="de"), found, asked) is None


def test_a_long_text_is_refused_and_the_field_says_so(client: httpx.Client) -> None:
    assert 'maxlength="20000"' in client.get("/").text
    refused = client.post("/articles", data={"body": "x" * 20_001})
    assert refused.status_code == 400 and "body: String should have at most 20000 characters" in refused.text
    assert client.post("/articles", data={"body": "x " * 10_000}).status_code == 200


def test_a_picture_is_shown_alone_with_all_that_is_known_and_leads_on(newsroom: Newsroom, client: httpx.Client) -> None:
    page = ranked(newsroom, client, TEXTS, n="24")
    images = shown(page.text)
    alone = client.get(links(page.text, 'class="open"')[1])
    assert alone.status_code == 200 and "GPL-2.0-or-later" in alone.text and "<dt>Date</dt>" in alone.text
    assert images[1] in alone.text and "Year" not in alone.text
    (back,) = links(alone.text, 'id="back"')
    assert shown(client.get(back).text) == images
    (following,), (before,) = links(alone.text, 'rel="next"'), links(alone.text, 'rel="prev"')
    assert f"view={images[2]}" in following and f"view={images[0]}" in before
    assert links(client.get(before).text, 'rel="prev"') == []
    chosen = decide(client, alone, images[1], "choose")
    assert chosen.url == alone.url.copy_with(fragment=f"decide-{images[1][:12]}")
    assert 'data-standing="choose"' in chosen.text and "Chosen (1)" in chosen.text
    copy = re.search(r'<img src="(/pictures/[^"]*)"', alone.text)
    jpeg = client.get(html.unescape(copy[1]))
    assert jpeg.content.startswith(b"\xff\xd8\xff") and jpeg.headers["content-type"] == "image/jpeg"
    assert jpeg.headers["cache-control"] == "private, max-age=600"
    assert client.get(html.unescape(copy[1]).partition("?")[0]).content == jpeg.content
    assert with_(client, page, view="f" * 64).status_code == 404
    by_index = client.get(f"/images/{newsroom.news}/{images[1]}")
    assert by_index.status_code == 200 and 'name="decide"' not in by_index.text


def test_articles_of_the_data_set_are_searched_sorted_and_opened(newsroom: Newsroom, client: httpx.Client) -> None:
    def listed(**options: str) -> list[str]:
        page = client.get("/documents", params={"index": newsroom.news, **options})
        return re.findall(r'name="id" value="([^"]*)"', page.text)

    names, second = listed(), listed(page="2")
    assert len({*names, *second}) == 40 and {*names, *second} <= ARTICLES.keys()
    by_title = [ARTICLES[name]["headline"].lower() for name in listed(order="title")]
    assert by_title == sorted(row["headline"].lower() for row in ARTICLES.values())[:20]
    assert {*listed(q="NEPTUN")} == {name for name, row in ARTICLES.items() if "neptun" in row["headline"].lower()}
    assert listed(q="<script>") == [] and listed(page="99") != []
    page = client.get("/documents", params={"index": newsroom.news})
    assert client.get(html.unescape(re.findall(r'<img class="thumb" src="([^"]*)"', page.text)[0])).status_code == 200
    (part,) = re.findall(rf'name="part" value="([^"]*)"><input type="hidden" name="id" value="{names[0]}"', page.text)
    form = {"index": newsroom.news, "part": part, "id": names[0]}
    opened = client.post("/documents", data=form)
    assert html.escape(ARTICLES[names[0]]["body"], quote=False)[:40] in html.unescape(opened.text)
    assert names[0] in opened.text and len(shown(opened.text)) == 12
    every = client.get(f"{opened.url}&n=96")
    found = re.search(r"own picture is at rank (\d+)\.", every.text)
    own = [link for link in re.split('<li class="picture"', every.text)[1:] if "data-own" in link[:40]]
    assert len(own) <= 1 and bool(found) == bool(own) and (found or "is not among these" in every.text)
    assert client.post("/documents", data={**form, "id": "nobody"}).status_code == 404


def test_the_first_page_has_the_newest_pictures_and_takes_a_whole_article(
    newsroom: Newsroom, archive: Archive, client: httpx.Client
) -> None:
    records = archive.index.records
    dates = [each.metadata.date or "" for each in records.pictures(list(range(records.count)))]
    first = client.get("/", params={"index": newsroom.news}).text
    found = [records.pictures(records.rows_of([image]))[0].metadata.date for image in shown(first)]
    assert found == sorted(dates, reverse=True)[:24]
    pasted = f"{TEXTS['headline']}\n\n{TEXTS['lead']}\n\nEins.\nZwei."
    page = client.post("/articles", data={"article": pasted, "index": newsroom.news})
    assert f'value="{html.escape(TEXTS["headline"])}"' in page.text and len(shown(page.text)) == 12
    parted = {**TEXTS, "body": "Eins.\n\nZwei.", "index": newsroom.news}
    assert page.url.path == client.post("/articles", data=parted).url.path
    assert client.post("/articles", data={"article": "x" * 20_001}).status_code == 400


def test_an_address_of_a_script_is_no_link() -> None:
    outward = environment().get_template("viewer.html.j2").module.outward  # type: ignore[attr-defined]
    assert 'href="https://example.org/a.jpg"' in outward("https://example.org/a.jpg")
    for source in ("javascript:alert(1)", "data:text/html,x", "/etc/passwd", "JaVaScRiPt:x", "//evil.example/x"):
        assert "href" not in outward(source)
