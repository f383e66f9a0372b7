"""Items of the lists in one large JSON object, one at a time: `{"images": [...], "annotations": [...]}`.

For files of any size: one piece and one item are in memory. Bytes that are not UTF-8 become U+FFFD. A file that ends
early, or stops being JSON, gives the items before that place and then raises `BrokenJsonError`.
"""

from __future__ import annotations

import codecs
import gzip
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from schemas.errors import BuildError

MAX_ITEM_CHARS = 64 * 2**20  # an item this long is no record: a quote or a bracket is missing
_PIECE_BYTES = 2**20
_NEAR_END_CHARS = 16  # longer than any token but texts and numbers: what is this near to the end may be half a token
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder(strict=False)


class BrokenJsonError(ValueError):
    """The rest of a file cannot be read; items yielded before stay good."""


def read_lists(path: Path) -> Iterator[tuple[str, object]]:
    """Yield each item of each list that is a member of the file's object, with the member's name, in file order.

    Raises:
        BrokenJsonError: see there.
        BuildError: the file does not hold a JSON object.
        FileNotFoundError: there is no such file.
    """
    text = _Text(path)
    if text.peek() != "{":
        raise BuildError(f"{path}: expected a JSON object, found {text.peek()[:20]!r}")
    text.take("{")
    while text.peek() != "}":
        name = text.value()
        text.take(":")
        if text.peek() == "[":
            for item in _items(text):
                yield str(name), item
        else:
            text.value()
        if text.peek() != "}":
            text.take(",")


def _items(text: _Text) -> Iterator[object]:
    text.take("[")
    while text.peek() != "]":
        item = text.value()
        if text.peek() != "]":
            text.take(",")
        yield item  # only now: a number at the end of a file may be half of one
    text.take("]")


class _Text:
    """A file's text from the place reached on; what lies before it is forgotten."""

    def __init__(self, path: Path) -> None:
        self._name = path.name
        self._pieces = _pieces(path)
        self._rest = ""
        self._at = 0
        self._is_all_read = False

    def peek(self) -> str:
        """Return the next character that is no white space; empty at the end of the file."""
        while True:
            space = _SPACE.match(self._rest, self._at)
            self._at = space.end() if space else self._at
            if self._at < len(self._rest):
                return self._rest[self._at]
            if not self._read_on():
                return ""

    def take(self, character: str) -> None:
        """Pass over the character that must come next."""
        found = self.peek()
        if found != character:
            raise BrokenJsonError(f"{self._name}: expected {character!r}, found {found or 'the end of the file'!r}")
        self._at += 1

    def value(self) -> object:
        """Return the JSON value that comes next and pass over it."""
        self.peek()
        while True:
            problem: Exception | None = None
            try:
                value, end = _DECODER.raw_decode(self._rest, self._at)
                if end + _NEAR_END_CHARS < len(self._rest) or self._is_all_read:  # else a number may go on
                    self._at = end
                    return value
            except json.JSONDecodeError as error:
                problem = error
                if not self._may_be_cut(error):
                    raise BrokenJsonError(f"{self._name}: no JSON from here on: {error.msg}") from error
            except (ValueError, RecursionError) as error:  # a number of thousands of digits, nesting as deep
                raise BrokenJsonError(f"{self._name}: cannot be read on: {error}") from error
            if not self._read_on() and problem is not None:
                raise BrokenJsonError(f"{self._name}: ends in the middle of a value") from problem

    def _may_be_cut(self, error: json.JSONDecodeError) -> bool:
        is_near_end = error.pos >= len(self._rest) - _NEAR_END_CHARS
        return is_near_end or error.msg.startswith("Unterminated string")

    def _read_on(self) -> bool:
        """Add a piece to what is in memory; return whether there was one."""
        if len(self._rest) - self._at > MAX_ITEM_CHARS:
            raise BrokenJsonError(f"{self._name}: a value of more than {MAX_ITEM_CHARS} characters")
        try:
            piece = next(self._pieces, "")
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise BrokenJsonError(f"{self._name}: cannot be read on: {error}") from error
        self._rest, self._at = self._rest[self._at :] + piece, 0
        self._is_all_read = not piece
        return bool(piece)


def _pieces(path: Path) -> Iterator[str]:
    """Yield a file's text, never empty, decompressed where its name ends in .gz."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
    with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as stream:
        while piece := stream.read1(_PIECE_BYTES):
            if text := decoder.decode(piece):
                yield text
        if text := decoder.decode(b"", final=True):
            yield text
