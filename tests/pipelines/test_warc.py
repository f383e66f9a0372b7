"""WARC files: every form of other tools is read or refused by name, and bodies are what warcio reads."""

import gzip
import io
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import brotli
import pytest
from backports import zstd
from warcio.archiveiterator import ArchiveIterator
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from pipelines import warc
from pipelines.files import BrokenInputError
from pipelines.warc import Capture, read_body, read_captures

TEXT = "".join(f"<p>Line {number} of a page.</p>\r\n" for number in range(200)).encode()
Headers = list[tuple[str, str]]


def written(method: str, *args: Any, **kwargs: Any) -> bytes:
    """Return a record that warcio writes, without compression."""
    stream = io.BytesIO()
    writer = WARCWriter(stream, gzip=False)
    made = getattr(writer, method)(*args, **kwargs)
    writer.write_record(made)
    made.raw_stream.close()
    return stream.getvalue()


def record(url: str, body: bytes = TEXT, headers: Headers | None = None, kind: str = "text/html") -> bytes:
    """Return a response."""
    http = StatusAndHeaders("200 OK", [("Content-Type", kind), *(headers or [])], protocol="HTTP/1.1")
    return written("create_warc_record", url, "response", payload=io.BytesIO(body), http_headers=http)


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data)


def checked_zstd(data: bytes) -> bytes:
    return zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1})


PACKERS: dict[str, Callable[[bytes], bytes]] = {".warc": bytes, ".warc.gz": gzip.compress, ".warc.zst": checked_zstd}
GOOD = [f"https://h.example/{number}" for number in range(5)]
UNREADABLE: dict[str, tuple[Headers, bytes]] = {
    "chunks cut": ([("Transfer-Encoding", "chunked")], chunked(TEXT)[:-2000]),
    "bomb": ([("Content-Encoding", "gzip")], gzip.compress(bytes(40 << 20))),
}
BODIES: dict[str, tuple[Headers, bytes]] = {
    "plain": ([], TEXT),
    "chunked": ([("Transfer-Encoding", "chunked")], chunked(TEXT)),
    "without chunks": ([("Transfer-Encoding", "chunked")], TEXT),
    "gzip": ([("Content-Encoding", "gzip")], gzip.compress(TEXT)),
    "no gzip": ([("Content-Encoding", "gzip")], TEXT),
    "gzip in chunks": ([("Content-Encoding", "gzip"), ("Transfer-Encoding", "chunked")], chunked(gzip.compress(TEXT))),
    "gzip, no chunks": ([("Content-Encoding", "gzip"), ("Transfer-Encoding", "chunked")], gzip.compress(TEXT)),
    "chunks, no gzip": ([("Content-Encoding", "gzip"), ("Transfer-Encoding", "chunked")], chunked(TEXT)),
    "deflate": ([("Content-Encoding", "deflate")], zlib.compress(TEXT)),
    "unknown": ([("Content-Encoding", "nonsense")], TEXT),
    "character set": ([("Content-Encoding", "UTF-8")], TEXT),
    "empty": ([], b""),
}


def write(path: Path, pieces: list[bytes]) -> Path:
    path.write_bytes(b"".join(PACKERS["".join(path.suffixes)](piece) for piece in pieces))
    return path


def outcomes(path: Path) -> tuple[list[Capture], list[str]]:
    found = list(read_captures(str(path)))
    problems = [str(each) for each in found if isinstance(each, BrokenInputError)]
    return [each for each in found if isinstance(each, Capture)], problems


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("suffix", PACKERS)
def test_a_body_is_what_warcio_reads(name: str, suffix: str, tmp_path: Path) -> None:
    headers, stored = BODIES[name]
    pieces = [record("https://a.example/", stored, headers), record("https://b.example/", kind="image/png; q=1")]
    (theirs,) = (each.content_stream().read() for each in ArchiveIterator(io.BytesIO(pieces[0])))
    path = write(tmp_path / f"a{suffix}", pieces)
    (capture, other), problems = outcomes(path)
    assert read_body(str(path), capture.offset, 10**6) == theirs == (stored if name in ("empty", "unknown") else TEXT)
    assert read_body(str(path), capture.offset, 100)[:100] == theirs[:100]
    assert (other.url, other.media_type, problems) == ("https://b.example/", "image/png", [])


def test_brotli_that_is_none(tmp_path: Path) -> None:
    headers = [("Content-Encoding", "br")]
    path = write(tmp_path / "a.warc", [record(GOOD[0], body, headers) for body in (brotli.compress(TEXT), TEXT)])
    assert [read_body(str(path), each.offset, 10**6) for each in outcomes(path)[0]] == [TEXT, TEXT]


def test_a_body_that_is_damaged_costs_itself_alone(tmp_path: Path) -> None:
    pieces = [record(GOOD[0]), *(record("u:", body, headers) for headers, body in UNREADABLE.values()), record(GOOD[1])]
    path = write(tmp_path / "a.warc.gz", pieces)
    (one, cut, bomb, two), problems = outcomes(path)
    assert ([one.url, two.url], problems) == (GOOD[:2], [])
    with pytest.raises(ValueError, match="its body cannot be read on"):
        read_body(str(path), cut.offset, 10**6)
    assert len(read_body(str(path), bomb.offset, 1000)) == 1001


@pytest.mark.parametrize("suffix", PACKERS)
def test_what_stands_behind_damage_cannot_be_read(suffix: str, tmp_path: Path) -> None:
    pieces = [PACKERS[suffix](record(url)) for url in GOOD]
    path = tmp_path / f"a{suffix}"
    path.write_bytes(b"".join([*pieces[:2], b"junk \r\n", *pieces[2:]]))
    captures, problems = outcomes(path)
    assert [capture.url for capture in captures] == GOOD[:2]
    assert [problem.partition(": ")[0] for problem in problems] == [f"a{suffix}"]


@pytest.mark.parametrize("suffix", PACKERS)
def test_a_file_that_was_cut_off_gives_what_comes_before(suffix: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"a{suffix}", [record(url) for url in GOOD])
    path.write_bytes(path.read_bytes()[:-50])
    captures, _ = outcomes(path)
    assert [capture.url for capture in captures[:4]] == GOOD[:4]
    for capture in captures[4:]:  # its header may be there
        with pytest.raises(ValueError, match=r"it ends early|cannot be read on"):
            read_body(str(path), capture.offset, 10**6)


@pytest.mark.parametrize("is_packed", [False, True])
def test_frames_share_a_dictionary(is_packed: bool, tmp_path: Path) -> None:
    """As archives of whole sites are published: the dictionary is in a skippable frame at the beginning."""
    records = [record(f"https://h.example/{number}", b"%d %s" % (number, TEXT)) for number in range(40)]
    dictionary = zstd.train_dict(records, 4096)
    content = dictionary.dict_content
    content = zstd.compress(content) if is_packed else content
    frames = [zstd.compress(each, zstd_dict=dictionary) for each in records]
    path = tmp_path / "a.warc.zst"
    path.write_bytes(b"\x5d\x2a\x4d\x18" + len(content).to_bytes(4, "little") + content + b"".join(frames))
    captures, problems = outcomes(path)
    assert (len(captures), problems) == (40, [])
    assert read_body(str(path), captures[7].offset, 10**6) == b"7 " + TEXT


def test_a_record_that_is_too_large_costs_itself_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warc, "MAX_RECORD_BYTES", 2**16)
    path = write(tmp_path / "a.warc.gz", [record(GOOD[0], bytes(2**18)), record(GOOD[1])])
    (video, _), problems = outcomes(path)
    assert not problems
    with pytest.raises(ValueError, match="expected a record of at most 65536 bytes"):
        read_body(str(path), video.offset, 10**6)


@pytest.mark.parametrize("version", ["WARC/0.17", "WARC/0.18", "WARC/1.0", "WARC/1.1"])
def test_versions(version: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.warc.gz", [record(GOOD[0]).replace(b"WARC/1.0", version.encode())])
    assert [capture.url for capture in outcomes(path)[0]] == GOOD[:1]


def test_records_without_an_answer_over_http(tmp_path: Path) -> None:
    """As warcit, wget and Heritrix write them."""
    date = {"WARC-Date": "2019-05-01T10:00:00Z"}
    head = StatusAndHeaders("GET / HTTP/1.1", [("Host", "a")], is_http_request=True)
    records = [
        written("create_warcinfo_record", "a.warc.gz", {"software": "a crawler"}),
        written("create_warc_record", GOOD[0], "request", payload=io.BytesIO(), http_headers=head),
        *(
            written("create_warc_record", url, kind, payload=io.BytesIO(TEXT), warc_content_type=media,
                    warc_headers_dict=date)
            for url, kind, media in ((GOOD[0], "resource", "text/html"), (GOOD[0], "metadata", "text/plain"),
                                     ("dns:h.example", "response", "text/dns"))
        ),
        written("create_revisit_record", GOOD[1], "sha1:A", GOOD[0], "2019-05-01T10:00:00Z",
                http_headers=StatusAndHeaders("304 Not Modified", [], protocol="HTTP/1.1")),
    ]  # fmt: skip
    (page, again), problems = outcomes(write(tmp_path / "a.warc.gz", records))
    assert (page.status, page.media_type, page.original) == (200, "text/html", None)
    assert page.date == "2019-05-01T10:00:00+00:00"
    assert (again.status, again.digest, again.original, problems) == (304, "sha1:A", GOOD[0], [])
    assert read_body(str(tmp_path / "a.warc.gz"), page.offset, 10**6) == TEXT


def test_a_file_without_captures_says_what_it_has(tmp_path: Path) -> None:
    info = written("create_warcinfo_record", "a", {"software": "a crawler"})
    path = write(
        tmp_path / "a.warc", [info, written("create_warc_record", GOOD[0], "metadata", payload=io.BytesIO(b"x"))]
    )
    (problem,) = outcomes(path)[1]
    assert problem.endswith("found 1 metadata, 1 warcinfo")
    path.write_bytes(b"")
    assert outcomes(path) == ([], [])


ARC = b"""filedesc://a.arc 0.0.0.0 20100101000000 text/plain 76
1 0 InternetArchive
URL IP-address Archive-date Content-type Archive-length

http://h.example/ 1.2.3.4 20100101000000 text/html 31
HTTP/1.1 200 OK

<p>Hello</p>
"""


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.warc.gz", gzip.compress(b"".join(record(url) for url in GOOD))),
        ("b.warc.gz", gzip.compress(b"".join(record(url) for url in GOOD[:2]))),
        ("a.arc", ARC),
        ("a.arc.gz", gzip.compress(ARC)),
    ],
)
def test_forms_that_have_to_be_converted_are_named_with_the_command(name: str, data: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    (problem,) = outcomes(tmp_path / name)[1]
    assert f"`warcio recompress {name} " in problem


def test_a_wacz_is_read_where_its_files_are(tmp_path: Path) -> None:
    path = tmp_path / "a.wacz"
    with zipfile.ZipFile(path, "w") as zipped:
        zipped.writestr("datapackage.json", "{}", zipfile.ZIP_DEFLATED)
        for number in range(2):
            zipped.writestr(f"archive/rec-{number}.warc.gz", gzip.compress(record(GOOD[number])))
        zipped.writestr("pages/pages.jsonl", "{}")
    captures, problems = outcomes(path)
    assert ([capture.url for capture in captures], problems) == (GOOD[:2], [])
    assert [read_body(str(path), capture.offset, 10**6) for capture in captures] == [TEXT, TEXT]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("archive/rec.warc.gz", gzip.compress(record(GOOD[0])))
    assert "unzip it" in outcomes(path)[1][0]
    path.write_bytes(b"PK\x03\x04 no zip")
    assert len(outcomes(path)[1]) == 1
