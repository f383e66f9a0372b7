"""Pages in WARC files that warcio writes: main text and pictures in the order of the page."""

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from pipelines.sources.corpora.web import page_pieces

SAW = "Cut the boards to the right length with a sharp saw, and take your time, for this cannot be undone later."
GLUE = "Put glue on both sides, press them together with clamps, and leave the whole thing alone for a night."
PAGE = f"""<!DOCTYPE html><html lang="en-GB"><head><title>A shelf</title></head><body>
<header><img src="/logo.png" alt="logo"><nav><a href="/">Home</a> <a href="/b">About us</a></nav></header>
<article><h1>How to make a shelf</h1><p>{SAW}</p><figure><img src="cut.jpg" alt="Cut  boards"></figure>
<p>{GLUE} <img data-src="https://img.example/glue.png" src="data:image/gif;base64,R0lGODlhAQABAAAAACw="> {GLUE}</p>
<ul><li>One clamp of steel.</li><li>Two boards of oak.</li></ul><p>{SAW} {GLUE}</p></article>
<aside><img src="/advert.jpg"><p>Buy now</p></aside><footer>Copyright <img src="/end.png"></footer></body></html>"""


def crawl(path: Path, *answers: tuple[str, int, str, bytes]) -> Path:
    """Write answers (URL, status, media type, body) to a WARC file."""
    with path.open("wb") as stream:
        writer = WARCWriter(stream, gzip=path.suffix == ".gz")
        for url, status, kind, body in answers:
            headers = StatusAndHeaders(f"{status} Found", [("Content-Type", kind)], protocol="HTTP/1.1")
            for sort, payload in (("request", b""), ("response", body)):
                record = writer.create_warc_record(url, sort, payload=io.BytesIO(payload), http_headers=headers)
                writer.write_record(record)
                record.raw_stream.close()
    return path


@pytest.mark.parametrize("suffix", ["warc", "warc.gz"])
def test_main_text_and_pictures_in_their_order(
    suffix: str, read: Any, picture: Callable[..., bytes], tmp_path: Path
) -> None:
    url = "https://site.example/diy/shelf.html"
    crawl(
        tmp_path / f"crawl-0.{suffix}",
        ("https://site.example/robots.txt", 200, "text/plain", b"User-agent: *"),
        (url, 200, "text/html; charset=utf-8", PAGE.encode()),
        ("https://site.example/diy/cut.jpg", 200, "image/jpeg", picture(5, "JPEG")),
        ("https://site.example/gone", 404, "text/html", PAGE.encode()),
        ("https://site.example/empty", 200, "text/html", b"<html><body></body></html>"),
        (
            "https://site.example/words",
            200,
            "text/html",
            f"<html><body><p>{SAW}</p><p>{GLUE}</p></body></html>".encode(),
        ),
    )
    found = read(tmp_path, "web")
    (draft,) = found.drafts
    assert found.texts == [
        ["How to make a shelf", SAW, GLUE, GLUE, "One clamp of steel.", "Two boards of oak.", SAW, GLUE]
    ]
    assert draft.after_sentence == (2, 2)  # the second stands in the paragraph of sentences 2 and 3
    assert draft.image_uris[0].startswith(f"crawl-0.{suffix}!/")
    assert draft.image_sources == ("https://site.example/diy/cut.jpg", None)
    assert draft.image_uris[1] == "https://img.example/glue.png"
    assert found.pictures(replace(draft, image_uris=draft.image_uris[:1])) == [picture(5, "JPEG")]
    assert draft.image_metadata[0].caption == "Cut boards"
    assert (draft.id, draft.provenance.url, draft.language, draft.links) == (url, url, "en-GB", None)
    assert found.failures == [
        "https://site.example/empty too-few-sentences",
        "https://site.example/words too-few-images",
    ]


def test_a_damaged_warc_gives_what_comes_before(read: Any, tmp_path: Path) -> None:
    path = crawl(
        tmp_path / "crawl.warc.gz",
        ("https://a.example/", 200, "text/html", PAGE.encode()),
        ("https://b.example/", 200, "text/html", PAGE.encode()),
    )
    path.write_bytes(path.read_bytes()[:-300])
    found = read(tmp_path, "web")
    assert [draft.id for draft in found.drafts] == ["https://a.example/"]


@pytest.mark.parametrize("suffix", ["warc", "warc.gz"])
def test_damaged_records_cost_no_other_page(
    suffix: str, read: Any, picture: Callable[..., bytes], tmp_path: Path
) -> None:
    """The first page is stored as many archives do: without the chunks that its header names."""
    pieces = []
    for number, (headers, body) in enumerate(
        (
            ([("Transfer-Encoding", "chunked")], PAGE.encode()),
            ([("Transfer-Encoding", "chunked")], b"ff\r\n<html>cut off"),
            ([], PAGE.encode()),
            ([("Content-Encoding", "gzip")], PAGE.encode()),
            ([], bytes(17 << 20)),
            ([], PAGE.encode()),
        )
    ):
        with (tmp_path / "one").open("wb") as stream:
            writer = WARCWriter(stream, gzip=suffix == "warc.gz")
            http = StatusAndHeaders("200 OK", [("Content-Type", "text/html"), *headers], protocol="HTTP/1.1")
            url = f"https://{number}.example/"
            record = writer.create_warc_record(url, "response", payload=io.BytesIO(body), http_headers=http)
            writer.write_record(record)
            record.raw_stream.close()
        pieces.append((tmp_path / "one").read_bytes())
    damaged = pieces[2][:100] + b"\xff\xff\xff" + pieces[2][103:] if suffix == "warc.gz" else pieces[2][:-500]
    (tmp_path / "one").unlink()
    (tmp_path / f"a.{suffix}").write_bytes(b"".join([*pieces[:2], damaged, *pieces[3:]]))
    found = read(tmp_path, "web")
    assert [draft.id for draft in found.drafts] == [f"https://{number}.example/" for number in (0, 3, 5)]
    assert len({tuple(texts) for texts in found.texts}) == 1
    begin = len(pieces[0]) + len(pieces[1])
    assert found.failures == [
        "https://1.example/ broken-record",
        f"a.{suffix}:{begin} broken-record",
        "https://4.example/ too-large",
    ]


@pytest.mark.parametrize(
    ("header", "head", "reason"),
    [
        (("X-Robots-Tag", "noai"), "", "robots-tag"),
        (("TDM-Reservation", "1"), "", "tdm-reserved"),
        (("X-Robots-Tag", "other: noai"), '<meta name="robots" content="noindex">', "robots-meta"),
    ],
)
def test_a_page_that_opts_out_is_a_failure(
    header: tuple[str, str], head: str, reason: str, read: Any, tmp_path: Path
) -> None:
    url, body = "https://site.example/diy/shelf.html", PAGE.replace("<title>", f"{head}<title>").encode()
    with (tmp_path / "crawl.warc").open("wb") as stream:
        headers = StatusAndHeaders("200 OK", [("Content-Type", "text/html"), header], protocol="HTTP/1.1")
        writer = WARCWriter(stream, gzip=False)
        record = writer.create_warc_record(url, "response", payload=io.BytesIO(body), http_headers=headers)
        writer.write_record(record)
        record.raw_stream.close()
    found = read(tmp_path, "web")
    assert not found.drafts
    assert found.failures == [f"{url} {reason}"]
    assert len(read(tmp_path, "web", obey_opt_outs=False).drafts) == 1


def test_a_page_without_a_text_says_nothing_on_standard_error(caplog: pytest.LogCaptureFixture) -> None:
    assert page_pieces(b"", "https://a.example/") == []
    assert page_pieces(b"<html><body></body></html>", "https://a.example/") == []
    assert not [record.message for record in caplog.records if record.name.startswith("trafilatura")]
