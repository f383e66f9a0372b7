"""The one opener: a source's file, and the files of a published collection; `named_files` finds one by its name.

    dumps/RS_2018-01.zst                                        a file
    00012.tar!/000120007.jpg                                    a picture in an archive, below the root of pictures
    vist/dii.tar.gz!/dii/train.description-in-isolation.json    a file in an archive
    s3://bucket/RS_2018-01.zst, file:///data/train.json.xz      on an object store (`schemas.stores`)

`InputFile.open` and `read_lines` stream from front to back: nothing is unpacked to disk, and about a megabyte is in
memory. `read_tree` holds one file at a time; a tar is read once, in its own order. A file that is damaged or ends early
gives what comes before that, then `BrokenInputError`.
"""

import bz2
import contextlib
import gzip
import io
import lzma
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from backports import zstd

from schemas.failures import Failure, Reason, Stage, is_about_machine
from schemas.lake import Folder, folder_of
from schemas.messages import NotFoundError

INSIDE = "!/"  # between an archive and the name of a file in it, as in the URLs of Java archives
MAX_LINE_BYTES = 64 * 2**20  # a longer line is no record
MAX_FILE_BYTES = 64 * 2**20  # of a file of a collection: no article is longer
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")  # what may follow a published name
ARCHIVES = (".zip", ".tar", ".tgz", ".tbz2", ".txz", *(f".tar{suffix}" for suffix in COMPRESSED))
_ZIP_STARTS = (b"PK\x03\x04", b"PK\x05\x06")  # the second of one without files
_BUFFER_BYTES = 2**20
_PIECE_BYTES = 2**18
_REQUEST_BYTES = 2**22  # of a file on an object store: a read is a request
_OF_DUMPS = {zstd.DecompressionParameter.window_log_max: 31}  # what the published ones are compressed with
ABSENT = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
DAMAGE = (
    EOFError, OSError, RuntimeError, ValueError, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile, zlib.error,
    zstd.ZstdError,
)  # fmt: skip


class BrokenInputError(Exception):
    """The rest of a file or an archive cannot be read; what was read before stays good.

    Attributes:
        record_id: what a failure is filed under: the file's name, perhaps with a line.
    """

    def __init__(self, message: str, record_id: str) -> None:
        super().__init__(message)
        self.record_id = record_id

    def failure(self) -> Failure:
        """Return the failure row of what was not read."""
        exception = type(self.__cause__ or self).__name__
        return Failure(Stage.SOURCES, self.record_id, Reason.BROKEN_RECORD, str(self), exception)


@dataclass(frozen=True, slots=True)
class InputFile:
    """One file, wherever it is.

    Attributes:
        uri: path of the file, or of the archive it is in; or its URI.
        member: its path in the archive; empty: it is in none.
    """

    uri: str
    member: str = ""

    @property
    def name(self) -> str:
        """Return its name, without folders."""
        return PurePosixPath(self.member or self.uri).name

    def __str__(self) -> str:
        return f"{self.uri}{INSIDE}{self.member}" if self.member else self.uri

    @contextlib.contextmanager
    def open(self) -> Iterator[io.BufferedReader]:
        """Open the file for reading from front to back, decompressed.

        Raises:
            BrokenInputError: also while it is read: the rest cannot be read.
            NotFoundError: there is no such file.
        """
        with file_errors(str(self)), open_uri(self.uri) as stream:
            if not self.member:
                yield _decompressed(stream, self.name)
                return
            for name, open_member in _members(stream, self.uri):
                if name == self.member.removeprefix("./"):
                    with open_member() as inner:
                        yield _decompressed(inner, self.name)
                    return
        raise NotFoundError(f"{self}: no such file in the archive")


def is_pattern(address: str) -> bool:
    """Return whether an address is a pattern of paths of this machine, such as `own/*.md`, and no file's name."""
    return bool({*"*?["} & {*address}) and "://" not in address and INSIDE not in address and not Path(address).exists()


def input_file(address: str | Path) -> InputFile:
    """Return the file of a path, a URI, or `ARCHIVE!/MEMBER`."""
    uri, _, member = str(address).partition(INSIDE)
    return InputFile(uri, member)


def open_uri(uri: str) -> BinaryIO:
    """Return the file of a path or a URI, as it is stored, opened for random reading."""
    if "://" not in uri:
        return Path(uri).open("rb")
    folder, name = folder_of(uri)
    return cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, folder.open(name)), _REQUEST_BYTES))


def is_archive(name: str) -> bool:
    """Return whether a file is a tar or a zip, by its name."""
    return name.lower().endswith(ARCHIVES)


def is_zip(stream: BinaryIO) -> bool:
    """Return whether a file is a zip, by its first bytes: a tar whose last file is a zip ends as one."""
    start = stream.read(len(_ZIP_STARTS[0]))
    stream.seek(0)
    return start in _ZIP_STARTS


def read_lines(address: str | Path) -> Iterator[tuple[int, bytes]]:
    """Yield the number (from 1) and bytes of each line that is not blank, without its line break.

    Of a line of more than MAX_LINE_BYTES one byte more than these comes.

    Raises:
        BrokenInputError: the rest of the file cannot be read; it is filed under `<file name>:<line>`.
        NotFoundError: there is no such file.
    """
    file = input_file(address)
    number = 0
    try:
        with file.open() as stream:
            for number, line in enumerate(iter(partial(stream.readline, MAX_LINE_BYTES + 1), b""), start=1):
                rest = line if len(line) > MAX_LINE_BYTES else b""
                while rest and not rest.endswith(b"\n"):
                    rest = stream.readline(_BUFFER_BYTES)
                if line.strip():
                    yield number, line.rstrip(b"\r\n")
    except BrokenInputError as problem:
        raise BrokenInputError(str(problem), f"{file.name}:{number + 1}") from problem.__cause__


def file_names(root: str) -> Iterator[str]:
    """Return the path of every file of a folder or an archive, relative to it; see `read_tree`."""
    return (name for name, _ in tree_files(root))


def read_tree(root: str, *, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes | BrokenInputError]]:
    """Yield the path, relative to the root and with slashes, and the bytes of each wanted file, or why it has none.

    A folder's and a zip's files come in the order of their paths, a tar's in its own. Links are not followed, and
    files above `MAX_FILE_BYTES` come cut off there.

    Raises:
        BrokenInputError: the rest of an archive cannot be read; files yielded before stay good.
        NotFoundError: there is no such folder or archive.
    """
    for name, open_file in tree_files(root):
        if wanted(name):
            try:
                with file_errors(name), open_file() as stream:
                    yield name, stream.read(MAX_FILE_BYTES)
            except BrokenInputError as problem:
                yield name, problem


@contextlib.contextmanager
def file_errors(address: str) -> Iterator[None]:
    """Turn what reading a file that is damaged or not there raises into the project's errors."""
    name = PurePosixPath(address).name
    try:
        yield
    except (*ABSENT, PermissionError) as error:
        raise NotFoundError(f"{address}: {error.strerror}") from error
    except DAMAGE as error:
        if is_about_machine(error):
            raise
        raise BrokenInputError(f"{name}: cannot be read on: {error}", name) from error


def is_cached(path: str) -> bool:
    """Return whether a path of this machine is a link to a file of the same repository in Hugging Face's cache.

    ::

        datasets--OWNER--NAME/snapshots/REVISION/data/train.parquet -> ../../../blobs/DIGEST
    """
    repository, is_inside, _ = os.path.abspath(path).partition("/snapshots/")  # noqa: PTH100
    return bool(is_inside) and os.path.realpath(path).startswith(f"{os.path.realpath(repository)}/blobs/")


def tree_files(root: str) -> Iterator[tuple[str, Callable[[], BinaryIO]]]:
    """Yield the path of each file of a folder or an archive, relative to it, and what opens it now.

    Links go unseen, but those of a cache (`is_cached`).

    Raises:
        BrokenInputError: the rest of an archive cannot be read.
        NotFoundError: there is no such folder or archive.
    """
    if "://" in root and not is_archive(root):
        yield from ((name, partial(open_uri, f"{root.rstrip('/')}/{name}")) for name in Folder(root).files())
        return
    if not Path(root).is_dir():
        with file_errors(root), open_uri(root) as stream:
            yield from _members(stream, root)
        return
    for folder, subfolders, names in os.walk(root):
        subfolders.sort()
        for path in (Path(folder) / name for name in sorted(names)):
            if path.is_file() and (not path.is_symlink() or is_cached(str(path))):
                yield path.relative_to(root).as_posix(), partial(open_uri, str(path))


def _members(stream: BinaryIO, uri: str) -> Iterator[tuple[str, Callable[[], BinaryIO]]]:
    """Yield the name of each file of an archive, without a leading `./`, and what opens it now.

    Those of a zip are sorted by name; a tar, which may be compressed, is read from front to back. Links go unseen.
    """
    if is_zip(stream):
        with zipfile.ZipFile(stream) as zipped:
            for entry in sorted(zipped.infolist(), key=attrgetter("filename")):
                if not entry.is_dir():
                    yield entry.filename.removeprefix("./"), cast(Callable[[], BinaryIO], partial(zipped.open, entry))
        return
    plain = _decompressed(stream, uri)
    with tarfile.open(fileobj=plain, mode="r:" if plain is stream else "r|", errors="replace") as archive:
        for member in tar_members(archive):
            yield member.name.removeprefix("./"), cast(Callable[[], BinaryIO], partial(archive.extractfile, member))


def tar_members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the files of a tar; one without the block of zeros at its end was cut off between two members."""
    for member in archive:
        if member.isfile():
            yield member
        archive.members = []  # type: ignore[attr-defined]  # else it remembers every member it has passed
    if archive.fileobj is not None and archive.fileobj.tell() <= archive.offset:
        raise tarfile.ReadError("the archive is cut off: its end marker is missing")


# How the name of a compressed file ends, how the file begins, and what opens it.
_COMPRESSIONS: tuple[tuple[tuple[str, ...], bytes, Callable[[BinaryIO], io.BufferedIOBase]], ...] = (
    ((".gz", ".tgz"), b"\x1f\x8b\x08", gzip.open),
    ((".bz2", ".tbz2"), b"BZh", bz2.open),
    ((".xz", ".txz"), b"\xfd7zXZ\x00", lzma.open),
    ((".zst",), b"\x28\xb5\x2f\xfd", partial(zstd.open, options=_OF_DUMPS)),
)


def _decompressed(stream: BinaryIO, name: str) -> io.BufferedReader:
    """Return a stream of a file's content; how it is compressed is told by its first bytes, or else by its name."""
    packed = cast(io.BufferedReader, stream)
    start = packed.peek(8)
    known = [opener for _, magic, opener in _COMPRESSIONS if start.startswith(magic)]
    known += [opener for suffixes, _, opener in _COMPRESSIONS if name.lower().endswith(suffixes)]
    if not known and isinstance(stream, io.BufferedReader):
        return stream
    plain = known[0](stream) if known else packed
    return io.BufferedReader(_Pieces(iter(partial(plain.read1, _PIECE_BYTES), b"")), _BUFFER_BYTES)


class _Pieces(io.RawIOBase):
    """Pieces of bytes, none of them empty, as a stream; what comes before an error is kept."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        self._rest = self._rest or memoryview(next(self._pieces, b""))
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
