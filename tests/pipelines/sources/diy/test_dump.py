"""Dump files in every compression, damaged and whole."""

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from pipelines.sources.diy.submissions import Submission, read_dump
from schemas.failures import Failure


def line(record_id: str, subreddit: str = "DIY", **fields: object) -> bytes:
    record = {"id": record_id, "subreddit": subreddit, "score": 1, "title": "t", "url": "http://imgur.com/a/x"}
    return json.dumps(record | fields).encode() + b"\n"


def outcomes(path: Path, subreddit: str = "DIY") -> list[str]:
    found = []
    for outcome in read_dump(str(path), subreddit=subreddit):
        failed = isinstance(outcome, Failure)
        found.append(f"{outcome.record_id} {outcome.reason}" if failed else outcome.id)
    return found


def two_frames(data: bytes) -> bytes:
    half = len(data) // 2
    return zstandard.compress(data[:half]) + zstandard.compress(data[half:])


def long_window(data: bytes) -> bytes:
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=28, enable_ldm=True)
    return zstandard.ZstdCompressor(compression_params=parameters).compress(data)


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "RS.zst": two_frames,
    "RS_long.zst": long_window,
    "RS.xz": lzma.compress,
    "RS.bz2": bz2.compress,
    "RS.gz": gzip.compress,
    "RS.jsonl": bytes,
}


@pytest.mark.parametrize("name", PACKERS)
def test_every_compression_is_read_and_other_subreddits_pass(tmp_path: Path, name: str) -> None:
    data = line("a") + line("b", "woodworking") + b"\n" + line("c", "diy") + line("d", "pics", title='"DIY"')
    (tmp_path / name).write_bytes(PACKERS[name](data + line("e").rstrip()))
    assert outcomes(tmp_path / name) == ["a", "c", "e"]
    assert outcomes(tmp_path / name, "diy") == ["a", "c", "e"]


def test_broken_lines_are_failures_where_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "RS"
    path.write_bytes(
        line("a") + b'{"id": "b", "subreddit": "DIY", "sco\n' + b"[1, 2]\n" + b'{"subreddit" "DIY"}\n'
        + b'["DIY", {}]\n'
        + b'{"subreddit": "DIY", "score": 1}\n' + line("c") + b'{"id": "d", "subreddit": "DIY"'
    )  # fmt: skip
    assert outcomes(path) == [
        "a", "RS:2 broken-record", "RS:3 broken-record", "RS:4 broken-record", "RS:5 broken-record",
        "RS:6 missing-field", "c", "RS:8 broken-record",
    ]  # fmt: skip


def test_bytes_that_are_not_utf8_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "RS.gz"
    path.write_bytes(gzip.compress(line("a", title="XX").replace(b"XX", b"caf\xe9 \xff")))
    (found,) = read_dump(str(path), subreddit="DIY")
    assert isinstance(found, Submission)
    assert found.title == "caf\ufffd \ufffd"


@pytest.mark.parametrize("name", ["RS.zst", "RS.xz", "RS.bz2", "RS.gz"])
def test_a_file_that_is_not_what_its_name_says(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(line("a"))
    assert outcomes(tmp_path / name) == [f"{name}:1 broken-record"]
