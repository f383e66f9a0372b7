"""WARC files that are damaged in one place: the other records are read, and bodies are what warcio reads."""

from __future__ import annotations

import gzip
import io
import random
import zlib
from collections.abc import Callable
from pathlib import Path

import brotli
import pytest
from backports import zstd
from warcio.archiveiterator import ArchiveIterator
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from pipelines import warc
from pipelines.files import BrokenInputError
from pipelines.warc import Answer, read_answers, read_body

TEXT = "".join(f"<p>Line {number} of a page.</p>\r\n" for number in range(200)).encode()
Headers = list[tuple[str, str]]


def record(url: str, body: bytes = TEXT, headers: Headers | None = None, kind: str = "text/html") -> bytes:
    """Return a record that warcio writes, without compression."""
    stream = io.BytesIO()
    writer = WARCWriter(stream, gzip=False)
    http = StatusAndHeaders("200 OK", [("Content-Type", kind), *(headers or [])], protocol="HTTP/1.1")
    made = writer.create_warc_record(url, "response", payload=io.BytesIO(body), http_headers=http)
    writer.write_record(made)
    made.raw_stream.close()
    return stream.getvalue()


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data)


def length(text: bytes) -> Callable[[bytes], bytes]:
    """Return what changes the Content-Length of a record."""

    def change(data: bytes) -> bytes:
        head, _, rest = data.partition(b"\r\n\r\n")
        lines = [b"Content-Length: " + text if line.lower().startswith(b"content-length") else line
                 for line in head.split(b"\r\n")]  # fmt: skip
        return b"\r\n".join(lines) + b"\r\n\r\n" + rest

    return change


def checked_zstd(data: bytes) -> bytes:
    return zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1})


PACKERS: dict[str, Callable[[bytes], bytes]] = {".warc": bytes, ".warc.gz": gzip.compress, ".warc.zst": checked_zstd}
GOOD = [f"https://h.example/{number}" for number in range(5)]
BROKEN: dict[str, bytes] = {
    "negative": length(b"-5")(record("https://bad.example/")),
    "no number": length(b"abc")(record("https://bad.example/")),
    "5000 digits": length(b"9" * 5000)(record("https://bad.example/")),
    "too small": length(b"300")(record("https://bad.example/")),
    "too large": length(b"99999999")(record("https://bad.example/")),
    "no length": record("https://bad.example/").replace(b"Content-Length", b"Content-Width"),
    "junk": b"junk \r\n between \0 records\r\n",
    "no HTTP": record("https://bad.example/").replace(b"HTTP/1.1 200 OK", b"<html>no header"),
    "cut head": record("https://bad.example/")[:90],
    "cut body": record("https://bad.example/")[:-900],
}
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


def outcomes(path: Path) -> tuple[list[Answer], list[str]]:
    found = list(read_answers(str(path)))
    problems = [each.record_id for each in found if isinstance(each, BrokenInputError)]
    return [each for each in found if isinstance(each, Answer)], problems


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_record_costs_itself_alone(name: str, suffix: str, tmp_path: Path) -> None:
    pieces = [record(url) for url in GOOD]
    path = write(tmp_path / f"a{suffix}", [*pieces[:2], BROKEN[name], *pieces[2:]])
    answers, problems = outcomes(path)
    assert [answer.url for answer in answers] == GOOD
    assert all(answer.body(10**6) == TEXT for answer in answers)
    assert all(read_body(str(path), answer.offset, 10**6) == TEXT for answer in answers)
    begin = len(b"".join(map(PACKERS[suffix], pieces[:2])))
    assert problems[0] == f"a{suffix}:{begin}"
    assert len(problems) == 1


@pytest.mark.parametrize("suffix", [".warc.gz", ".warc.zst"])
def test_a_flipped_byte_costs_one_record(suffix: str, tmp_path: Path) -> None:
    pieces = [PACKERS[suffix](record(url)) for url in GOOD]
    for seed in range(60):
        draw = random.Random(seed)
        damaged = bytearray(pieces[2])
        for _ in range(draw.choice((1, 3))):
            damaged[draw.randrange(len(damaged))] ^= draw.randrange(1, 256)
        path = tmp_path / f"a{suffix}"
        path.write_bytes(b"".join([*pieces[:2], bytes(damaged), *pieces[3:]]))
        answers, problems = outcomes(path)
        assert [answer.url for answer in answers if answer.url in GOOD[:2] + GOOD[3:]] == GOOD[:2] + GOOD[3:]
        assert len(answers) == 5 or problems == [f"a{suffix}:{len(pieces[0]) + len(pieces[1])}"]


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("suffix", PACKERS)
def test_a_body_is_what_warcio_reads(name: str, suffix: str, tmp_path: Path) -> None:
    headers, stored = BODIES[name]
    pieces = [record("https://a.example/", stored, headers), record("https://b.example/", kind="image/png")]
    (theirs, *_) = ArchiveIterator(io.BytesIO(pieces[0]))
    (theirs,) = (each.content_stream().read() for each in ArchiveIterator(io.BytesIO(pieces[0])))
    (answer, other), problems = outcomes(write(tmp_path / f"a{suffix}", pieces))
    assert answer.body(10**6) == theirs == (stored if name in ("empty", "unknown") else TEXT)
    assert answer.body(100)[:100] == theirs[:100]
    assert (other.url, other.media_type, problems) == ("https://b.example/", "image/png", [])


def test_brotli_that_is_none(tmp_path: Path) -> None:
    headers = [("Content-Encoding", "br")]
    pieces = [record("https://a.example/", body, headers) for body in (brotli.compress(TEXT), TEXT)]
    answers, _ = outcomes(write(tmp_path / "a.warc", pieces))
    assert [answer.body(10**6) for answer in answers] == [TEXT, TEXT]


def test_a_body_that_is_damaged_costs_itself_alone(tmp_path: Path) -> None:
    pieces = [record(GOOD[0]), *(record("u:", body, headers) for headers, body in UNREADABLE.values()), record(GOOD[1])]
    (one, cut, bomb, two), problems = outcomes(write(tmp_path / "a.warc.gz", pieces))
    assert ([one.url, two.url], problems) == (GOOD[:2], [])
    with pytest.raises(ValueError, match="its body cannot be read on"):
        cut.body(10**6)
    assert len(bomb.body(1000)) == 1001


def test_a_file_of_one_member_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.warc.gz").write_bytes(gzip.compress(b"".join(record(url) for url in GOOD)))
    found = list(read_answers(str(tmp_path / "a.warc.gz")))
    assert [str(each) for each in found] == [
        "a.warc.gz: no record at byte 0: several records in one gzip member; recompress with one record a member"
    ]


@pytest.mark.parametrize("suffix", PACKERS)
def test_a_record_that_is_too_large_costs_itself_alone(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warc, "MAX_RECORD_BYTES", 2**16)
    pieces = [record(GOOD[0]), record("https://video.example/", bytes(2**18)), record(GOOD[1])]
    (one, video, two), problems = outcomes(write(tmp_path / f"a{suffix}", pieces))
    assert ([one.url, two.url], problems) == (GOOD[:2], [])
    with pytest.raises(ValueError, match="expected a record of at most 65536 bytes"):
        video.body(10**6)


@pytest.mark.parametrize("suffix", PACKERS)
def test_a_cut_file_and_what_is_none(suffix: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"a{suffix}", [record(url) for url in GOOD])
    whole = path.read_bytes()
    path.write_bytes(whole[:-50])
    answers, problems = outcomes(path)
    assert ([answer.url for answer in answers], len(problems)) == (GOOD[:4], 1)
    for data in (b"\0" * 5000, b"<html>" * 1000, whole[:3], b"\x1f\x8b\x08" * 99):
        path.write_bytes(data)
        assert outcomes(path) == ([], [f"a{suffix}:0"])
    path.write_bytes(b"")
    assert outcomes(path) == ([], [])


@pytest.mark.parametrize(
    ("suffix", "junk"),
    [
        (".warc", b"WARC/1.0\r\n" * 20_000),
        (".warc", b"WARC/1.0\r\na: b\r\n" * 13_000),
        (".warc.gz", b"\x1f\x8b\x08\x00" * 50_000),
        (".warc.gz", b"\x1f\x8b\x08\x00" + bytes(6) + b"\x1f\x8b\x08\x00\0\0\0\0\0\xff" * 22_000),
        (".warc.zst", b"\x28\xb5\x2f\xfd" * 50_000),
    ],
)
def test_what_only_looks_like_many_records_is_one_row_and_little_work(
    suffix: str, junk: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read of the file, beginnings that are tried again included, is a few times its size."""
    read, pack, path = list[int](), PACKERS[suffix], tmp_path / f"a{suffix}"
    path.write_bytes(pack(record(GOOD[0])) + junk + pack(record(GOOD[1])))

    class Counted(io.BufferedReader):
        def read(self, size: int | None = -1, /) -> bytes:
            data = super().read(size)
            read.append(len(data))
            return data

    monkeypatch.setattr(warc, "open_uri", lambda uri: Counted(io.FileIO(uri)))
    found, problems = outcomes(path)
    assert [answer.url for answer in found] == GOOD[: 1 if len(junk) > 210_000 else 2]  # after 10,000 it gives up
    assert len(problems) == 1
    assert sum(read) < 10 * path.stat().st_size


def test_damage_between_two_records_is_one_row(tmp_path: Path) -> None:
    broken = length(b"-5")(record("https://bad.example/"))
    path = write(tmp_path / "a.warc", [record(GOOD[0]), *[broken] * 9, record(GOOD[1]), broken, record(GOOD[2])])
    found, problems = outcomes(path)
    assert [answer.url for answer in found] == GOOD[:3]
    assert len(problems) == 2


def test_a_frame_whose_first_block_is_large_is_found_again(tmp_path: Path) -> None:
    """A block of zstd gives nothing before it is whole: here it takes 100 kB."""
    body = random.Random(0).randbytes(90_000).hex().encode()
    frame = zstd.compress(record(GOOD[1], body, kind="text/plain"))
    assert len(frame) > 80_000
    path = tmp_path / "a.warc.zst"
    path.write_bytes(zstd.compress(record(GOOD[0])) + b"junk" + frame)
    found, problems = outcomes(path)
    assert [answer.url for answer in found] == GOOD[:2]
    assert len(problems) == 1
