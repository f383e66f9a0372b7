"""The members of one large JSON object, or the items of one large JSON list, one at a time (ijson parses).

For files of any size: nothing but one member is in memory. Bytes that are not UTF-8 become U+FFFD. A file that ends
early, or stops being JSON, gives what comes before that place and then raises `BrokenStreamError`. Objects of lists are
read by `json_lists.py`.
"""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import ijson  # type: ignore[import-untyped]

T = TypeVar("T")
_PIECE_BYTES = 2**16


class BrokenStreamError(ValueError):
    """The rest of a file cannot be read; what was yielded before stays good."""


def read_members(path: Path) -> Iterator[tuple[str, object]]:
    """Yield the name and the value of each member of the object that a file holds, in file order.

    Raises:
        BrokenStreamError: see there; a file that holds no object has none of its members.
        FileNotFoundError: there is no such file.
    """
    yield from _read(path, "{", lambda stream: ijson.kvitems(stream, ""))


def read_items(path: Path) -> Iterator[object]:
    """Yield each item of the list that a file holds, in file order.

    Raises:
        BrokenStreamError: see there; a file that holds no list has none of its items.
        FileNotFoundError: there is no such file.
    """
    yield from _read(path, "[", lambda stream: ijson.items(stream, "item"))


def _read(path: Path, opening: str, parse: Callable[[IO[bytes]], Iterator[T]]) -> Iterator[T]:
    with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as source:
        stream = _Utf8(cast(IO[bytes], source))
        try:
            found = stream.first_character()
            if found != opening:
                raise BrokenStreamError(f"{path.name}: expected {opening!r}, found {found or 'the end of the file'!r}")
            yield from parse(cast(IO[bytes], stream))
        except ijson.JSONError as error:
            message = " ".join(str(error).split("\n")[0].split())
            raise BrokenStreamError(f"{path.name}: no JSON from here on: {message}") from error
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise BrokenStreamError(f"{path.name}: cannot be read on: {error}") from error


class _Utf8:
    """A stream of bytes made valid UTF-8, without a byte order mark."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
        self._peeked = b""

    def read(self, size: int = _PIECE_BYTES) -> bytes:
        """Return the next bytes, about as many as asked for; none at the end alone."""
        if size == 0:  # ijson asks for nothing to see whether it gets bytes
            return b""
        if self._peeked:
            peeked, self._peeked = self._peeked, b""
            return peeked
        while piece := self._stream.read1(_PIECE_BYTES if size < 0 else size):
            if text := self._decoder.decode(piece):
                return text.encode()
        return self._decoder.decode(b"", final=True).encode()

    def first_character(self) -> str:
        """Return the first character that is no white space; the stream still starts before it."""
        while piece := self.read():
            if start := piece.lstrip():
                self._peeked = start
                return start.decode(errors="replace")[0]
        return ""
