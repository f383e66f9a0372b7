"""`wiki --recipe wiki-live` from a MediaWiki on loopback: its category API, its REST HTML and its image host.

The answers follow MediaWiki's published forms: `list=categorymembers` with continuation, `imageinfo`, Parsoid's HTML,
redirects of `/w/rest.php`, thumbnails below `/wikipedia/commons/thumb/`.
"""

import json
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow.parquet as pq
import pytest
from builds import PLAIN, adds_up, build_of, documents_of, rows, tree
from loopback import answering
from picture_files import file_of, smooth
from shared_pictures import SEVERAL, check_reading

from pipelines.card.show import retrieval_lines
from pipelines.run import BuildSummary
from schemas.lake import Lake

# title -> (page id, sentences, images)
ARTICLES = {"Dodo": (11, 12, 4), "Moa": (12, 10, 3), "Auk": (13, 10, 3), "Stub": (14, 2, 3), "Bare": (15, 12, 2)}
REDIRECTS = {"Great_auk": "Auk"}
CATEGORY = (["Dodo", "Stub"], ["Moa", "Bare"])  # two pages of members
GONE = "Dodo_3"  # a picture that is linked and not there


@dataclass
class MediaWiki:
    port: int = 0

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def article(self, title: str) -> bytes:
        page_id, sentences, _ = ARTICLES[title]
        text = " ".join(f"The {title.lower()} was seen {number} times." for number in range(sentences))
        figures = "".join(map(self.figure, self.pictures(title)))
        return (
            f'<!DOCTYPE html><html><head><meta property="mw:pageId" content="{page_id}"/>'
            f'<link rel="dc:isVersionOf" href="//{self.host}/wiki/{title}"/></head>'
            f'<body><section data-mw-section-id="0"><p>{text}</p>{figures}</section></body></html>'
        ).encode()

    def pictures(self, title: str) -> list[str]:
        """Return the names of an article's pictures, one of them of another article."""
        names = [f"{title}_{number}" for number in range(ARTICLES[title][2])]
        return ["Moa_1", *names[1:]] if title == "Auk" else names

    def figure(self, name: str) -> str:
        return (
            f'<figure typeof="mw:File/Thumb"><a href="./File:{name}.jpg" class="mw-file-description">'
            f'<img src="//{self.host}/wikipedia/commons/thumb/a/ab/{name}.jpg/250px-{name}.jpg" width="250" '
            'height="188" data-file-width="1600" data-file-height="1200"/></a><figcaption/></figure>'
        )

    def file(self, name: str) -> dict[str, Any]:
        commons = f"http://{self.host}/wikipedia/commons"
        info = {
            "url": f"{commons}/a/ab/{name}.jpg",
            "thumburl": f"{commons}/thumb/a/ab/{name}.jpg/500px-{name}.jpg",
            "extmetadata": {"LicenseShortName": {"value": "CC BY-SA 4.0"}},
        }
        return {"ns": 6, "title": f"File:{name}.jpg", "imageinfo": [info]}

    def answer(self, path: str) -> tuple[int, bytes, str]:
        """Return status, body and Location."""
        parts = urlsplit(path)
        if parts.path == "/robots.txt":  # as Wikimedia's: interfaces are for clients that name a contact
            return 200, b"User-agent: *\nDisallow: /w/\nDisallow: /api/\n", ""
        if parts.path == "/lists/titles.txt":
            return 200, b"Great_auk\nAuk\nNowhere\n", ""
        query = parse_qs(parts.query)
        if "generator" in query:
            pages = [self.file(name) for name in self.pictures(query["titles"][0])]
            return 200, json.dumps({"batchcomplete": True, "query": {"pages": pages}}).encode(), ""
        if parts.path == "/w/api.php":
            page = int("cmcontinue" in query)
            members = [{"pageid": ARTICLES[title][0], "ns": 0, "title": title} for title in CATEGORY[page]]
            going_on = {} if page else {"continue": {"cmcontinue": "page|4d4f41|12", "continue": "-||"}}
            return 200, json.dumps(going_on | {"query": {"categorymembers": members}}).encode(), ""
        if parts.path.startswith("/w/rest.php/v1/page/"):
            title = unquote(parts.path.split("/")[5])
            if title in REDIRECTS:
                return 307, b"", f"/w/rest.php/v1/page/{REDIRECTS[title]}/html"
            return (200, self.article(title), "") if title in ARTICLES else (404, b'{"httpCode":404}', "")
        if parts.path.startswith("/wikipedia/commons/thumb/") and GONE not in parts.path:
            return 200, file_of(smooth(500, 375, zlib.crc32(parts.path.encode())), "JPEG"), ""
        return 404, b"", ""


@pytest.fixture
def wiki() -> Iterator[MediaWiki]:
    state = MediaWiki()

    def answer(request: BaseHTTPRequestHandler) -> tuple[int, bytes, dict[str, str]]:
        status, body, location = state.answer(request.path)
        return status, body, {"Location": location} if location else {}

    with answering(answer) as state.port:
        yield state


def build(wiki: MediaWiki, lake: Path) -> BuildSummary:
    settings = (
        f"source.base_url=http://{wiki.host}",
        "source.category=Extinct birds",
        f"source.titles=http://{wiki.host}/lists/titles.txt",
        f"http.allow_hosts={wiki.host}",
        "http.contact=tests@example.org",
        "http.requests_per_second=500",
        "http.backoff_s=0.01",
    )
    return build_of("wiki wiki-live", lake, *settings, *PLAIN, *SEVERAL)


def test_articles_of_a_wiki_and_when_they_were_fetched(wiki: MediaWiki, tmp_path: Path) -> None:
    titles = f"http://{wiki.host}/lists/titles.txt"
    started = datetime.now(UTC) - timedelta(seconds=1)
    first = build(wiki, tmp_path / "one")
    documents = documents_of(first)
    assert {key: (row["provenance"]["record_id"], len(row["sentences"])) for key, row in documents.items()} == {
        "11": ("Dodo", 12),
        "12": ("Moa", 10),
        "13": ("Auk", 10),
    }
    commons = f"http://{wiki.host}/wikipedia/commons/thumb/a/ab"
    assert [image["source"] for image in documents["11"]["images"]] == [
        f"{commons}/Dodo_{number}.jpg/500px-Dodo_{number}.jpg" for number in (0, 1, 2)
    ]
    assert documents["12"]["links"] is None
    assert {row["licence"] for row in rows(first, "images")} == {"CC BY-SA 4.0"}
    assert documents["12"]["provenance"]["licence"] == "CC-BY-SA-4.0"
    assert sorted((row["record_id"], row["reason"]) for row in rows(first, "failures")) == [
        ("11", "not-found"),
        ("13", "duplicate-record"),
        ("14", "too-few-sentences"),
        ("Bare", "too-few-images"),
        ("Nowhere", "not-found"),
    ]
    assert adds_up(first)

    lake = Lake.at(str(tmp_path / "one"))
    retrievals = lake.retrievals("wiki", first.manifest.version)
    times = [row for name in retrievals.files() for row in pq.read_table(retrievals.open(name)).to_pylist()]
    kept = {(row["split"], image["hash"]) for row in documents.values() for image in row["images"]}
    assert Counter(row["kind"] for row in times) == {"document": 3, "image": len(kept), "input": 1}
    assert {row["key"] for row in times} == {*documents, *(key for _, key in kept), titles}
    assert all(started <= row["retrieved"] <= datetime.now(UTC) for row in times)
    assert {row["url"] for row in times if row["kind"] == "document"} == {
        f"http://{wiki.host}/wiki/{title}" for title in ("Dodo", "Moa", "Auk")
    }

    assert check_reading(lake, first.manifest) == 1
    assert [line.split()[:3] for line in retrieval_lines(retrievals)] == [
        ["fetched:", "document", "3"],
        ["fetched:", "image", str(len(kept))],
        ["fetched:", "input", "1"],
    ]
    elsewhere = build(wiki, tmp_path / "two")  # fetched anew, and later
    assert tree(elsewhere.path) == tree(first.path)
