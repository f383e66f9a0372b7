"""A MediaWiki on loopback: titles of a file and of a category, the articles' HTML, and their files' licences."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from candidates import candidate_of, licences_of, uris_of
from loopback import answering

from pipelines.settings import HttpConfig
from pipelines.sources.records import CandidateDocument, FieldError
from pipelines.sources.wikipedia.articles import parse_article
from pipelines.sources.wikipedia.live import WikipediaSource, article_request, fetch_articles, list_titles
from pipelines.web.client import Client
from schemas.documents import Provenance, Sentence
from schemas.failures import Failure
from schemas.lake import Folder
from schemas.messages import NotFoundError

FOLDER = Path(__file__).parents[3] / "fixtures" / "wikipedia"
COMMONS = "https://upload.wikimedia.org/wikipedia/commons"
SENTENCES = (
    "The dodo (Raphus cucullatus) is an extinct flightless bird.",
    "It weighed 10.6 kg & more.",
    "It was fond of fruit.",
    "Dr. Strickland wrote of it in 1848.",
    "Sailors ate it.",
    "Van Neck landed",
    "and left",
    "Others followed",
    "Printed sources only.",
)
IMAGES = (
    f"{COMMONS}/thumb/a/ab/Dodo_1.jpg/500px-Dodo_1.jpg",
    f"{COMMONS}/thumb/c/cd/Map.svg/500px-Map.svg.png",
    f"{COMMONS}/e/ef/Small.png",  # 180 px wide: as it is
    f"{COMMONS}/thumb/2/23/Scan.tif/lossy-page1-120px-Scan.tif.jpg",  # not among the files: as on the page
)
MEMBERS = (
    "/w/api.php?action=query&list=categorymembers&cmtitle=Category%3A{}&cmnamespace={}"
    "&cmlimit=500{}&format=json&formatversion=2"
)
FILES = (
    "/w/api.php?action=query&titles={}&generator=images&gimlimit=50&prop=imageinfo&iiprop=url%7Cextmetadata"
    "&iiurlwidth=500&iiextmetadatafilter=LicenseShortName{}&format=json&formatversion=2"
)


@dataclass
class Wiki:
    """A server of fixed answers; others are 404."""

    url: str = ""
    answers: dict[str, tuple[int, bytes, str]] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)

    def add(self, path: str, body: bytes, status: int = 200, location: str = "") -> None:
        self.answers[path] = (status, body, location)

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]


@pytest.fixture
def wiki() -> Iterator[Wiki]:
    state = Wiki()

    def answer(request: BaseHTTPRequestHandler) -> tuple[int, bytes, dict[str, str]]:
        state.asked.append((request.path, request.headers["User-Agent"]))
        status, body, location = state.answers.get(request.path, (404, b"", ""))
        return status, body, {"Location": location} if location else {}

    with answering(answer) as port:
        state.url = f"http://127.0.0.1:{port}"
        yield state


@pytest.fixture
def client(wiki: Wiki, tmp_path: Path) -> Iterator[Client]:
    host = wiki.url.removeprefix("http://")
    config = HttpConfig(
        allow_hosts=(host,), contact="tester@example.org", requests_per_second=1000.0, backoff_s=0.01, attempts=2
    )
    client = Client(config, Folder(str(tmp_path / "raw")))
    yield client
    client.flush()


def titles(source: WikipediaSource, client: Client) -> list[str]:
    return [
        f"{outcome.record_id} {outcome.reason}" if isinstance(outcome, Failure) else outcome
        for outcome in list_titles(source, client)
    ]


def test_titles_of_a_file(wiki: Wiki, client: Client, tmp_path: Path) -> None:
    source = WikipediaSource(base_url=wiki.url, titles=str(FOLDER / "titles.txt"))
    assert titles(source, client) == [
        "Dodo",
        "Great auk",
        "Dodo",
        "AC/DC",
        "titles.txt:6 broken-record",
        "titles.txt:7 broken-record",
        "Last line",
    ]
    assert wiki.asked == []
    (tmp_path / "titles.txt").write_text("__\n")
    assert titles(replace(source, titles=str(tmp_path / "titles.txt")), client) == ["titles.txt:1 broken-record"]
    with pytest.raises(NotFoundError):
        titles(WikipediaSource(titles=str(FOLDER / "none.txt")), client)


def test_titles_of_a_category_with_continuation(wiki: Wiki, client: Client) -> None:
    wiki.add(MEMBERS.format("Extinct+birds", "0", ""), (FOLDER / "category-1.json").read_bytes())
    wiki.add(
        MEMBERS.format("Extinct+birds", "0", "&cmcontinue=page%7C44%7C12&continue=-%7C%7C"),
        (FOLDER / "category-2.json").read_bytes(),
    )
    source = WikipediaSource(base_url=wiki.url, category="Extinct_birds")
    expected = ["Dodo", "Rodrigues solitaire", "R\u00e9union ibis"]
    assert titles(source, client) == expected
    assert titles(replace(source, category="Category:Extinct birds"), client) == expected  # from the store
    assert len(wiki.asked) == 2 and wiki.asked[0][1].endswith("(+tester@example.org)")
    assert titles(replace(source, limit=2), client) == expected[:2]


def test_subcategories_are_read_once(wiki: Wiki, client: Client) -> None:
    wiki.add(MEMBERS.format("Extinct+birds", "0%7C14", ""), (FOLDER / "category-1.json").read_bytes())
    wiki.add(
        MEMBERS.format("Extinct+birds", "0%7C14", "&cmcontinue=page%7C44%7C12&continue=-%7C%7C"),
        (FOLDER / "category-2.json").read_bytes(),
    )
    wiki.add(MEMBERS.format("Rails+%26+crakes", "0%7C14", ""), (FOLDER / "subcategory.json").read_bytes())
    source = WikipediaSource(base_url=wiki.url, category="Extinct birds", category_depth=5)
    assert titles(source, client) == ["Dodo", "Rodrigues solitaire", "R\u00e9union ibis", "Red rail"]
    assert len(wiki.asked) == 3


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"<html>", "broken-record"),
        (b"[]", "broken-record"),
        (b'{"error": {"code": "invalidcategory", "info": "The category name is not valid."}}', "broken-record"),
        (b'{"query": {"categorymembers": [{"title": "No name space"}]}}', "missing-field"),
        (b'{"query": {"categorymembers": [7]}}', "broken-record"),
    ],
)
def test_answers_that_list_nothing(wiki: Wiki, client: Client, body: bytes, reason: str) -> None:
    wiki.add(MEMBERS.format("X", "0", ""), body)
    assert titles(WikipediaSource(base_url=wiki.url, category="X"), client) == [f"Category:X {reason}"]


def test_a_continuation_that_never_ends_and_one_that_is_gone(wiki: Wiki, client: Client) -> None:
    body = b'{"continue": {"cmcontinue": "%s"}, "query": {"categorymembers": [{"ns": 0, "title": "A"}]}}'
    wiki.add(MEMBERS.format("X", "0", ""), body % b"again")
    wiki.add(MEMBERS.format("X", "0", "&cmcontinue=again"), body % b"again")
    wiki.add(MEMBERS.format("Y", "0", ""), body % b"gone")
    assert titles(WikipediaSource(base_url=wiki.url, category="X"), client) == ["Category:X broken-record"]
    assert titles(WikipediaSource(base_url=wiki.url, category="Y"), client) == ["Category:Y not-found"]


def info(url: str, licence: str | None, **fields: Any) -> dict[str, Any]:
    metadata = {} if licence is None else {"LicenseShortName": {"value": licence, "source": "commons-desc-page"}}
    return {"title": "File:X", "imageinfo": [{"url": url, "extmetadata": metadata, **fields}]}


def files(*pages: dict[str, Any], **fields: Any) -> bytes:
    return json.dumps({"batchcomplete": True, "query": {"pages": list(pages)}, **fields}).encode()


def fetch(source: WikipediaSource, client: Client, title: str, min_images: int = 0) -> CandidateDocument | Failure:
    (found,) = fetch_articles([title], client=client, source=source, min_images=min_images)
    return found


def test_an_article(wiki: Wiki, client: Client) -> None:
    path = "/w/rest.php/v1/page/Dodo_%26_sons/html"
    wiki.add(path, (FOLDER / "dodo.html").read_bytes().replace(b"//upload.", b"https://upload."))
    first = FILES.format("Dodo+%26+sons", "")
    second = FILES.format("Dodo+%26+sons", "&gimcontinue=9%7CSmall.png&continue=gimcontinue%7C%7C")
    wiki.add(
        first,
        files(
            info(f"{COMMONS}/a/ab/Dodo_1.jpg", "CC BY-SA 3.0", thumburl=IMAGES[0]),
            info(f"{COMMONS}/c/cd/Map.svg", None, thumburl=IMAGES[1]),
            {"ns": 6, "title": "File:Gone.jpg", "missing": True},
            **{"continue": {"gimcontinue": "9|Small.png", "continue": "gimcontinue||"}},
        ),
    )
    wiki.add(second, files(info(IMAGES[2], " Public\n domain", thumburl=IMAGES[2])))
    source = WikipediaSource(base_url=wiki.url, language="de")
    document = fetch(source, client, "Dodo & sons")
    url = "http://en.wikipedia.org/wiki/Dodo_%26_sons"  # the page's address has no scheme: it takes its server's
    assert document == candidate_of(
        id="8571",
        dataset="wiki",
        sentences=tuple(map(Sentence, SENTENCES)),
        image_uris=IMAGES,
        links=None,
        provenance=Provenance("wikipedia", "Dodo & sons", url, "CC-BY-SA-4.0"),
        language="en",  # as the page states it
        image_licences=("CC BY-SA 3.0", None, "Public domain", None),
        after_sentence=(0, 3, 5, 5),  # the infobox is before the first; the first paragraph has three sentences
    )
    assert fetch(source, client, "Dodo & sons") == document  # from the store
    assert wiki.paths == [path, first, second]  # robots.txt is not for an API


def test_an_article_with_too_few_images_is_left_out_before_its_files_are_asked_for(
    wiki: Wiki, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.sources.wikipedia.live.split_sentences", None)
    wiki.add("/w/rest.php/v1/page/Dodo/html", (FOLDER / "dodo.html").read_bytes())
    found = fetch(WikipediaSource(base_url=wiki.url), client, "Dodo", min_images=5)
    assert (found.record_id, found.reason, len(wiki.asked)) == ("Dodo", "too-few-images", 1)


@pytest.mark.parametrize("body", [b"", b'{"query": {"pages": [7]}}', b'{"error": {"code": "x"}}'])
def test_an_article_whose_files_are_not_told_is_a_row(wiki: Wiki, client: Client, body: bytes) -> None:
    source = WikipediaSource(base_url=wiki.url)
    page = (FOLDER / "dodo.html").read_bytes()
    wiki.add("/w/rest.php/v1/page/Dodo/html", page)
    found = fetch(source, client, "Dodo")
    assert (found.record_id, found.reason) == ("Dodo", "not-found")
    wiki.add("/w/rest.php/v1/page/Great_auk/html", page.replace(b"Dodo_%26_sons", b"Auk"))
    wiki.add(FILES.format("Auk", ""), body)
    found = fetch(source, client, "Great auk")
    assert (found.record_id, found.reason) == ("Great auk", "broken-record")


def test_articles_that_are_none(wiki: Wiki, client: Client) -> None:
    source = WikipediaSource(base_url=wiki.url)
    pages = {
        "Json": b'{"errorKey": "rest-nonexistent-title"}',
        "Deep": b"<body>" + b"<div>" * 200_000,
    }
    for title, page in pages.items():
        wiki.add(article_request(source, title).url.removeprefix(wiki.url), page)
    found = [fetch(source, client, title) for title in ("Gone", *pages)]
    reasons = {failure.record_id: str(failure.reason) for failure in found if isinstance(failure, Failure)}
    assert reasons == {"Gone": "not-found", **dict.fromkeys(pages, "broken-record")}


def test_a_page_that_says_nothing_of_itself(wiki: Wiki, client: Client) -> None:
    source = WikipediaSource(base_url=wiki.url, language="rm")
    wiki.add("/w/rest.php/v1/page/Plain/html", b"<body><p>A caf\xe9. Two.")
    wiki.add(FILES.format("Plain", ""), b'{"batchcomplete": true}')
    plain = fetch(source, client, "Plain")
    assert (plain.id, [sentence.text for sentence in plain.sentences]) == ("Plain", ["A caf\u00e9.", "Two."])
    assert (plain.language, uris_of(plain), licences_of(plain)) == ("rm", (), ())


BASE_URL = "https://en.wikipedia.org/w/rest.php/v1/page/Dodo/html"


def test_pictures_of_other_repositories_and_icons() -> None:
    data = (FOLDER / "dodo.html").read_bytes()
    page = parse_article(data, base_url=BASE_URL, repositories=("en",))
    assert page.image_urls == ("https://upload.wikimedia.org/wikipedia/en/thumb/1/12/Poster.jpg/220px-Poster.jpg",)
    assert page.url == "https://en.wikipedia.org/wiki/Dodo_%26_sons"
    assert len(parse_article(data, base_url=BASE_URL).image_urls) == 5
    with pytest.raises(FieldError, match="no body"):
        parse_article(b"", base_url=BASE_URL)


@pytest.mark.parametrize(
    ("html", "paragraphs"),
    [
        ("<p>a<br>b</p>c<div>d<p>e</div>f", ["a", "b", "c", "d", "e", "f"]),
        ("<p>a\nb <i>c</i>&amp;d<!-- e --></p></i></p>", ["a b c&d"]),
        ('<p><span id="coordinates">Coordinates: 20\u00b0S 57\u00b0E</span></p><p>Text.</p>', ["Text."]),
        (
            '<p>It lies at <span class="geo-default">48\u00b0N</span><span class="geo-multi-punct"> / </span>'
            '<span class="geo-nondefault">48.85</span>.</p>',
            ["It lies at 48\u00b0N."],
        ),
        ('<span typeof="mw:Extension/indicator">20\u00b0S</span>Text.', ["Text."]),
        ('<div role="note">For other birds, see Bird.</div><div class="dablink">See Egg.</div>Text.', ["Text."]),
        ("<script>if (a < b) x()</script><style>p {}</style>Text.", ["Text."]),
        ('<div style="display: none">no<p>no</p></div><p>yes', ["yes"]),
    ],
)
def test_what_a_reader_sees(html: str, paragraphs: list[str]) -> None:
    page = f"<html><head><title>No</title></head><body>{html}</body></html>"
    assert list(parse_article(page.encode(), base_url=BASE_URL).paragraphs) == paragraphs


@pytest.mark.parametrize(
    ("head", "body", "language"),
    [
        ('<meta http-equiv="Content-Language" content="fr">', "<body>", "fr"),
        ("", '<body lang="de-AT">', "de-AT"),
        ('<meta http-equiv="content-language" content="fr">', '<body lang="sr-Latn">', "sr-Latn"),
        ("", '<body lang="../../x">', None),
        ("", "<body>", None),
    ],
)
def test_the_language_a_page_states(head: str, body: str, language: str | None) -> None:
    page = f"<html><head>{head}</head>{body}<p lang='la'>Raphus</p></body></html>"
    assert parse_article(page.encode(), base_url=BASE_URL).language == language


@pytest.mark.parametrize("address", ["http://[x/a.jpg", "//[x/a.jpg"])
def test_malformed_addresses(address: str) -> None:
    picture = f'<figure typeof="mw:File"><img src="{address}" width="99"></figure>'
    page = f'<link rel="dc:isVersionOf" href="{address}"><body>{picture}'
    found = parse_article(page.encode(), base_url=BASE_URL)
    assert (found.title, found.image_urls) == (None, (address,))
