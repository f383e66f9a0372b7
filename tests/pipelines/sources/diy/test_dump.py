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
from schemas.errors import NotFoundError
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


@pytest.mark.parametrize("name", [name for name in PACKERS if not name.endswith(".jsonl")])
def test_a_file_cut_short_gives_what_was_before_and_a_failure(tmp_path: Path, name: str) -> None:
    lines = [line(f"n{index}", title=str(index * 7919)) for index in range(2000)]
    packed = PACKERS[name](b"".join(lines))
    (tmp_path / name).write_bytes(packed[: len(packed) * 3 // 4])
    found = outcomes(tmp_path / name)
    assert found[:-1] == [f"n{index}" for index in range(len(found) - 1)]
    assert found[-1] == f"{name}:{len(found)} broken-record"
    assert name.endswith(".bz2") or len(found) > 500  # bzip2 packs all of this into one block


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


def test_a_character_may_straddle_two_pieces(tmp_path: Path) -> None:
    path = tmp_path / "RS.zst"
    title = "\u00e4" * 700_000  # two bytes each: more than one piece of a million bytes
    path.write_bytes(
        zstandard.compress(json.dumps(json.loads(line("a")) | {"title": title}, ensure_ascii=False).encode())
    )
    (found,) = read_dump(str(path), subreddit="DIY")
    assert isinstance(found, Submission)
    assert found.title == title


@pytest.mark.parametrize("name", ["RS.zst", "RS.xz", "RS.bz2", "RS.gz"])
def test_a_file_that_is_not_what_its_name_says(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(line("a"))
    assert outcomes(tmp_path / name) == [f"{name}:1 broken-record"]


def test_an_absent_file_is_the_callers_mistake(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        outcomes(tmp_path / "RS.zst")
