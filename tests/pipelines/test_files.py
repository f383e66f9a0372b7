"""Every way a published file is handed around gives its readers the same bytes.

One parser of addresses of pictures, and what prints them.
"""

import bz2
import gzip
import io
import lzma
import os
import socket
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
import zstandard

from pipelines.embedded import (
    Address,
    Cell,
    FeatureRow,
    File,
    Frame,
    Record,
    Span,
    Unusable,
    Web,
    is_file_name,
    parse_address,
)
from pipelines.files import BrokenInputError, file_names, input_file, read_lines, read_tree
from pipelines.named_files import FileRejected, read_named
from pipelines.sources.records import json_lines
from schemas.failures import Reason
from schemas.messages import ConfigError, NotFoundError

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


def zip_of(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
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
    with pytest.raises(NotFoundError, match="b/none"):
        lines_of(f"{archive}!/b/none")


@pytest.mark.parametrize("suffix", [suffix for suffix in PACKERS if suffix])
def test_a_cut_compressed_file_gives_the_lines_before_the_cut(tmp_path: Path, suffix: str) -> None:
    text = b"".join(b"%d\n" % (number * 7919 % 1_000_003) for number in range(50_000))
    path = tmp_path / f"a.txt{suffix}"
    packed = PACKERS[suffix](text)
    path.write_bytes(packed[: len(packed) // 2])
    found: list[bytes] = []
    with pytest.raises(BrokenInputError) as caught:
        found.extend(line for _, line in read_lines(path))
    assert found == text.split(b"\n")[: len(found)]
    assert caught.value.failure().record_id == f"a.txt{suffix}:{len(found) + 1}"


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_a_cut_tar_is_told(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.tar{suffix}"
    packed = PACKERS[suffix](tar_of({"a.txt": TEXT, "b.txt": TEXT[::-1]}))
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(BrokenInputError, match=r"a\.tar"):
        list(read_tree(str(path), wanted=lambda name: True))


def test_what_is_no_archive_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(b"<html>not found</html>")
    with pytest.raises(BrokenInputError, match=r"a\.tar: cannot be read on"):
        list(file_names(str(tmp_path / "a.tar")))
    with pytest.raises(NotFoundError):
        list(file_names(str(tmp_path / "none.tar")))


@pytest.mark.parametrize("outer", ["zst", "tar.gz"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, outer: str) -> None:
    """A file of 16 MB, whose records are all counted, is read in a few MB."""
    count = 32_000
    data = b'{"id": 1, "text": "%s"}\n' % (b"x" * 480) * count
    packed = zstandard.compress(data) if outer == "zst" else gzip.compress(tar_of({"large.jsonl": data}), 1)
    (tmp_path / f"large.{outer}").write_bytes(packed)
    place = str(tmp_path / f"large.{outer}") + ("!/large.jsonl" if outer == "tar.gz" else "")
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_lines(place)) == count
        assert tracemalloc.get_traced_memory()[1] < 8 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("outer", [".zip", ".tar"])
def test_a_damaged_member_takes_no_other_along(tmp_path: Path, outer: str) -> None:
    files = {"a.txt": b"a" * 100, "b.txt": b"b" * 100, "c.txt": b"c" * 100}
    path = tmp_path / f"a{outer}"
    packed = bytearray(zip_of(files, zipfile.ZIP_STORED) if outer == ".zip" else tar_of(files))
    packed[packed.index(b"b" * 100)] = 0
    path.write_bytes(packed)
    found = dict(read_tree(str(path), wanted=lambda name: True))
    assert (found["a.txt"], found["c.txt"]) == (files["a.txt"], files["c.txt"])
    if outer == ".zip":  # a tar has no checksum
        assert isinstance(found["b.txt"], BrokenInputError)
        assert found["b.txt"].failure().record_id == "b.txt"


IMAGES = {"train/1.jpg": b"one", "train/2.png": b"two", "b c.JPG": b"three"}


@pytest.fixture(params=["folder", "tar", "zip", "member", "tar-uri", "zip-uri"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return what holds `IMAGES`, in each way there is."""
    kind: str = request.param
    folder = tmp_path / "images"
    for name, data in IMAGES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    (tmp_path / "secret.jpg").write_bytes(b"secret")
    (tmp_path / "i.tar").write_bytes(tar_of({f"./{name}": data for name, data in IMAGES.items()}))
    (tmp_path / "i.zip").write_bytes(zip_of(IMAGES))
    deeper = {f"deep/er/{name}": data for name, data in IMAGES.items()} | {"deep/secret.jpg": b"secret"}
    (tmp_path / "d.zip").write_bytes(zip_of(deeper))
    return {
        "folder": str(folder),
        "tar": str(tmp_path / "i.tar"),
        "zip": str(tmp_path / "i.zip"),
        "member": f"{tmp_path / 'd.zip'}!/deep/er",
        "tar-uri": (tmp_path / "i.tar").as_uri(),
        "zip-uri": (tmp_path / "i.zip").as_uri(),
    }[kind]


@pytest.mark.parametrize(
    ("name", "data"),
    [("train/1.jpg", b"one"), ("./train/1.jpg", b"one"), ("train/2.jpg", b"two"), ("train/../b c.jpeg", b"three")],
)
def test_a_name_gives_its_bytes_whatever_its_extension(root: str, name: str, data: bytes) -> None:
    assert read_named(root, name, max_bytes=5) == data


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("train/3.jpg", Reason.NOT_FOUND),
        ("1.jpg", Reason.NOT_FOUND),
        ("row:3", Reason.NOT_FOUND),
        ("a\0.jpg", Reason.NOT_FOUND),
        ("a\ud800.jpg", Reason.NOT_FOUND),
        ("../secret.jpg", Reason.FORBIDDEN),
        ("train/../../secret", Reason.FORBIDDEN),
        ("/etc/passwd", Reason.FORBIDDEN),
        ("..", Reason.FORBIDDEN),
        ("b c.JPG", Reason.TOO_LARGE),
    ],
)
def test_what_cannot_be_read_by_a_name_has_a_reason(root: str, name: str, reason: Reason) -> None:
    with pytest.raises(FileRejected, match=reason):
        read_named(root, name, max_bytes=4)


@pytest.mark.parametrize("name", ["train", "", "."])
def test_a_folder_is_no_file(root: str, name: str) -> None:
    with pytest.raises(FileRejected):
        read_named(root, name, max_bytes=4)


def test_links_and_absolute_paths_stay_below_the_root(tmp_path: Path) -> None:
    folder = tmp_path / "documents"
    (folder / "in").mkdir(parents=True)
    (folder / "in" / "1.jpg").write_bytes(b"in")
    (tmp_path / "out.jpg").write_bytes(b"out")
    (folder / "link.jpg").symlink_to("in/1.jpg")
    (folder / "out.jpg").symlink_to("../out.jpg")
    (folder / "above").symlink_to("..")
    (tmp_path / "again").symlink_to("documents")
    for name in ("in/1.jpg", "link.jpg", str(folder / "in" / "1.jpg")):
        assert read_named(str(folder), name, max_bytes=9) == b"in"
        assert read_named(str(tmp_path / "again"), name, max_bytes=9) == b"in"
    with pytest.raises(FileRejected, match="no such file"):
        read_named(str(folder), "n" * 5000, max_bytes=9)
    for name in ("out.jpg", "above/out.jpg", str(tmp_path / "out.jpg"), "in/../../out.jpg"):
        with pytest.raises(FileRejected, match=rf"{Reason.FORBIDDEN}.*outside source\.images.* set source\.images="):
            read_named(str(folder), name, max_bytes=9)


def test_a_backslash_in_a_name_that_is_not_there_is_explained(root: str) -> None:
    with pytest.raises(FileRejected, match=r"train\\1\.jpg: no such file; \\: write / between folders"):
        read_named(root, "train\\1.jpg", max_bytes=4)


@pytest.mark.timeout(20)
def test_pipes_sockets_and_devices_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.jpg")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket.jpg"))
        for name in ("fifo.jpg", "socket.jpg"):
            with pytest.raises(FileRejected, match="no such file"):
                read_named(str(tmp_path), name, max_bytes=9)
    with pytest.raises(FileRejected, match="no such file"):
        read_named("/dev", "zero", max_bytes=9)
    assert list(file_names(str(tmp_path))) == []


def _encrypted(content: bytes) -> bytes:
    """Return a zip that says its file `a.jpg` is encrypted."""
    packed = bytearray(content)
    packed[packed.index(b"a.jpg") - 30 + 6] |= 1  # the local header
    packed[packed.rindex(b"a.jpg") - 46 + 8] |= 1  # the directory
    return bytes(packed)


def _of_unknown_method(content: bytes) -> bytes:
    packed = bytearray(content)
    packed[packed.index(b"a.jpg") - 30 + 8] = packed[packed.rindex(b"a.jpg") - 46 + 10] = 97
    return bytes(packed)


def _with_another_byte(content: bytes) -> bytes:
    return content.replace(b"first", b"Xirst", 1)


@pytest.mark.parametrize("damage", [_encrypted, _of_unknown_method, _with_another_byte])
def test_damaged_members_of_a_zip_are_failures(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "i.zip"
    path.write_bytes(damage(zip_of({"a.jpg": b"first" * 20, "b.jpg": b"second"}, zipfile.ZIP_STORED)))
    with pytest.raises(FileRejected, match=Reason.CORRUPT_IMAGE):
        read_named(str(path), "a.jpg", max_bytes=2**20)
    assert read_named(str(path), "b.jpg", max_bytes=2**20) == b"second"
    with pytest.raises(BrokenInputError):
        lines_of(f"{path}!/a.jpg")
    assert isinstance(dict(read_tree(str(path), wanted=lambda name: True))["a.jpg"], BrokenInputError)


def test_a_zip_is_scanned_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "many.zip"
    path.write_bytes(zip_of({f"{number}.jpg": b"%d" % number for number in range(2000)}))
    scanned = Mock(side_effect=zipfile.ZipFile)
    monkeypatch.setattr(zipfile, "ZipFile", scanned)
    assert [read_named(str(path), f"{number}.png", max_bytes=9) for number in range(2000)] == [
        b"%d" % number for number in range(2000)
    ]
    assert scanned.call_count == 1
    monkeypatch.undo()
    path.write_bytes(zip_of({"0.jpg": b"new"}))
    os.utime(path, (1, 1))
    assert read_named(str(path), "0.jpg", max_bytes=9) == b"new"


def test_archives_that_cannot_be_read_by_name_say_so(tmp_path: Path) -> None:
    (tmp_path / "i.tar.gz").write_bytes(gzip.compress(tar_of(IMAGES)))
    (tmp_path / "i.tar").write_bytes(b"no archive" * 100)
    for name in ("i.tar.gz", "i.tar"):
        with pytest.raises(ConfigError, match="expected a folder, a zip, or a tar that is not compressed"):
            read_named(str(tmp_path / name), "a.jpg", max_bytes=9)


@pytest.mark.parametrize("suffix", PACKERS)
def test_a_line_that_is_too_long_costs_itself_alone(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.files.MAX_LINE_BYTES", 1000)
    monkeypatch.setattr("pipelines.sources.records.MAX_LINE_BYTES", 1000)
    exactly = b'{"a": "%s"}' % (b"x" * 991)
    lines = [b'{"a": 1}', b'{"a": "%s"}' % (b"x" * 5000), b'{"a": 2}', exactly, exactly[:-1] + b" }", b"\0" * 9000]
    path = tmp_path / f"a.jsonl{suffix}"
    for end in (b"", b"\n", b"\r\n"):
        path.write_bytes(PACKERS[suffix](b"\n".join([*lines, lines[0], lines[1]]) + end))
        found = {where: isinstance(record, dict) for where, record in json_lines(path)}
        assert list(found.values()) == [True, False, True, len(exactly) <= 1000, False, False, True, False]
        assert list(found) == [f"{path.name}:{number}" for number in range(1, 9)]


NOWHERE = Unusable(Reason.NOT_FOUND, "image: expected COLUMN/ROW or COLUMN/ROW/ITEM")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("HTTPS://h.example/a!/b.jpg", Web("HTTPS://h.example/a!/b.jpg")),
        ("a b/1.jpg", File("a b/1.jpg")),
        ("0.tar!/k/1.jpg", File("0.tar!/k/1.jpg")),
        ("0.tar!/17", File("0.tar!/17")),
        ("x.parquet!/image/12", Cell("x.parquet", "image", 12)),
        ("x.arrow!/images/12/3", Cell("x.arrow", "images", 12, 3)),
        ("x.parquet!/image", NOWHERE),
        ("c.warc.gz!/29381", Record("c.warc.gz", 29381)),
        ("c.warc!/x", Unusable(Reason.NOT_FOUND, "x: expected the first byte of a record")),
        ("k.TIFF!/2", Frame("k.TIFF", 2)),
        ("x.tar!/k!/2", Frame("x.tar!/k", 2)),
        ("x.bin!/bytes=10-19", Span("x.bin", 10, 10)),
        ("x.bin!/bytes=19-10", Span("x.bin", 19, 0)),
        ("row:17", FeatureRow(17)),
        *(
            (text, Unusable(Reason.FEATURE_MISSING, f"{text}: expected row:NUMBER"))
            for text in ("row:", "row:-1", "row:x", "row:²")
        ),
        ("unusable:not-found:a: b", Unusable(Reason.NOT_FOUND, "a: b")),
    ],
)
def test_what_an_address_says(text: str, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "address",
    [Cell("x.arrow", "a", 1), Cell("x.arrow", "a", 1, 0), Span("x", 3, 9), Unusable(Reason.TOO_LARGE, "why: so")],
)
def test_an_address_that_is_printed_is_read_again(address: Address) -> None:
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    ("text", "is_name"),
    [("a.jpg", True), ("a:b.jpg", True), ("row:1", False), ("Data:x", False), ("s3://b/a", False), ("a\nb", False)],
)
def test_a_name_that_somebody_wrote_is_of_a_file(text: str, is_name: bool) -> None:
    assert is_file_name(text) is is_name
