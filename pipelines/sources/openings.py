"""Files of a source as they are handed around, opened as streams: plain or compressed, on their own or in an archive.

    dumps/RS_2018-01.zst                                        a file
    vist/dii.tar.gz!/dii/train.description-in-isolation.json    a file in an archive
    s3://bucket/RS_2018-01.zst, file:///data/train.json.xz      whatever pyarrow.fs opens

Every reader gets its bytes here, in pieces: nothing is unpacked to disk, and no more than a piece is in memory. What is
in a folder or behind a URL is found in `inputs.py`, before anything is read.
"""

from __future__ import annotations

import bz2
import contextlib
import errno
import gzip
import io
import lzma
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

import zstandard

from schemas.failures import Failure, Reason, Stage
from schemas.lake import Folder

INSIDE = "!/"  # between an archive and the name of a file in it, as in the URLs of Java archives
PIECE_BYTES = 2**20
_PACKED_BYTES = 2**16
_FIRST_STEP_BYTES = 256  # a block of 4 bytes may become 128 KiB
_ZSTD_WINDOW = 2**31  # what the published dumps are compressed with
_MISTAKES = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)  # the caller's, not the file's
_DAMAGE = (EOFError, OSError, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile, zlib.error, zstandard.ZstdError)


class BrokenInputError(ValueError):
    """The rest of a file or an archive cannot be read; what was read before stays good.

    Attributes:
        place: what a failure is filed under: the file's name, perhaps with a line.
    """

    def __init__(self, message: str, place: str) -> None:
        super().__init__(message)
        self.place = place

    def failure(self, *, after: str = "") -> Failure:
        """Return the failure row of the rest that was not read, perhaps saying after what."""
        message = f"after {after}: {self}" if after else str(self)
        return Failure(Stage.SOURCES, self.place, Reason.BROKEN_RECORD, message, type(self.__cause__ or self).__name__)


class Compression(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    BZIP2 = "bzip2"
    XZ = "xz"
    ZSTANDARD = "zstandard"


# How a compressed file begins, and how its name ends.
_MAGIC = (
    (b"\x1f\x8b\x08", Compression.GZIP),
    (b"BZh", Compression.BZIP2),
    (b"\xfd7zXZ\x00", Compression.XZ),
    (b"\x28\xb5\x2f\xfd", Compression.ZSTANDARD),
)
_SUFFIXES = {
    ".gz": Compression.GZIP,
    ".tgz": Compression.GZIP,
    ".bz2": Compression.BZIP2,
    ".tbz2": Compression.BZIP2,
    ".xz": Compression.XZ,
    ".txz": Compression.XZ,
    ".zst": Compression.ZSTANDARD,
}
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")  # what may follow a published name
ARCHIVES = (".zip", ".tar", ".tgz", ".tbz2", ".txz", *(f".tar{suffix}" for suffix in COMPRESSED))


@dataclass(frozen=True, slots=True)
class InputFile:
    """One file, wherever it lies.

    Attributes:
        uri: path of the file, or of the archive it is in; or a URI that pyarrow.fs opens.
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

    def pieces(self, piece_bytes: int = PIECE_BYTES) -> Iterator[bytes]:
        """Yield the file's bytes, decompressed, never empty, at most about so many at once.

        Raises:
            BrokenInputError: the rest cannot be read.
            FileNotFoundError: there is no such file.
        """
        with self.reading(), self.open() as stream:
            yield from _unpacked(stream, self.name, piece_bytes)

    @contextlib.contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Open the file as it is stored, in an archive's case without the archive.

        Raises:
            FileNotFoundError: there is no such file.
        """
        with open_uri(self.uri) as stream:
            if not self.member:
                yield stream
                return
            with open_archive(stream, self.uri) as archive, archive.open(self.member) as inner:
                yield inner

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Turn what reading a damaged file raises into BrokenInputError."""
        try:
            yield
        except _MISTAKES:
            raise
        except _DAMAGE as error:
            raise BrokenInputError(f"{self.name}: cannot be read on: {error}", self.name) from error


Place = str | Path | InputFile


def input_file(place: Place) -> InputFile:
    """Return the file of a path, a URI, or `ARCHIVE!/MEMBER`."""
    if isinstance(place, InputFile):
        return place
    uri, _, member = str(place).partition(INSIDE)
    return InputFile(uri, member)


@contextlib.contextmanager
def open_uri(uri: str) -> Iterator[BinaryIO]:
    """Open a path or a URI for random reading."""
    if "://" not in uri:
        with Path(uri).open("rb") as stream:
            yield stream
        return
    folder, _, name = uri.rpartition("/")
    with Folder(folder).open(name) as remote:
        yield cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, remote), _PACKED_BYTES))


class Archive:
    """The files of a tar or a zip, by name. A compressed tar can be read from front to back alone."""

    def __init__(self, archive: tarfile.TarFile | zipfile.ZipFile, uri: str) -> None:
        self._archive = archive
        self._uri = uri

    def files(self) -> Iterator[tuple[str, tarfile.TarInfo | zipfile.ZipInfo]]:
        """Yield the name of each file, without a leading `./`, and what `open_entry` takes; links are passed over.

        Those of a zip are sorted by name, those of a tar in its own order.
        """
        if isinstance(self._archive, zipfile.ZipFile):
            for entry in sorted(self._archive.infolist(), key=_name_in_zip):
                if not entry.is_dir():
                    yield _plain(entry.filename), entry
            return
        for member in self._archive:
            if member.isfile():
                yield _plain(member.name), member
            self._archive.members = []  # type: ignore[attr-defined]  # else it remembers every member it has passed

    def open_entry(self, entry: tarfile.TarInfo | zipfile.ZipInfo) -> BinaryIO:
        """Open a file that `files` has just yielded."""
        if isinstance(self._archive, zipfile.ZipFile):
            return cast(BinaryIO, self._archive.open(cast(zipfile.ZipInfo, entry)))
        return cast(BinaryIO, self._archive.extractfile(cast(tarfile.TarInfo, entry)))

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        """Open the first file of a name.

        Raises:
            FileNotFoundError: there is none.
        """
        for found, entry in self.files():
            if found == _plain(name):
                with self.open_entry(entry) as stream:
                    yield stream
                return
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{self._uri}{INSIDE}{name}")


@contextlib.contextmanager
def open_archive(stream: BinaryIO, uri: str) -> Iterator[Archive]:
    """Read an open file as a zip, or as a tar under whatever compression."""
    is_zip = zipfile.is_zipfile(stream)
    stream.seek(0)
    if is_zip:
        with zipfile.ZipFile(stream) as zipped:
            yield Archive(zipped, uri)
        return
    if _compression(stream, uri) is Compression.NONE:
        with tarfile.open(fileobj=stream, mode="r:") as tar:
            yield Archive(tar, uri)
        return
    unpacked = io.BufferedReader(_Pieces(_unpacked(stream, uri, _PACKED_BYTES)), _PACKED_BYTES)
    with tarfile.open(fileobj=unpacked, mode="r|") as tar:
        yield Archive(tar, uri)


def is_archive(name: str) -> bool:
    """Return whether a file is a tar or a zip, by its name."""
    return name.lower().endswith(ARCHIVES)


def _plain(name: str) -> str:
    return name.removeprefix("./")


def _name_in_zip(entry: zipfile.ZipInfo) -> str:
    return entry.filename


def _compression(stream: BinaryIO, name: str) -> Compression:
    """Return how a stream is compressed, by its first bytes, or else by its name."""
    start = cast(io.BufferedReader, stream).peek(8)[:8]
    found = next((kind for magic, kind in _MAGIC if start.startswith(magic)), None)
    return found or _SUFFIXES.get(PurePosixPath(name.lower()).suffix, Compression.NONE)


def _unpacked(stream: BinaryIO, name: str, piece_bytes: int) -> Iterator[bytes]:
    compression = _compression(stream, name)
    if compression is Compression.ZSTANDARD:
        yield from _zstandard_pieces(stream)
        return
    plain = _OPENERS[compression](stream) if compression in _OPENERS else cast(io.BufferedIOBase, stream)
    while piece := plain.read1(piece_bytes):  # unlike read, it keeps what came before an error
        yield piece


_OPENERS: Mapping[Compression, Callable[[BinaryIO], io.BufferedIOBase]] = {
    Compression.GZIP: gzip.open,
    Compression.BZIP2: bz2.open,
    Compression.XZ: lzma.open,
}


def _zstandard_pieces(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the content of every frame; zstandard's own reader does not tell an end from a cut.

    Its decompressor takes no bound on what it gives: it is fed the less, the more comes of it.
    """
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
    frame = None
    step = _FIRST_STEP_BYTES
    while packed := stream.read(_PACKED_BYTES):
        at = 0
        while at < len(packed):
            frame = frame or decompressor.decompressobj()
            piece = frame.decompress(packed[at : at + step])
            at = min(at + step, len(packed))
            if frame.eof:
                at, frame = at - len(frame.unused_data), None
            step = max(step // 2, 1) if len(piece) > PIECE_BYTES else min(step * 2, _PACKED_BYTES)
            if piece:
                yield piece
    if frame is not None:
        raise EOFError("the compressed stream ends early")


class _Pieces(io.RawIOBase):
    """Pieces of bytes as a stream, for what wants one."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        if not self._rest:
            self._rest = memoryview(next(self._pieces, b""))
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
