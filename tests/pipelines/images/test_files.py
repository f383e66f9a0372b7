"""Image files in a folder, a tar and a zip: the same names give the same bytes."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import pytest

from pipelines.images.files import image_files
from schemas.errors import ConfigError

FILES = {"train/1.jpg": b"one", "train/2.png": b"two", "b c.JPG": b"three"}


@pytest.fixture(params=["folder", "tar", "zip"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    folder = tmp_path / "images"
    for name, data in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    if request.param == "tar":
        with tarfile.open(tmp_path / "i.tar", "w") as archive:
            archive.add(folder, arcname=".")
        return str(tmp_path / "i.tar")
    if request.param == "zip":
        with zipfile.ZipFile(tmp_path / "i.zip", "w") as packed:
            for name, data in FILES.items():
                packed.writestr(name, data)
        return str(tmp_path / "i.zip")
    return str(folder)


@pytest.mark.parametrize(
    ("name", "data"),
    [("train/1.jpg", b"one"), ("./train/1.jpg", b"one"), ("train/2.jpg", b"two"), ("b c.jpeg", b"three")],
)
def test_a_name_gives_its_bytes_whatever_its_extension(root: str, name: str, data: bytes) -> None:
    assert image_files(root).read(name) == data
    assert image_files(root).size(name) == len(data)


@pytest.mark.parametrize("name", ["train/3.jpg", "train", "1.jpg", ""])
def test_what_is_not_there_is_an_error_of_its_own(root: str, name: str) -> None:
    with pytest.raises((FileNotFoundError, IsADirectoryError)):
        image_files(root).read(name)


def test_archives_that_cannot_be_read_in_place_say_so(tmp_path: Path) -> None:
    (tmp_path / "i.tar.gz").write_bytes(b"")
    (tmp_path / "i.tar").write_bytes(b"no archive" * 100)
    for name, words in (("i.tar.gz", "unpack it"), ("i.tar", "expected a folder, a tar or a zip")):
        with pytest.raises(ConfigError, match=words):
            image_files(str(tmp_path / name))
