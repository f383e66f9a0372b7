"""Folders, versions and the latest pointer on a real file system."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.errors import NotFoundError, UsageError
from schemas.lake import Folder, Lake


def test_a_written_file_reads_back_and_leaves_no_temporary(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    folder.write("a/b.bin", b"one")
    folder.write("a/b.bin", b"two")
    assert folder.read("a/b.bin") == b"two"
    assert folder.size("a/b.bin") == 3
    assert list(folder.files()) == ["a/b.bin"]


def test_an_absent_folder_is_empty(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path / "none"))
    assert folder.names() == []
    assert list(folder.files()) == []
    assert folder.size("x") is None
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
    assert lake.find("diy") == ("diy", "v1")
    assert lake.find("diy@v2") == ("diy", "v2")
    assert lake.dataset_names() == ["diy"]


@pytest.mark.parametrize(("reference", "words"), [("rqa", "data sets there: diy"), ("diy@v9", "versions: v1")])
def test_what_is_not_there_is_named_with_what_is(tmp_path: Path, reference: str, words: str) -> None:
    lake = Lake.at(str(tmp_path))
    lake.dataset("diy", "v1").write("manifest.json", b"{}")
    with pytest.raises(NotFoundError, match=words):
        lake.find(reference)


def test_a_reference_cannot_leave_the_lake(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected NAME"):
        Lake.at(str(tmp_path)).find("../etc")
