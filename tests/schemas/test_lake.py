"""Folders, versions and the latest pointer on a real file system."""

import errno
import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from schemas.lake import Folder, Lake, check_name, inner_path, is_temporary
from schemas.messages import ConfigError, IntegrityError, NotFoundError, UsageError


def test_a_written_file_reads_back_and_leaves_no_temporary(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    folder.write("a/b.bin", b"one")
    folder.write("a/b.bin", b"two")
    assert folder.read("a/b.bin") == b"two"
    assert folder.infos()["a/b.bin"].size == 3
    assert list(folder.files()) == ["a/b.bin"]


def test_an_absent_folder_is_empty(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path / "none"))
    assert (folder.names(), [*folder.files()], folder.exists("x")) == ([], [], False)
    folder.remove()
    folder.delete("x")
    with pytest.raises(FileNotFoundError):
        folder.read("x")


def test_a_file_uri_is_the_same_folder(tmp_path: Path) -> None:
    Folder(f"file://{tmp_path}").write("x", b"1")
    assert Folder(str(tmp_path)).read("x") == b"1"
    assert Folder(f"file://{tmp_path}").local == tmp_path


def test_a_version_without_manifest_does_not_exist(tmp_path: Path) -> None:
    lake = Lake.at(str(tmp_path))
    lake.dataset("diy", "v1").write("documents/train/part-0", b"")
    assert lake.versions("diy") == []
    lake.dataset("diy", "v1").write("manifest.json", b"{}")
    lake.dataset("diy", "v2").write("manifest.json", b"{}")
    lake.point_latest("diy", "v1")
    assert (lake.find("diy"), lake.find("diy@v2")) == (("diy", "v1"), ("diy", "v2"))
    assert lake.dataset_names() == ["diy"]


def test_a_version_may_be_cut_short(tmp_path: Path) -> None:
    lake = Lake.at(str(tmp_path))
    for version in ("58c0aa", "58c1bb", "58c0"):
        lake.dataset("diy", version).write("manifest.json", b"{}")
    assert lake.find("diy@58c1") == ("diy", "58c1bb")
    assert lake.find("diy@58c0") == ("diy", "58c0")  # a whole name counts before what begins so
    with pytest.raises(UsageError, match="could be any of 58c0, 58c0aa, 58c1bb; give more of it"):
        lake.find("diy@58")


def test_an_absent_lake_is_told_from_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no folder is there"):
        Lake.at(str(tmp_path / "none")).find("diy")
    with pytest.raises(NotFoundError, match="data sets there: none"):
        Lake.at(str(tmp_path)).find("diy")


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path / "new"))
    sink = folder.create("a/b.bin")
    sink.stream.write(b"one")
    assert not folder.exists("a/b.bin")
    sink.commit()
    assert folder.read("a/b.bin") == b"one"
    assert [path.name for path in (tmp_path / "new" / "a").iterdir()] == ["b.bin"]


def test_the_options_of_an_address_stay_at_its_end() -> None:
    lake = Lake.at("s3://bucket/lake/?region=eu-west-1&endpoint=http://localhost:9000")
    expected = "s3://bucket/lake/datasets/diy/v1?region=eu-west-1&endpoint=http://localhost:9000"
    assert lake.dataset("diy", "v1").uri == expected


@pytest.mark.parametrize(("reference", "words"), [("rqa", "data sets there: diy"), ("diy@v9", "versions: v1")])
def test_what_is_not_there_is_named_with_what_is(tmp_path: Path, reference: str, words: str) -> None:
    lake = Lake.at(str(tmp_path))
    lake.dataset("diy", "v1").write("manifest.json", b"{}")
    with pytest.raises(NotFoundError, match=words):
        lake.find(reference)


def test_a_reference_cannot_leave_the_lake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        Lake.at(str(tmp_path)).find("../etc")


@pytest.mark.parametrize("name", ["diy", "story-dii", "9", "a" * 100, "v1.2_b"])
def test_a_name_of_a_data_set(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "../../evil", "a/b", "My Data", "_lake", ".hidden", "..", "a@b", "a\n", "a\0", "ä", "a" * 101]
)
def test_what_is_no_name_of_a_data_set(name: str) -> None:
    with pytest.raises(ConfigError):
        check_name(name)


@pytest.mark.parametrize("path", ["README.md", "documents/train/part-00000-of-00001.parquet", "a/..b", "...", "a:b"])
def test_a_path_below_a_folder(path: str) -> None:
    assert inner_path(path) == path


@pytest.mark.parametrize(
    "path",
    ["", ".", "..", "/etc/passwd", "../x", "a/../../x", "a/..", "./a", "a//b", "a/", "..\\x", "a\\..\\x", "a\0b"],
)
def test_a_path_that_leads_out_of_its_folder(path: str) -> None:
    with pytest.raises(IntegrityError):
        inner_path(path)


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        (f"datasets/a/v/.part.parquet.{'0a' * 16}.tmp", True),
        (f".latest.{'0a' * 16}.tmp", True),
        ("raw/files/ab/crawl.tmp", False),
        ("raw/files/ab/.cache.tmp", False),
    ],
)
def test_a_file_that_was_not_finished(path: str, is_one: bool) -> None:
    assert is_temporary(path) is is_one


@pytest.mark.parametrize("call", ["write", "add", "settle"])
def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    full = Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    monkeypatch.setattr("schemas.lake.os.fsync", full)
    with pytest.raises(OSError, match="space"):
        getattr(Folder(str(tmp_path)), call)("a", b"data")
    assert list(tmp_path.iterdir()) == []
