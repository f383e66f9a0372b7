"""A MediaWiki on loopback: titles of a file and of a category, and the articles' HTML of both interfaces."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from pipelines.settings import HttpConfig
from pipelines.sources.article_settings import ArticleApi, WikipediaSource
from pipelines.sources.candidate import CandidateDocument
from pipelines.sources.wikipedia import article_url, fetch_article, list_titles
from pipelines.sources.wikipedia_pages import PageError, parse_article, thumbnail_url
from pipelines.web.client import Client
from schemas.documents import Provenance, Sentence
from schemas.errors import ConfigError
from schemas.failures import Failure
from schemas.lake import Folder

FOLDER = Path(__file__).parents[2] / "fixtures" / "wikipedia"
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
    f"{COMMONS}/thumb/c/cd/Map.svg/500px-Map.svg.png",  # a drawing has every width
    f"{COMMONS}/e/ef/Small.png",  # 180 px wide: as it is
    f"{COMMONS}/thumb/2/23/Scan.tif/lossy-page1-330px-Scan.tif.jpg",  # 400 px wide, and no browser shows TIFF
)
MEMBERS = (
    "/w/api.php?action=query&list=categorymembers&cmtitle=Category%3A{}&cmnamespace={}"
    "&cmlimit=500&format=json&formatversion=2{}"
)


@dataclass
class Wiki:
    """A server of fixed answers; others are 404."""

    url: str
    answers: dict[str, tuple[int, bytes, str]] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)

    def add(self, path: str, body: bytes, status: int = 200, location: str = "") -> None:
        self.answers[path] = (status, body, location)

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]


@pytest.fixture
def wiki() -> Iterator[Wiki]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.asked.append((self.path, self.headers["User-Agent"]))
            status, body, location = state.answers.get(self.path, (404, b"", ""))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            if location:
                self.send_header("Location", location)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state = Wiki(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield state
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def client(wiki: Wiki, tmp_path: Path) -> Iterator[Client]:
    host = wiki.url.removeprefix("http://")
    config = HttpConfig(
        allow_hosts=(host,), contact="tester@example.org", requests_per_second=1000.0, backoff_s=0.01, attempts=2
    )
    client = Client(config, Folder(str(tmp_path / "raw")))
    yield client
    client.close()


def titles(source: WikipediaSource, client: Client) -> list[str]:
    return [
        f"{outcome.record_id} {outcome.reason}" if isinstance(outcome, Failure) else outcome
        for outcome in list_titles(source, client)
    ]


def test_titles_of_a_file(wiki: Wiki, client: Client) -> None:
    source = WikipediaSource(base_url=wiki.url, titles=str(FOLDER / "titles.txt"))
    assert titles(source, client) == [
        "Dodo",
        "Great auk",
        "Dodo duplicate-record",
        "AC/DC",
        "titles.txt:6 broken-record",
        "titles.txt:7 broken-record",
        "Last line",
    ]
    assert wiki.asked == []
    with pytest.raises(FileNotFoundError):
        titles(WikipediaSource(titles=str(FOLDER / "none.txt")), client)


def test_titles_of_a_category_with_continuation(wiki: Wiki, client: Client) -> None:
    wiki.add(MEMBERS.format("Extinct+birds", "0", ""), (FOLDER / "category-1.json").read_bytes())
    wiki.add(
        MEMBERS.format("Extinct+birds", "0", "&cmcontinue=page%7C44%7C12"), (FOLDER / "category-2.json").read_bytes()
    )
    source = WikipediaSource(base_url=wiki.url, category="Extinct_birds")
    expected = ["Dodo", "Rodrigues solitaire", "R\u00e9union ibis"]
    assert titles(source, client) == expected
    assert titles(replace(source, category="Category:Extinct birds"), client) == expected  # from the store
    assert len(wiki.asked) == 2
    assert wiki.asked[0][1].endswith("(+tester@example.org)")
    assert titles(replace(source, limit=2), client) == expected[:2]


def test_subcategories_are_read_once(wiki: Wiki, client: Client) -> None:
    wiki.add(MEMBERS.format("Extinct+birds", "0%7C14", ""), (FOLDER / "category-1.json").read_bytes())
    wiki.add(
        MEMBERS.format("Extinct+birds", "0%7C14", "&cmcontinue=page%7C44%7C12"),
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
        (b"{}", "missing-field"),
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
    assert titles(WikipediaSource(base_url=wiki.url, category="X"), client) == ["A", "Category:X broken-record"]
    assert titles(WikipediaSource(base_url=wiki.url, category="Y"), client) == ["A", "Category:Y not-found"]


@pytest.mark.parametrize(
    ("api", "path"),
    [
        (ArticleApi.CORE, "/w/rest.php/v1/page/Dodo_%26_sons/html"),
        (ArticleApi.REST_V1, "/api/rest_v1/page/html/Dodo_%26_sons"),
    ],
)
def test_an_article(wiki: Wiki, client: Client, api: ArticleApi, path: str) -> None:
    wiki.add(path, (FOLDER / "dodo.html").read_bytes().replace(b"//upload.", b"https://upload."))
    source = WikipediaSource(base_url=wiki.url, api=api)
    draft = fetch_article("Dodo & sons", client=client, source=source)
    url = "http://en.wikipedia.org/wiki/Dodo_%26_sons"  # the page's address has no scheme: it takes its server's
    assert draft == CandidateDocument(
        id="8571",
        dataset="wiki",
        sentences=tuple(map(Sentence, SENTENCES)),
        image_uris=IMAGES,
        links=None,
        provenance=Provenance("wikipedia", "Dodo & sons", url, "CC-BY-SA-4.0"),
        language="en",
    )
    assert fetch_article("Dodo & sons", client=client, source=source) == draft  # from the store
    assert wiki.paths == [path]  # robots.txt is not for an API


def test_a_redirect_gives_the_article_it_leads_to(wiki: Wiki, client: Client) -> None:
    wiki.add("/w/rest.php/v1/page/Raphus/html", b"", 307, "/w/rest.php/v1/page/Dodo/html?redirect=no")
    wiki.add("/w/rest.php/v1/page/Dodo/html?redirect=no", (FOLDER / "dodo.html").read_bytes())
    draft = fetch_article("Raphus", client=client, source=WikipediaSource(base_url=wiki.url))
    assert isinstance(draft, CandidateDocument)
    assert (draft.id, draft.provenance.record_id) == ("8571", "Dodo & sons")


def test_articles_that_are_none(wiki: Wiki, client: Client) -> None:
    source = WikipediaSource(base_url=wiki.url)
    wiki.add(article_url(source, "Empty").removeprefix(wiki.url), b"<html><body><p> </p></body></html>")
    wiki.add(article_url(source, "Json").removeprefix(wiki.url), b'{"errorKey": "rest-nonexistent-title"}')
    wiki.add(article_url(source, "Deep").removeprefix(wiki.url), b"<body>" + b"<div>" * 5000)
    wiki.add(article_url(source, "Plain").removeprefix(wiki.url), b"<body><p>A caf\xe9. Two.")
    found = {title: fetch_article(title, client=client, source=source) for title in ("Gone", "Empty", "Json", "Deep")}
    reasons = {title: str(failure.reason) for title, failure in found.items() if isinstance(failure, Failure)}
    expected = {"Gone": "not-found", "Empty": "empty-document", "Json": "broken-record", "Deep": "broken-record"}
    assert reasons == expected
    plain = fetch_article("Plain", client=client, source=source)
    assert isinstance(plain, CandidateDocument)
    assert (plain.id, [sentence.text for sentence in plain.sentences]) == ("Plain", ["A caf\ufffd.", "Two."])


def test_what_is_kept_is_configuration() -> None:
    data = (FOLDER / "dodo.html").read_bytes()
    base = "https://en.wikipedia.org/w/rest.php/v1/page/Dodo/html"
    page = parse_article(data, base_url=base, width_px=960, skip_sections=("DISCOVERY",), repositories=())
    assert page.paragraphs == (" ".join(SENTENCES[:3]), "Printed sources only.")
    assert page.image_urls == (IMAGES[0].replace("500px", "960px"), IMAGES[1].replace("500px", "960px"))
    assert page.url == "https://en.wikipedia.org/wiki/Dodo_%26_sons"
    page = parse_article(data, base_url=base, width_px=250, min_display_px=10, repositories=("en",))
    assert page.image_urls == ("https://upload.wikimedia.org/wikipedia/en/thumb/1/12/Poster.jpg/250px-Poster.jpg",)
    flag = f"{COMMONS}/thumb/7/77/Flag.svg/250px-Flag.svg.png"
    assert flag in parse_article(data, base_url=base, width_px=250, min_display_px=10).image_urls
    with pytest.raises(PageError, match="no body"):
        parse_article(b"", base_url=base, width_px=250)


@pytest.mark.parametrize(
    ("url", "file_width_px", "expected"),
    [
        ("/thumb/a/ab/X.jpg/220px-X.jpg", None, "/thumb/a/ab/X.jpg/500px-X.jpg"),
        ("/thumb/a/ab/X.jpg/220px-X.jpg", 501, "/thumb/a/ab/X.jpg/500px-X.jpg"),
        ("/thumb/a/ab/X.jpg/220px-X.jpg", 500, "/a/ab/X.jpg"),
        ("/thumb/a/ab/3px-X.PNG/22px-3px-X.PNG", 300, "/a/ab/3px-X.PNG"),
        ("/a/ab/X.jpg", 2000, "/thumb/a/ab/X.jpg/500px-X.jpg"),
        ("/a/ab/X.jpg", None, "/a/ab/X.jpg"),
        ("/a/ab/X.svg", 2000, "/thumb/a/ab/X.svg/500px-X.svg.png"),
        ("/thumb/a/ab/X.tif/lossy-page1-220px-X.tif.jpg", 300, "/thumb/a/ab/X.tif/lossy-page1-250px-X.tif.jpg"),
        ("/elsewhere.jpg", 2000, "/elsewhere.jpg"),
    ],
)
def test_thumbnails(url: str, file_width_px: int | None, expected: str) -> None:
    assert thumbnail_url(COMMONS + url, width_px=500, file_width_px=file_width_px) == COMMONS + expected


@pytest.mark.parametrize(
    "settings",
    [{"image_width_px": 256}, {"base_url": "en.wikipedia.org"}, {"base_url": "https://x.org/wiki"}, {"limit": -1}],
)
def test_settings_that_make_no_sense(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"source.{next(iter(settings))}"):
        WikipediaSource(**settings)
