"""The files of a published collection, whether it was unpacked or not: of a folder, a tar (packed or not) or a zip.

One file is in memory at a time; a tar is read from front to back, once, so it may be as large as it likes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from pipelines.sources.openings import InputFile, open_archive, open_uri

MAX_FILE_BYTES = 64 * 2**20


def read_tree(root: str, *, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Yield the path, relative to the root and with slashes, and the bytes of each wanted file.

    A folder's and a zip's files come in the order of their paths, a tar's in its own. Links are not followed, and
    files above `MAX_FILE_BYTES` come cut off there: no article is that long.

    Raises:
        BrokenInputError: the rest of an archive cannot be read; files yielded before stay good.
        FileNotFoundError: there is no such folder or archive.
    """
    if Path(root).is_dir():
        yield from _folder_files(Path(root), wanted)
        return
    with InputFile(root).reading():
        yield from _archive_files(root, wanted)


def file_names(root: str) -> Iterator[str]:
    """Yield the path of every file of a folder or an archive, relative to it; see `read_tree`."""
    if Path(root).is_dir():
        yield from _folder_names(Path(root))
        return
    with InputFile(root).reading(), open_uri(root) as stream, open_archive(stream, root) as archive:
        for name, _ in archive.files():
            yield name


def _folder_files(root: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    for relative in _folder_names(root):
        if wanted(relative):
            with (root / relative).open("rb") as stream:
                yield relative, stream.read(MAX_FILE_BYTES)


def _folder_names(root: Path) -> Iterator[str]:
    for folder, subfolders, names in os.walk(root):
        subfolders.sort()
        for name in sorted(names):
            path = Path(folder) / name
            if path.is_file() and not path.is_symlink():
                yield path.relative_to(root).as_posix()


def _archive_files(root: str, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    with open_uri(root) as stream, open_archive(stream, root) as archive:
        for name, entry in archive.files():
            if wanted(name):
                with archive.open_entry(entry) as content:
                    yield name, content.read(MAX_FILE_BYTES)
