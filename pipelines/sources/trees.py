"""The files of a published collection, whether it was unpacked or not: of a folder, a tar (packed or not) or a zip.

One file is in memory at a time; a tar is read from front to back, once, so it may be as large as it likes.
"""

from __future__ import annotations

import lzma
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

MAX_FILE_BYTES = 64 * 2**20
_DAMAGE = (EOFError, OSError, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile, zlib.error)


class BrokenTreeError(ValueError):
    """An archive ends early, or is not what its name says."""


def read_tree(root: Path, *, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Yield the path, relative to the root and with slashes, and the bytes of each wanted file.

    A folder's and a zip's files come in the order of their paths, a tar's in its own. Links are not followed, and
    files above `MAX_FILE_BYTES` come cut off there: no article is that long.

    Raises:
        BrokenTreeError: the rest of an archive cannot be read; files yielded before stay good.
        FileNotFoundError: there is no such folder or archive.
    """
    files = _folder_files if root.is_dir() else _zip_files if zipfile.is_zipfile(root) else _tar_files
    try:
        yield from files(root, wanted)
    except (FileNotFoundError, PermissionError):  # the caller's mistake, not the archive's
        raise
    except _DAMAGE as error:
        raise BrokenTreeError(f"{root.name}: cannot be read on: {error}") from error


def _folder_files(root: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    for folder, subfolders, names in os.walk(root):
        subfolders.sort()
        for name in sorted(names):
            path = Path(folder) / name
            relative = path.relative_to(root).as_posix()
            if wanted(relative) and path.is_file() and not path.is_symlink():
                with path.open("rb") as stream:
                    yield relative, stream.read(MAX_FILE_BYTES)


def _tar_files(root: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(root, "r|*") as archive:
        for member in archive:
            relative = member.name.removeprefix("./")
            content = archive.extractfile(member) if member.isfile() and wanted(relative) else None
            if content is not None:
                yield relative, content.read(MAX_FILE_BYTES)
            archive.members = []  # type: ignore[attr-defined]  # else it remembers every member it has passed


def _zip_files(root: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(root) as archive:
        for name in sorted(archive.namelist()):
            if wanted(name) and not name.endswith("/"):
                with archive.open(name) as stream:
                    yield name, stream.read(MAX_FILE_BYTES)
