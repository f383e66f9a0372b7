"""Every way a published file is handed around gives its readers the same bytes."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from pipelines.files import BrokenInputError, file_names, input_file, read_lines, read_tree
from pipelines.sources.json_stream import read_items

TEXT = b"".join(b'{"id": %d}\n' % number for number in range(5000))
LINES = [b'{"id": %d}' % number for number in range(5000)]
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.compress,
}


def tar_of(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    return stream.getvalue()


def zip_of(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("folder/", b"")
        for name, content in files.items():
            archive.writestr(name, content)
    return stream.getvalue()


def lines_of(place: str) -> list[bytes]:
    return [line for _, line in read_lines(place)]


@pytest.mark.parametrize("inner", PACKERS)
@pytest.mark.parametrize("outer", [*(f".tar{suffix}" for suffix in PACKERS), ".zip", None])
def test_a_file_in_every_wrapping(tmp_path: Path, inner: str, outer: str | None) -> None:
    packed = PACKERS[inner](TEXT)
    if outer is None:
        (tmp_path / f"a.jsonl{inner}").write_bytes(packed)
        assert lines_of(str(tmp_path / f"a.jsonl{inner}")) == LINES
        assert lines_of((tmp_path / f"a.jsonl{inner}").as_uri()) == LINES  # through pyarrow.fs
        (tmp_path / "misnamed").write_bytes(packed)
        assert lines_of(str(tmp_path / "misnamed")) == LINES
        return
    files = {"./b/first.txt": b"first", f"b/a.jsonl{inner}": packed}
    archive = tmp_path / f"all{outer}"
    archive.write_bytes(zip_of(files) if outer == ".zip" else PACKERS[outer[4:]](tar_of(files)))
    place = f"{archive}!/b/a.jsonl{inner}"
    assert lines_of(place) == LINES
    assert input_file(place).name == f"a.jsonl{inner}"
    assert sorted(name.removeprefix("./") for name in file_names(str(archive))) == [f"b/a.jsonl{inner}", "b/first.txt"]
    assert [data for _, data in read_tree(str(archive), wanted=lambda name: name.endswith(".txt"))] == [b"first"]
    with pytest.raises(FileNotFoundError, match="b/none"):
        lines_of(f"{archive}!/b/none")


@pytest.mark.parametrize("suffix", [suffix for suffix in PACKERS if suffix])
def test_a_cut_compressed_file_gives_the_lines_before_the_cut(tmp_path: Path, suffix: str) -> None:
    text = b"".join(b"%d\n" % (number * 7919 % 1_000_003) for number in range(50_000))
    path = tmp_path / f"a.txt{suffix}"
    packed = PACKERS[suffix](text)
    path.write_bytes(packed[: len(packed) // 2])
    found: list[bytes] = []
    with pytest.raises(BrokenInputError) as caught:
        for _, line in read_lines(path):
            found.append(line)
    assert found == text.split(b"\n")[: len(found)]
    assert caught.value.failure().record_id == f"a.txt{suffix}:{len(found) + 1}"


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_a_cut_tar_is_told(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.tar{suffix}"
    packed = PACKERS[suffix](tar_of({"a.txt": TEXT, "b.txt": TEXT[::-1]}))
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(BrokenInputError, match=r"a\.tar"):
        for _ in read_tree(str(path), wanted=lambda name: True):
            pass


def test_what_is_no_archive_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(b"<html>not found</html>")
    with pytest.raises(BrokenInputError, match=r"a\.tar: cannot be read on"):
        list(file_names(str(tmp_path / "a.tar")))
    with pytest.raises(FileNotFoundError):
        list(file_names(str(tmp_path / "none.tar")))


@pytest.mark.parametrize("outer", ["zst", "tar.gz"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, outer: str) -> None:
    """A file of 16 MB, whose records are all counted, is read in a few MB."""
    record = json.dumps({"id": 1, "text": "x" * 480}).encode()
    count = 32_000
    if outer == "zst":
        path = tmp_path / "large.json.zst"
        with path.open("wb") as file, zstandard.ZstdCompressor(level=1).stream_writer(file) as stream:
            _write(stream, record, count)
        place = str(path)
    else:
        _write_plain(tmp_path / "large.json", record, count)
        with tarfile.open(tmp_path / "large.tar.gz", "w:gz", compresslevel=1) as archive:
            archive.add(tmp_path / "large.json", "large.json")
        place = f"{tmp_path / 'large.tar.gz'}!/large.json"
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_items(place)) == count
        assert tracemalloc.get_traced_memory()[1] < 8 * 2**20
    finally:
        tracemalloc.stop()


def _write_plain(path: Path, record: bytes, count: int) -> None:
    with path.open("wb") as stream:
        _write(stream, record, count)


def _write(stream: io.BufferedIOBase, record: bytes, count: int) -> None:
    stream.write(b"[")
    for number in range(count):
        stream.write(record if number == 0 else b"," + record)
    stream.write(b"]")
