"""A file by its name below a folder, a tar or a zip: pictures that records name.

An archive is indexed once per process and stays open. What a name leads to is never outside its root.
"""

import contextlib
import io
import os
import posixpath
import re
import tarfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import PurePosixPath

from pipelines.files import ABSENT, DAMAGE, INSIDE, MAX_FILE_BYTES, is_archive, is_cached, is_zip, open_uri, tar_members
from schemas.failures import Reason, Rejection, is_about_machine
from schemas.messages import ConfigError

# Data sets name an image `123.jpg` that is there as `123.png`: tried in this order after the name as written.
EXTENSIONS = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".JPG", ".JPEG", ".PNG")
_PICTURES = frozenset(map(str.lower, EXTENSIONS)) | {".jpe", ".jfif", ".tif", ".tiff", ".bmp", ".avif"}
_NOT_IN_NAMES = re.compile("[\0\ud800-\udfff]")


class FileRejected(Rejection):
    """A name that leads to no file that can be read."""


def is_picture(name: str) -> bool:
    """Return whether a file is a picture, by its name."""
    return PurePosixPath(name.lower()).suffix in _PICTURES


def read_named(root: str, name: str, *, max_bytes: int, extensions: Sequence[str] = EXTENSIONS) -> bytes:
    """Return a file's bytes by its name below a root, or by the name with another extension.

    Args:
        root: the path of a folder, or the path or URI of a tar or a zip, perhaps `ARCHIVE!/FOLDER`.
        name: relative to the root, or, for a folder on this machine, absolute; it may lead to nothing outside it. It
            may be `ARCHIVE!/MEMBER`, in an archive a zip, such as a book.
        max_bytes: a larger file is refused.
        extensions: those to try after the name as written.

    Raises:
        FileRejected: NOT_FOUND, FORBIDDEN (outside the root, or no right to read), TOO_LARGE, or CORRUPT_IMAGE: a
            member of an archive that is damaged, encrypted, or packed by an unknown method.
        ConfigError: the root is an archive that cannot be read by name.
    """
    try:
        container, is_inside, member = name.partition(INSIDE)
        if is_inside and is_archive(root):
            book = _inner_zip(root, container, None if "://" in root else os.stat(root).st_mtime_ns)  # noqa: PTH116
            data = _zipped_bytes(book, book.getinfo(_inside(member)), max_bytes + 1)
        else:
            root, name = (path_below(root, container), member) if is_inside else (root, name)
            data = _named_bytes(root, name, max_bytes + 1, extensions)
    except (*ABSENT, KeyError) as problem:
        raise _absent(name) from problem
    except ConfigError as problem:
        if not is_inside:
            raise
        raise FileRejected(Reason.CORRUPT_IMAGE, str(problem)) from problem
    except DAMAGE as problem:
        if is_about_machine(problem):
            raise
        reason = Reason.FORBIDDEN if isinstance(problem, PermissionError) else Reason.CORRUPT_IMAGE
        raise FileRejected(reason, f"{name}: cannot be read: {problem}") from problem
    if len(data) > max_bytes:
        raise FileRejected(Reason.TOO_LARGE, f"{name}: expected at most {max_bytes} bytes, found more")
    return data


def _named_bytes(root: str, name: str, limit: int, extensions: Sequence[str]) -> bytes:
    if _NOT_IN_NAMES.search(name):
        raise FileRejected(Reason.NOT_FOUND, f"{name!r}: expected the name of a file")
    uri, _, prefix = root.partition(INSIDE)
    if "://" not in uri and not os.path.isfile(uri):  # noqa: PTH113 - a tenth of pathlib's time, at every image
        with open(path_below(root, name, extensions), "rb") as stream:  # noqa: PTH123
            return stream.read(limit)
    if "://" in uri and not is_archive(uri):
        with open_uri(path_below(uri, name)) as stream:
            return stream.read(limit)
    relative = _inside(name)
    archive = _index(uri, None if "://" in uri else os.stat(uri).st_mtime_ns)  # noqa: PTH116
    names = _spellings(posixpath.normpath(posixpath.join(prefix, relative)), extensions)
    read = next((archive[spelling] for spelling in names if spelling in archive), None)
    if read is None:
        raise _absent(name)
    return read(limit)


def _spellings(name: str, extensions: Sequence[str]) -> list[str]:
    """Return a name as written, then with each other extension."""
    stem = name.removesuffix(PurePosixPath(name).suffix)
    return [name, *(stem + extension for extension in extensions if stem + extension != name)]


def _absent(name: str) -> FileRejected:
    hint = "; \\: write / between folders" if "\\" in name else ""
    return FileRejected(Reason.NOT_FOUND, f"{name}: no such file{hint}")


def _outside(name: str) -> FileRejected:
    """Return why a name is refused; without the folder, since a version's name depends on its messages."""
    hint = "set source.images=FOLDER that has all pictures"
    return FileRejected(Reason.FORBIDDEN, f"outside source.images: {name}; {hint}")


def _inside(name: str) -> str:
    """Return a relative path without `.` and `..`."""
    relative = posixpath.normpath(name)
    if relative.startswith(("/", "../")) or relative == "..":
        raise _outside(name)
    return relative


def path_below(root: str, name: str, extensions: Sequence[str] = ()) -> str:
    """Return the path, or the URI, of the regular file that a name leads to below a folder, or in a cache's `blobs`.

    Raises:
        FileRejected: NOT_FOUND, or FORBIDDEN: it is outside the folder.
    """
    if "://" in root:
        return f"{root.rstrip('/')}/{_inside(name)}"
    base = os.path.realpath(root)
    for spelling in _spellings(name, extensions):
        named = os.path.join(base, spelling)  # noqa: PTH118
        path = os.path.realpath(named)
        if not path.startswith(os.path.join(base, "")) and not is_cached(named):  # noqa: PTH118
            raise _outside(name)
        if os.path.isfile(path):  # noqa: PTH113
            return named  # a link's target may lack the ending that tells what it is
    raise _absent(name)


@lru_cache(maxsize=8)
def _index(uri: str, changed: int | None) -> Mapping[str, Callable[[int], bytes]]:
    """Return what reads each file of a plain tar or a zip, given a limit; made once until it changes."""
    try:
        with open_uri(uri) as stream:
            if is_zip(stream):
                zipped = zipfile.ZipFile(open_uri(uri) if "://" in uri else uri)  # stays open
                entries = (entry for entry in zipped.infolist() if not entry.is_dir())
                return {entry.filename.removeprefix("./"): partial(_zipped_bytes, zipped, entry) for entry in entries}
            found: dict[str, Callable[[int], bytes]] = {}
            tar = tarfile.open(fileobj=stream, mode="r:", errors="replace")  # noqa: SIM115 - it closes nothing
            with contextlib.suppress(tarfile.TarError):  # it is damaged: what comes before that is good
                for member in tar_members(tar):
                    if not member.issparse():
                        read = partial(read_span, uri, member.offset_data, member.size)
                        found[member.name.removeprefix("./")] = read
            return found
    except (tarfile.TarError, zipfile.BadZipFile) as problem:
        raise ConfigError(f"{uri}: expected a folder, a zip, or a tar that is not compressed: {problem}") from problem


@lru_cache(maxsize=1)
def _inner_zip(root: str, name: str, _changed: int | None) -> zipfile.ZipFile:
    """Return a zip that is in an archive; the last one stays in memory."""
    return zipfile.ZipFile(io.BytesIO(read_named(root, name, max_bytes=MAX_FILE_BYTES, extensions=())))


def _zipped_bytes(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, limit: int) -> bytes:
    with archive.open(entry) as stream:
        return stream.read(limit)


def read_span(uri: str, offset: int, size: int, limit: int) -> bytes:
    """Return at most so many bytes of those that stand at a place of a file.

    Raises:
        FileRejected: TRUNCATED: the file ends before them.
    """
    with open_uri(uri) as stream:
        stream.seek(offset)
        data = stream.read(min(size, limit))
    if len(data) < min(size, limit):
        raise FileRejected(Reason.TRUNCATED, f"{PurePosixPath(uri).name}: expected {size} bytes at byte {offset}")
    return data
