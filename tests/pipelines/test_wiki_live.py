"""`wiki --recipe wiki-live` from a MediaWiki on loopback: its category API, its REST HTML and its image host.

The answers follow MediaWiki's published forms: `list=categorymembers` with continuation, `imageinfo`, Parsoid's HTML,
redirects of `/w/rest.php`, thumbnails below `/wikipedia/commons/thumb/`.
"""

from __future__ import annotations

import io
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from shared_pictures import SEVERAL, check_reading

from pipelines.card.show import retrieval_lines
from pipelines.config import recipe
from pipelines.run import BuildSummary, build_dataset
from schemas.lake import Lake
from schemas.overrides import override

# title -> (page id, sentences, images)
ARTICLES = {"Dodo": (11, 12, 4), "Moa": (12, 10, 3), "Auk": (13, 10, 3), "Stub": (14, 2, 3), "Bare": (15, 12, 2)}
REDIRECTS = {"Great_auk": "Auk"}
CATEGORY = (["Dodo", "Stub"], ["Moa", "Bare"])  # two pages of members
GONE = "Dodo_3"  # a picture that is linked and not there


@dataclass
class MediaWiki:
    port: int
    asked: list[str] = field(default_factory=list)
    has_shared_pictures: bool = False  # whether all articles show the same ones

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
        return [f"{'Egg' if self.has_shared_pictures else title}_{number}" for number in range(ARTICLES[title][2])]

    def figure(self, name: str) -> str:
        source = f"//{self.host}/wikipedia/commons/thumb/a/ab/{name}.jpg/250px-{name}.jpg"
        return (
            f'<figure typeof="mw:File/Thumb"><a href="./File:{name}.jpg" class="mw-file-description">'
            f'<img src="{source}" width="250" height="188" data-file-width="1600" data-file-height="1200"/>'
            "</a><figcaption/></figure>"
        )

    def files(self, title: str) -> bytes:
        commons = f"http://{self.host}/wikipedia/commons"
        names = [f"{name}.jpg" for name in self.pictures(title)]
        metadata = {"LicenseShortName": {"value": "CC BY-SA 4.0"}}
        infos = [
            {
                "url": f"{commons}/a/ab/{name}",
                "thumburl": f"{commons}/thumb/a/ab/{name}/500px-{name}",
                "extmetadata": metadata,
            }
            for name in names
        ]
        pages = [
            {"ns": 6, "title": f"File:{name}", "imageinfo": [info]} for name, info in zip(names, infos, strict=True)
        ]
        return json.dumps({"batchcomplete": True, "query": {"pages": pages}}).encode()

    def answer(self, path: str) -> tuple[int, bytes, str]:
        """Return status, body and Location."""
        parts = urlsplit(path)
        if parts.path == "/robots.txt":  # as Wikimedia's: interfaces are for clients that name a contact
            return 200, b"User-agent: *\nDisallow: /w/\nDisallow: /api/\n", ""
        if parts.path == "/lists/titles.txt":
            return 200, b"Great_auk\nAuk\nNowhere\n", ""
        if "generator=images" in parts.query:
            return 200, self.files(parse_qs(parts.query)["titles"][0]), ""
        if parts.path == "/w/api.php":
            page = 1 if "cmcontinue" in parse_qs(parts.query) else 0
            members = [{"pageid": ARTICLES[title][0], "ns": 0, "title": title} for title in CATEGORY[page]]
            going_on = {} if page else {"continue": {"cmcontinue": "page|4d4f41|12", "continue": "-||"}}
            return (
                200,
                json.dumps({"batchcomplete": True, **going_on, "query": {"categorymembers": members}}).encode(),
                "",
            )
        if parts.path.startswith("/w/rest.php/v1/page/"):
            title = unquote(parts.path.split("/")[5])
            if title in REDIRECTS:
                return 307, b"", f"/w/rest.php/v1/page/{REDIRECTS[title]}/html"
            return (200, self.article(title), "") if title in ARTICLES else (404, b'{"httpCode":404}', "")
        if parts.path.startswith("/wikipedia/commons/thumb/") and GONE not in parts.path:
            return 200, picture(parts.path), ""
        return 404, b"", ""


def picture(name: str) -> bytes:
    """Return a JPEG of its own for every name."""
    levels = np.random.default_rng(list(name.encode())).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(levels).resize((500, 375)).save(stream, "JPEG")
    return stream.getvalue()


@pytest.fixture
def wiki() -> Iterator[MediaWiki]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            state.asked.append(self.path)
            status, body, location = state.answer(self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            if location:
                self.send_header("Location", location)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state = MediaWiki(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield state
    server.shutdown()
    server.server_close()
    thread.join()


def build(wiki: MediaWiki, lake: Path, titles: str, quiet: Callable[[str], None], *more: str) -> BuildSummary:
    settings = [
        f"source.base_url=http://{wiki.host}",
        "source.category=Extinct birds",
        f"source.titles={titles}",
        f"http.allow_hosts={wiki.host}",
        "http.contact=tests@example.org",
        "http.requests_per_second=500",
        "http.backoff_s=0.01",
        "features.images=",
        "features.sentences=",
        "max_failure_share=1",
        *more,
    ]
    config = override(recipe("wiki", "wiki-live"), settings)
    return build_dataset(config, lake=Lake.at(str(lake)), say=quiet)


def test_articles_that_share_pictures(wiki: MediaWiki, tmp_path: Path, quiet: Callable[[str], None]) -> None:
    wiki.has_shared_pictures = True
    built = build(wiki, tmp_path, "", quiet, *SEVERAL)
    assert sum(split.documents for split in built.manifest.splits.values()) == 2  # Dodo and Moa
    assert check_reading(Lake.at(str(tmp_path)), built.manifest) == 3


def rows(folder: Path) -> list[dict[str, Any]]:
    return [
        row for path in sorted(folder.rglob("*.parquet")) for row in pq.read_table(path, partitioning=None).to_pylist()
    ]


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_articles_of_a_wiki_and_when_they_were_fetched(
    wiki: MediaWiki, tmp_path: Path, quiet: Callable[[str], None]
) -> None:
    titles = f"http://{wiki.host}/lists/titles.txt"
    started = datetime.now(UTC) - timedelta(seconds=1)
    first = build(wiki, tmp_path / "one", titles, quiet)
    documents = {row["id"]: row for row in rows(Path(first.path) / "documents")}
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
    assert {row["licence"] for row in rows(Path(first.path) / "images")} == {"CC BY-SA 4.0"}
    assert documents["12"]["provenance"]["licence"] == "CC-BY-SA-4.0"
    failures = Counter((row["record_id"], row["reason"]) for row in rows(Path(first.path) / "failures"))
    assert failures == Counter(
        [
            ("13", "duplicate-record"),
            ("Nowhere", "not-found"),
            ("14", "too-few-sentences"),
            ("Bare", "too-few-images"),
            ("11", "not-found"),
        ]
    )
    for row in first.manifest.stages.values():
        assert row["in"] == row["out"] + row["rejected"] + row["failed"]

    times = rows(tmp_path / "one" / "retrievals" / "wiki" / first.manifest.version)
    kept = {image["hash"] for row in documents.values() for image in row["images"]}
    assert Counter(row["kind"] for row in times) == {"document": 3, "image": len(kept), "input": 1}
    assert {row["key"] for row in times} == {*documents, *kept, titles}
    assert all(started <= row["retrieved"] <= datetime.now(UTC) for row in times)
    assert {row["url"] for row in times if row["kind"] == "document"} == {
        f"http://{wiki.host}/wiki/{title}" for title in ("Dodo", "Moa", "Auk")
    }

    lake = Lake.at(str(tmp_path / "one"))
    lines = retrieval_lines(lake.retrievals("wiki", first.manifest.version))
    assert [line.split()[:3] for line in lines] == [
        ["fetched:", "document", "3"],
        ["fetched:", "image", str(len(kept))],
        ["fetched:", "input", "1"],
    ]
    elsewhere = build(wiki, tmp_path / "two", titles, quiet)  # fetched anew, and later
    assert tree(Path(elsewhere.path)) == tree(Path(first.path))
