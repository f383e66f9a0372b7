"""Lines of a text file that may be compressed, damaged, cut short, or not quite UTF-8.

For JSON Lines of any size: nothing but one piece and one line is in memory. A file that ends early gives the lines
before its end and then raises `BrokenStreamError`.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import zstandard

MAX_LINE_BYTES = 64 * 2**20  # a line this long is no record: the file has lost its line breaks
_PIECE_BYTES = 2**20
_PACKED_BYTES = 2**16
_ZSTD_WINDOW = 2**31  # what the published dumps are compressed with
_READ_ERRORS = (EOFError, OSError, lzma.LZMAError, zlib.error, zstandard.ZstdError)


class BrokenStreamError(ValueError):
    """A file ends in the middle of its compression, or is not what its name says."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the number (from 1) and bytes of each line that is not blank, without its line break.

    Raises:
        BrokenStreamError: the rest of the file cannot be read; lines yielded before stay good.
        FileNotFoundError: there is no such file.
    """
    number = 0
    rest = b""
    pieces = _pieces(path)
    while True:
        try:
            piece = next(pieces, None)
        except (FileNotFoundError, IsADirectoryError, PermissionError):  # the caller's mistake, not the file's
            raise
        except _READ_ERRORS as error:
            raise BrokenStreamError(f"{path.name}: cannot be read on: {error}", number + 1) from error
        *lines, rest = (rest + piece).split(b"\n") if piece is not None else (rest, b"")
        for line in lines:
            number += 1
            if line.strip():
                yield number, line.rstrip(b"\r")
        if piece is None:
            return
        if len(rest) > MAX_LINE_BYTES:
            raise BrokenStreamError(f"{path.name}: a line of more than {MAX_LINE_BYTES} bytes", number + 1)


def _pieces(path: Path) -> Iterator[bytes]:
    """Yield a file's bytes, decompressed by what its name ends with."""
    suffix = path.suffix.lower()
    if suffix == ".zst":
        yield from _zstandard_pieces(path)
        return
    with _OPENERS.get(suffix, _open_plain)(path) as stream:
        while piece := stream.read1(_PIECE_BYTES):  # unlike read, it keeps what came before an error
            yield piece


def _open_plain(path: Path) -> io.BufferedIOBase:
    return path.open("rb")


_OPENERS: Mapping[str, Callable[[Path], io.BufferedIOBase]] = {
    ".bz2": bz2.open,
    ".gz": gzip.open,
    ".xz": lzma.open,
}


def _zstandard_pieces(path: Path) -> Iterator[bytes]:
    """Yield the content of every frame; zstandard's own reader does not tell an end from a cut."""
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
    frame = None
    with path.open("rb") as packed:
        while piece := packed.read(_PACKED_BYTES):
            while piece:
                frame = frame or decompressor.decompressobj()
                yield frame.decompress(piece)
                piece, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
    if frame is not None:
        raise EOFError("the compressed stream ends early")
