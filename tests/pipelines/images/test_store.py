"""The store keeps one picture per content hash."""

from pathlib import Path

import pytest

from pipelines.images.store import ImageStore
from schemas.lake import Folder

HASH = "ab" + "0" * 62


def test_a_picture_is_kept_under_its_hash(tmp_path: Path) -> None:
    store = ImageStore(Folder(str(tmp_path)))
    assert not store.exists(HASH)
    store.write(HASH, b"jpeg")
    assert store.exists(HASH)
    assert store.read(HASH) == b"jpeg"
    assert list(Folder(str(tmp_path)).files()) == [f"ab/{HASH}.jpg"]


def test_a_picture_that_is_there_is_left_alone(tmp_path: Path) -> None:
    store = ImageStore(Folder(str(tmp_path)))
    store.write(HASH, b"jpeg")
    (path,) = tmp_path.rglob("*.jpg")
    before = path.stat()
    store.write(HASH, b"jpeg")
    assert path.stat().st_mtime_ns == before.st_mtime_ns and path.stat().st_ino == before.st_ino


def test_a_picture_that_a_power_cut_emptied_is_written_again(tmp_path: Path) -> None:
    store = ImageStore(Folder(str(tmp_path)))
    store.write(HASH, b"jpeg")
    (path,) = tmp_path.rglob("*.jpg")
    path.write_bytes(b"")
    store.write(HASH, b"jpeg")
    assert store.read(HASH) == b"jpeg"


def test_an_absent_picture_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ImageStore(Folder(str(tmp_path))).read(HASH)
