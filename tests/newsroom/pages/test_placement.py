"""Pictures beside paragraphs: the model's proposal, and moves by address."""

import io
import re
from itertools import chain
from urllib.parse import parse_qs, urlsplit

import httpx
import numpy as np
import pytest
from PIL import Image
from running_newsroom import NEWS, Newsroom, decide, searched, shown
from scipy.optimize import linear_sum_assignment

from newsroom.search.archive import Archive
from newsroom.search.queries import Query, QueryReader
from pipelines.sources.text import split_sentences

PARAGRAPHS = ("A camera stood there. Nobody ate the onion.", "It was <b>old</b> & <script>window.harmed = 9</script>.",
              "Then a helicopter came. Tux the penguin in a farm tractor!")  # fmt: skip
pytestmark = pytest.mark.slow  # builds the news and trains on them
ARTICLE = {"headline": "Placed <i>here</i>", "body": "\r\n\r\n".join(PARAGRAPHS)}


@pytest.fixture
def placed(newsroom: Newsroom, client: httpx.Client) -> tuple[str, list[str]]:
    """The path of an article's placement, and three pictures."""
    page = searched(client, ARTICLE, index=newsroom.news)
    return f"/placement/{page.url.path.split('/')[2]}?index={newsroom.news}", shown(page.text)[:3]


def at(client: httpx.Client, path: str, places: list[str]) -> httpx.Response:
    """Return what the pages answer for places of pictures."""
    return client.get(path, params=httpx.QueryParams(path.partition("?")[2]).merge({"place": places}))


def standing(page: str) -> dict[str, list[str]]:
    """Return the pictures beside each paragraph, as the page has them."""
    parts = re.split(r'<li class="paragraph[^"]*" data-paragraph="([^"]+)">', page)
    return {
        number: re.findall(r'data-place="([0-9a-f]{64}):', part)
        for number, part in zip(parts[1::2], parts[2::2], strict=True)
    }


def test_the_model_proposes_by_its_assignment(
    client: httpx.Client, placed: tuple[str, list[str]], archive: Archive
) -> None:
    path, images = placed
    split = split_sentences(PARAGRAPHS, language="en")
    expected: dict[str, list[str]] = {"0": [], "1": [], "2": [], "-": []}
    texts = [Query(texts={"body": text}, language="en") for text in split.sentences]
    vectors, index = QueryReader(archive.index.model, archive.reader).vectors(texts), archive.index
    matrix = vectors @ index.vectors.rows[index.records.rows_named(images)].T
    pairs = zip(*linear_sum_assignment(np.maximum(matrix, 0), maximize=True), strict=True)
    sentences = {image: sentence for sentence, image in pairs if matrix[sentence, image] > 0}
    for number, image in enumerate(images):
        expected[str(split.paragraphs[sentences[number]]) if number in sentences else "-"].append(image)
    page = at(client, path, images)
    assert page.status_code == 200 and standing(page.text) == expected
    assert "&lt;script&gt;window.harmed" in page.text and "<b>old" not in page.text
    assert len(re.findall("Goes with: ", page.text)) == 3 - len(expected["-"])


def test_a_move_is_an_address(client: httpx.Client, placed: tuple[str, list[str]]) -> None:
    path, (first, second, third) = placed
    page = at(client, path, [f"{first}:0", f"{second}:2", f"{third}:-"]).text
    assert standing(page) == {"0": [first], "1": [], "2": [second], "-": [third]}
    figure = page[page.index(f'id="at-{first[:12]}"') :]
    (down,) = re.findall(r'href="([^"]*)">Down', figure[: figure.index("</figure>")])
    target = urlsplit(down.replace("&amp;", "&"))
    assert target.fragment == f"at-{first[:12]}"
    assert parse_qs(target.query)["place"] == [f"{second}:2", f"{third}:-", f"{first}:1"]
    assert standing(client.get(target.geturl()).text) == {"0": [], "1": [first], "2": [second], "-": [third]}
    assert not re.findall(r'">Up<', figure[: figure.index("</figure>")])  # it is at the top


def test_without_places_the_chosen_pictures_stand_there(client: httpx.Client, placed: tuple[str, list[str]]) -> None:
    path, images = placed
    address = path.replace("/placement/", "/articles/")
    assert "No picture is chosen" in client.get(path).text
    page = client.get(address)
    for image, action in ((images[0], "shortlist"), (images[1], "shortlist")):
        page = decide(client, page, image, action)
    assert sorted(chain(*standing(client.get(path).text).values())) == sorted(images[:2])
    page = decide(client, page, images[2], "choose")
    assert list(chain(*standing(client.get(path).text).values())) == [images[2]]
    for image in images:
        page = decide(client, page, image, "withdraw")
    assert "No picture is chosen" in client.get(path).text


def test_choices_of_two_archives_are_placed_each_by_its_own(newsroom: Newsroom, client: httpx.Client) -> None:
    page = searched(client, {**ARTICLE, "headline": "Of two archives"}, index=newsroom.news)
    first = shown(page.text)[0]
    decide(client, page, first, "choose")
    evil = client.get(f"{page.url.path}?index={newsroom.evil}")
    second = shown(evil.text)[0]
    decide(client, evil, second, "choose")
    key = page.url.path.split("/")[2]
    for index in (newsroom.news, newsroom.evil):
        placed = client.get(f"/placement/{key}?index={index}")
        assert placed.status_code == 200
        assert sorted(chain(*standing(placed.text).values())) == sorted([first, second])
        assert {*re.findall(r'src="/pictures/(news|archive)%40', placed.text)} == {"news", "archive"}


def test_a_picture_of_ones_own_goes_beside_a_paragraph(newsroom: Newsroom, client: httpx.Client) -> None:
    page = searched(client, {**ARTICLE, "headline": "With my own"}, index=newsroom.news)
    key = page.url.path.split("/")[2]
    file = (NEWS / "pictures" / "007.jpg").read_bytes()
    form = {"as": "place", "then": f"/placement/{key}?index={newsroom.news}&place={shown(page.text)[0]}:0"}
    placed = client.post("/uploads", data=form, files={"picture": ("x.jpg", file, "image/jpeg")})
    assert placed.status_code == 200 and "Your own picture" in placed.text and "Goes with: " in placed.text
    (own,) = re.findall(r'data-place="([0-9a-f]{24}):[0-9]"', placed.text)
    assert f'data-place="{own}:2"' in client.get(f"/placement/{key}?place={own}:2").text
    assert max(Image.open(io.BytesIO(client.get(f"/uploads/{own}.jpg").content)).size) <= 512
    assert client.get(f"/placement/{key}?place={'0' * 24}").status_code == 404


@pytest.mark.parametrize(
    ("place_of", "status"),
    [
        ("x", 400),
        ("{}:3", 400),
        ("{}:-1", 400),
        ("{}:99999999", 400),
        ("f" * 64, 404),
        ("../../{}", 400),
        ("{}:1", 200),
    ],
)
def test_a_place_that_is_none_is_refused(
    client: httpx.Client, placed: tuple[str, list[str]], place_of: str, status: int
) -> None:
    path, images = placed
    assert at(client, path, [place_of.format(images[0])]).status_code == status
    assert client.get("/placement/0123").status_code == 404
