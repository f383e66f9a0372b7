"""Image files of a data set as they are handed around: a folder, a tar or a zip, names with whatever extension.

Archives are read in place: a tar's members are found once per process, each is then one seek. A compressed tar cannot
be read so; it has to be unpacked first, and says so.
"""

from __future__ import annotations

import errno
import os
import tarfile
import zipfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Protocol

from schemas.errors import ConfigError

# Data sets name an image `123.jpg` that lies there as `123.png`: tried in this order after the name as written.
EXTENSIONS = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".JPG", ".JPEG", ".PNG")
_COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")


class ImageFiles(Protocol):
    """Files by name, wherever they lie."""

    def size(self, name: str) -> int:
        """Return a file's size in bytes.

        Raises:
            FileNotFoundError: there is no such file, with any of the known extensions.
        """
        ...

    def read(self, name: str) -> bytes:
        """Return a file's bytes; see `size`."""
        ...


@lru_cache(maxsize=8)
def image_files(root: str) -> ImageFiles:
    """Return the files under a root: a folder, a `.tar` or a `.zip`; this process opens each root once.

    Raises:
        ConfigError: the root is a compressed tar, or no archive that can be read.
    """
    path = Path(root)
    if path.is_dir() or not path.exists():
        return FolderFiles(path)
    if root.endswith(_COMPRESSED):
        raise ConfigError(f"{root}: a compressed tar cannot be read in place; unpack it, or make it a plain tar")
    try:
        return ZipFiles(path) if zipfile.is_zipfile(path) else TarFiles(path)
    except (tarfile.TarError, zipfile.BadZipFile) as problem:
        raise ConfigError(f"{root}: expected a folder, a tar or a zip of images: {problem}") from problem


@dataclass(frozen=True, slots=True)
class FolderFiles:
    """Files of a folder."""

    root: Path

    def size(self, name: str) -> int:
        return self._path(name).stat().st_size

    def read(self, name: str) -> bytes:
        return self._path(name).read_bytes()

    def _path(self, name: str) -> Path:
        for candidate in spellings(name):
            if (self.root / candidate).is_file():
                return self.root / candidate
        return self.root / name  # opening it says what is wrong


class TarFiles:
    """Members of an uncompressed tar, by name."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._places: dict[str, tuple[int, int]] = {}
        with tarfile.open(path, "r:") as archive:
            for member in archive:
                if member.isfile():
                    self._places[_plain(member.name)] = (member.offset_data, member.size)

    def size(self, name: str) -> int:
        return self._place(name)[1]

    def read(self, name: str) -> bytes:
        offset, size = self._place(name)
        with self._path.open("rb") as stream:
            stream.seek(offset)
            return stream.read(size)

    def _place(self, name: str) -> tuple[int, int]:
        for candidate in spellings(_plain(name)):
            if candidate in self._places:
                return self._places[candidate]
        raise _missing(name, self._path)


class ZipFiles:
    """Members of a zip."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with zipfile.ZipFile(path) as archive:
            self._members = {_plain(info.filename): info for info in archive.infolist() if not info.is_dir()}

    def size(self, name: str) -> int:
        return self._member(name).file_size

    def read(self, name: str) -> bytes:
        with zipfile.ZipFile(self._path) as archive:
            return archive.read(self._member(name))

    def _member(self, name: str) -> zipfile.ZipInfo:
        for candidate in spellings(_plain(name)):
            if candidate in self._members:
                return self._members[candidate]
        raise _missing(name, self._path)


def spellings(name: str) -> list[str]:
    """Return a name as written, then with each other extension images are known to have."""
    stem = name[: -len(PurePosixPath(name).suffix)] if PurePosixPath(name).suffix else name
    return [name, *(stem + extension for extension in EXTENSIONS if stem + extension != name)]


def _plain(name: str) -> str:
    return name.removeprefix("./")


def _missing(name: str, archive: Path) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{archive.name}:{name}")
