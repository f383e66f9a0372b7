"""Crawls in WARC files that warcio writes: which capture counts, where its pictures are, and what may not be used."""

import io
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from candidates import after_of, metadata_of, sources_of, uris_of
from corpus_files import Read
from corpus_files import flat as picture
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from pipelines.settings import HttpConfig
from pipelines.sources.datasets.corpora import CorpusSource
from schemas.failures import Reason

SAW = "Cut the boards to the right length with a sharp saw, and take your time, for this cannot be undone later."
GLUE = "Put glue on both sides, press them together with clamps, and leave the whole thing alone for a night."
PAGE = f"""<!DOCTYPE html><html lang="en-GB"><head><title>A shelf</title></head><body>
<header><img src="/logo.png" alt="logo"><nav><a href="/">Home</a> <a href="/b">About us</a></nav></header>
<article><h1>How to make a shelf</h1><p>{SAW}</p><figure><img src="cut.jpg" alt="Cut  boards"></figure>
<p>{GLUE} <img data-src="https://img.example/glue.png" src="data:image/gif;base64,R0lGODlhAQABAAAAACw="> {GLUE}</p>
<ul><li>One clamp of steel.</li><li>Two boards of oak.</li></ul><p>{SAW} {GLUE}</p></article>
<aside><img src="/advert.jpg"><p>Buy now</p></aside><footer>Copyright <img src="/end.png"></footer></body></html>"""


Headers = list[tuple[str, str]]
URL = "https://site.example/shelf.html"
DAYS = [f"20{year}-01-01T00:00:00Z" for year in range(10, 20)]


def page(picture: str = "p.png", head: str = "", word: str = "") -> bytes:
    """Return a page with one picture."""
    return (
        f"<!DOCTYPE html><html lang='en'><head><title>t</title>{head}</head><body><article><p>{word} {SAW}</p>"
        f"<p><img src='{picture}'></p><p>{GLUE}</p></article></body></html>"
    ).encode()


def record(
    stream: Any, url: str, body: bytes, kind: str = "text/html", *, status: str = "200 OK",
    headers: Headers | None = None, date: str = DAYS[0], sort: str = "response", like: Mapping[str, str] | None = None,
) -> str:  # fmt: skip
    """Write a record; return its payload's digest."""
    writer = WARCWriter(stream, gzip=str(stream.name).endswith(".gz"))
    http = StatusAndHeaders(status, [("Content-Type", kind), *(headers or [])], protocol="HTTP/1.1")
    about: dict[str, Any] = {"warc_headers_dict": {"WARC-Date": date}}
    about |= {"warc_content_type": kind} if sort == "resource" else {"http_headers": http}
    if sort == "revisit":
        made = writer.create_revisit_record(url, **(like or {}), **about)
    else:
        made = writer.create_warc_record(url, sort, payload=io.BytesIO(body), **about)
    writer.write_record(made)
    made.raw_stream.close()
    return str(made.rec_headers.get_header("WARC-Payload-Digest"))


def crawl(path: Path, *answers: tuple[str, int, str, bytes]) -> Path:
    """Write answers (URL, status, media type, body) to a WARC file."""
    with path.open("wb") as stream:
        for url, status, kind, body in answers:
            record(stream, url, b"", kind, sort="request")
            record(stream, url, body, kind, status=f"{status} Found")
    return path


@pytest.mark.parametrize("suffix", ["warc", "warc.gz"])
def test_main_text_and_pictures_in_their_order(suffix: str, tmp_path: Path) -> None:
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
    found = Read(tmp_path, "web")
    (draft,) = found.drafts
    assert found.texts == [
        ["How to make a shelf", SAW, GLUE, GLUE, "One clamp of steel.", "Two boards of oak.", SAW, GLUE]
    ]
    assert after_of(draft) == (2, 2)  # the second stands in the paragraph of sentences 2 and 3
    assert [uri.partition("!/")[0] for uri in uris_of(draft)] == [f"crawl-0.{suffix}", "https://img.example/glue.png"]
    assert sources_of(draft) == ("https://site.example/diy/cut.jpg", None)
    assert found.pictures(replace(draft, images=draft.images[:1])) == [picture(5, "JPEG")]
    assert metadata_of(draft)[0].caption == "Cut boards"
    assert (draft.id, draft.provenance.url, draft.language, draft.links) == (url, url, "en-GB", None)
    assert found.failures == [
        "https://site.example/empty too-few-sentences",
        "https://site.example/words too-few-images",
    ]


def test_what_stands_behind_damage_is_one_row(tmp_path: Path) -> None:
    path = crawl(tmp_path / "c.warc.gz", *((f"https://{n}.example/", 200, "text/html", PAGE.encode()) for n in "ab"))
    path.write_bytes(path.read_bytes() + b"junk")
    found = Read(tmp_path, "web")
    assert [draft.id for draft in found.drafts] == ["https://a.example/", "https://b.example/"]
    assert found.failures == ["c.warc.gz broken-record"]


def test_pages_that_cannot_be_read_cost_themselves_alone(tmp_path: Path) -> None:
    """The first is stored as many archives do: without the chunks that its header names."""
    chunks = [("Transfer-Encoding", "chunked")]
    with (tmp_path / "a.warc.gz").open("wb") as stream:
        record(stream, "https://0.example/", page(), headers=chunks)
        record(stream, "https://1.example/", b"ff\r\n<html>cut off", headers=chunks)
        record(stream, "https://2.example/", bytes(17 << 20))
        record(stream, "https://3.example/", page())
    found = Read(tmp_path, "web")
    assert [draft.id for draft in found.drafts] == ["https://0.example/", "https://3.example/"]
    assert found.failures == ["https://1.example/ broken-record", "https://2.example/ too-large"]


CAPTURES: dict[str, tuple[list[tuple[str, bytes, str, Headers]], str]] = {  # by date; which is kept, or why none is
    "changed": ([("200", page(word="One"), DAYS[1], []), ("200", page(word="Two"), DAYS[2], [])], "Two"),
    "the same": ([("200", page(word="One"), DAYS[1], []), ("200", page(word="One"), DAYS[2], [])], "One"),
    "gone": ([("200", page(), DAYS[1], []), ("410", b"", DAYS[2], [])], "deleted-record"),
    "not there by now": ([("200", page(), DAYS[1], []), ("404", page(), DAYS[2], [])], "deleted-record"),
    "gone on the same day": ([("200", page(), DAYS[1], []), ("451", b"", DAYS[1], [])], "deleted-record"),
    "there again": ([("404", b"", DAYS[1], []), ("200", page(word="Two"), DAYS[2], [])], "Two"),
    "out of order for a day": ([("200", page(word="One"), DAYS[1], []), ("503", b"", DAYS[2], [])], "One"),
    "opted out later": ([("200", page(), DAYS[1], []), ("200", page(), DAYS[2], [("X-Robots-Tag", "noai")])],
                        "robots-tag"),
    "opted out before": ([("200", page(), DAYS[1], [("TDM-Reservation", "1")]), ("200", page(), DAYS[2], [])],
                         "tdm-reserved"),
    "opted out by its head": ([("200", page(head='<meta name="robots" content="noai">'), DAYS[1], []),
                               ("200", page(), DAYS[2], [])], "robots-meta"),
}  # fmt: skip


@pytest.mark.parametrize("name", CAPTURES)
@pytest.mark.parametrize("files", ["a a", "a b", "b a"])
@pytest.mark.parametrize("is_reversed", [False, True])
def test_which_capture_of_a_page_counts(name: str, files: str, is_reversed: bool, tmp_path: Path) -> None:
    captures, expected = CAPTURES[name]
    for file, capture in zip(files.split(), captures[::-1] if is_reversed else captures, strict=True):
        status, body, date, headers = capture
        with (tmp_path / f"{file}.warc.gz").open("ab") as stream:
            record(stream, URL, body, status=f"{status} X", date=date, headers=headers)
    found = Read(tmp_path, "web")
    kept = [texts[0].split()[0] for texts in found.texts]
    others = [f"{URL} duplicate-record"] if name == "changed" else []
    assert (kept, found.failures) == (([expected], others) if expected.istitle() else ([], [f"{URL} {expected}"]))


def test_a_capture_that_cannot_be_read_gives_way_to_the_one_before(tmp_path: Path) -> None:
    with (tmp_path / "a.warc.gz").open("wb") as stream:
        record(stream, URL, page(word="One"), date=DAYS[1])
        record(stream, URL, b"ff\r\n<html>cut", headers=[("Transfer-Encoding", "chunked")], date=DAYS[2])
    assert [texts[0].split()[0] for texts in Read(tmp_path, "web").texts] == ["One"]


def test_a_picture_that_is_gone_or_opts_out_is_a_failure_of_its_own(tmp_path: Path) -> None:
    opted_out = [("X-Robots-Tag", "noimageai")]
    with (tmp_path / "a.warc.gz").open("wb") as stream:
        for name, status, headers in (
            ("gone", "410 Gone", []),
            ("shut", "200 OK", opted_out),
            ("moved", "301 X", opted_out),
        ):
            shown, sent = f"https://site.example/{name}.png", [*headers, ("Location", "/shut2.png")]
            record(stream, f"https://site.example/{name}", page(f"/{name}.png"))
            record(stream, shown, b"x", "image/png", date=DAYS[1])
            record(stream, shown, b"x", "image/png", status=status, headers=sent, date=DAYS[2])
    found = Read(tmp_path, "web")
    assert [uris_of(draft)[0].split(":")[1] for draft in found.drafts] == ["not-found", "robots-tag", "robots-tag"]
    found = Read(tmp_path, "web", http=HttpConfig(obey_robots_tags=False))
    assert uris_of(found.drafts[1])[0].startswith("a.warc.gz!/")


@pytest.mark.parametrize(
    ("headers", "head", "reason"),
    [
        ([("X-Robots-Tag", "noai")], "", "robots-tag"),
        ([("X-Robots-Tag", "mybot: noai")], "", "robots-tag"),
        ([("X-Robots-Tag", "multilink: noai")], "", ""),
        ([("TDM-Reservation", "1")], "", ""),
        ([], '<meta name="robots" content="noindex">', "robots-meta"),
        ([], '<meta name="mybot" content="noai">', "robots-meta"),
    ],
)
def test_a_page_is_judged_by_the_settings_of_the_build(
    headers: Headers, head: str, reason: str, tmp_path: Path
) -> None:
    with (tmp_path / "crawl.warc").open("wb") as stream:
        record(stream, URL, page(head=head), headers=headers)
    http = HttpConfig(user_agent="mybot/1.0 (a@b.example)", obey_tdm=False)
    assert Read(tmp_path, "web", http=http).failures == ([f"{URL} {reason}"] if reason else [])
    assert len(Read(tmp_path, "web", http=HttpConfig(obey_robots_tags=False, obey_tdm=False)).drafts) == 1


def test_pictures_are_found_wherever_the_crawl_has_them(tmp_path: Path) -> None:
    """A resource, revisits of either profile, redirects, another file, the smaller candidate of a set."""
    pictures = [picture(shade) for shade in range(0, 250, 25)]
    http = "https://site.example"
    with (tmp_path / "a.warc.gz").open("wb") as stream:
        for n in range(7):
            record(stream, f"{http}/{n}", page(f"/{n}.png"))
        record(stream, f"{http}/7", page("/7.png' srcset='/large.png 900w, /7.png 300w"), sort="resource")
    with (tmp_path / "b.warc.gz").open("wb") as stream:
        record(stream, f"{http}/0.png", pictures[0], "image/png", sort="resource")
        digest = record(stream, f"{http}/other.png", pictures[1], "image/png")
        record(
            stream,
            f"{http}/1.png",
            b"",
            "image/png",
            sort="revisit",
            like={"digest": digest, "refers_to_uri": f"{http}/other.png", "refers_to_date": DAYS[0]},
        )
        record(
            stream,
            f"{http}/2.png",
            b"",
            "image/png",
            sort="revisit",
            like={"digest": digest, "refers_to_uri": "", "refers_to_date": ""},
        )
        record(stream, f"{http}/3.png", pictures[3], "image/png")
        record(
            stream,
            f"{http}/3.png",
            b"",
            sort="revisit",
            status="304 Not Modified",
            date=DAYS[2],
            like={"digest": "sha1:X", "refers_to_uri": "", "refers_to_date": ""},
        )
        record(stream, f"{http}/4.png", b"", status="302 Found", headers=[("Location", "//cdn.example/x")])
        record(stream, "https://cdn.example/x", b"", status="301 Moved", headers=[("Location", "/y.png")])
        record(stream, "https://cdn.example/y.png", pictures[4], "image/png")
        record(stream, f"{http}/5.png", b"", status="302 Found", headers=[("Location", "/5.png")])  # a loop
        record(stream, f"{http}/7.png", pictures[7], "image/png")
    found = Read(tmp_path, "web")
    assert not found.failures
    assert [draft.id for draft in found.drafts] == [f"{http}/{n}" for n in range(8)]
    for draft, expected in zip(found.drafts, [0, 1, 1, 3, 4, None, None, 7], strict=True):
        if expected is None:
            assert uris_of(draft) == (f"{draft.id}.png",)  # is fetched
        else:
            assert uris_of(draft)[0].startswith("b.warc.gz!/")
            assert found.pictures(draft) == [pictures[expected]]


def test_a_revisit_of_a_page_has_the_body_of_its_original(tmp_path: Path) -> None:
    with (tmp_path / "a.warc.gz").open("wb") as stream:
        digest = record(stream, URL, page())
        lost = {"digest": "sha1:LOST", "refers_to_uri": "https://gone.example/", "refers_to_date": DAYS[0]}
        record(stream, "https://lost.example/", b"", sort="revisit", like=lost)
    with (tmp_path / "b.warc.gz").open("wb") as stream:
        again = {"digest": digest, "refers_to_uri": URL, "refers_to_date": DAYS[0]}
        record(stream, URL, b"", sort="revisit", like=again, date=DAYS[3])
    found = Read(tmp_path, "web")
    assert [draft.id for draft in found.drafts] == [URL]
    assert found.failures == ["https://lost.example/ broken-record"]


def test_the_headers_name_the_character_set_and_what_is_guessed_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    word = "Żółtą"
    with (tmp_path / "a.warc.gz").open("wb") as stream:
        body = page(word=word).decode().encode("iso-8859-2")
        record(stream, URL, body, "text/html; charset=iso-8859-2")
        record(stream, f"{URL}?2", body.replace(b"'en'", b"'pl'"))
    assert [texts[0].split()[0] for texts in Read(tmp_path, "web").texts] == [word, word]
    assert [record.args[1] for record in caplog.records if record.name.endswith(".web")] == [1]


def test_a_failure_says_how_many_images_the_page_has(tmp_path: Path) -> None:
    with (tmp_path / "a.warc.gz").open("wb") as stream:
        record(stream, URL, page("data:,"))
    (failure,) = CorpusSource(format="web", documents=(str(tmp_path / "a.warc.gz"),)).read()
    assert failure.reason is Reason.TOO_FEW_IMAGES and failure.message.endswith("the page has 1 images")
