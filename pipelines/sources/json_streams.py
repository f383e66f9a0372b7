"""What one large JSON file holds, one part at a time.

    read_members   {"id": value, ...}                          (name, value) of each member
    read_items     [value, ...]                                each item
    read_lists     {"images": [...], "annotations": [...]}     (name, item) of each item of each member that is a list

For files of any size: one piece and one value are in memory. Bytes that are not UTF-8 become U+FFFD. A file that ends
early, or stops being JSON, gives what comes before that place and then raises `BrokenInputError`. Values are parsed by
Python's own decoder; what is here finds where they begin, and tells half a value from a broken one.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Collection, Iterator
from typing import TypeGuard, TypeVar

from pipelines.sources.openings import BrokenInputError, InputFile, Place, input_file
from schemas.errors import BuildError

T = TypeVar("T")
MAX_ITEM_CHARS = 64 * 2**20  # a value this long is no record: a quote or a bracket is missing
_PIECE_BYTES = 2**20
_NEAR_END_CHARS = 16  # longer than any token but texts and numbers: what is this near to the end may be half a token
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder(strict=False)


def read_members(place: Place) -> Iterator[tuple[str, object]]:
    """Yield the name and the value of each member of the object that a file holds, in file order.

    Raises:
        BrokenInputError: the rest cannot be read, or the file holds no object.
        FileNotFoundError: there is no such file.
    """
    text = _Text(input_file(place))
    for name in _names(text):
        yield name, text.value()


def read_items(place: Place) -> Iterator[object]:
    """Yield each item of the list that a file holds, in file order.

    Raises:
        BrokenInputError: the rest cannot be read, or the file holds no list.
        FileNotFoundError: there is no such file.
    """
    yield from _items(_Text(input_file(place)))


def read_lists(place: Place, *, only: Collection[str] = ()) -> Iterator[tuple[str, object]]:
    """Yield each item of each list that is a member of the file's object, with the member's name, in file order.

    Args:
        place: of the file.
        only: the members there may be, each a list; without them, members that are no lists are passed over.

    Raises:
        BrokenInputError: the rest cannot be read.
        BuildError: the file does not hold a JSON object, or one with other members than `only`.
        FileNotFoundError: there is no such file.
    """
    file = input_file(place)
    text = _object_text(file)
    for name in _names(text):
        if only and name not in only:
            raise BuildError(f"{file}: expected the lists {', '.join(only)}; found also {name}")
        if text.peek() == "[":
            for item in _items(text):
                yield name, item
        elif only:
            raise BuildError(f"{file}: expected a list in {name!r}, found {text.peek()[:20]!r}")
        else:
            text.value()


def read_mapping(place: Place, is_value: Callable[[object], TypeGuard[T]], *, expected: str) -> dict[str, T]:
    """Return the members of an object that is small enough for memory, each of which must be as `is_value` wants.

    Raises:
        BuildError: the file holds no such object.
        FileNotFoundError: there is no such file.
    """
    file = input_file(place)
    text = _object_text(file)
    found: dict[str, T] = {}
    try:
        for name in _names(text):
            value = text.value()
            if not is_value(value):
                raise BuildError(f"{file}: expected {expected} for {name!r}, found {str(value)[:40]!r}")
            found[name] = value
    except BrokenInputError as problem:
        raise BuildError(f"{file}: expected a whole JSON object: {problem}") from problem
    return found


def is_index(value: object) -> TypeGuard[int]:
    """Return whether a value is a whole number from 0."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def is_text(value: object) -> TypeGuard[str]:
    """Return whether a value is a text."""
    return isinstance(value, str)


def _object_text(file: InputFile) -> _Text:
    text = _Text(file)
    if text.peek() != "{":
        raise BuildError(f"{file}: expected a JSON object, found {text.peek()[:20]!r}")
    return text


def _names(text: _Text) -> Iterator[str]:
    """Yield the name of each member of an object; its value has to be read before the next name is asked for."""
    text.take("{")
    while text.peek() != "}":
        name = str(text.value())
        text.take(":")
        yield name
        if text.peek() != "}":
            text.take(",")
    text.take("}")


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

    def __init__(self, file: InputFile) -> None:
        self._name = file.name
        self._pieces = _texts(file)
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
            raise self._broken(f"expected {character!r}, found {found or 'the end of the file'!r}")
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
                    raise self._broken(f"no JSON from here on: {error.msg}") from error
            except (ValueError, RecursionError) as error:  # a number of thousands of digits, nesting as deep
                raise self._broken(f"cannot be read on: {error}") from error
            if not self._read_on() and problem is not None:
                raise self._broken("ends in the middle of a value") from problem

    def _may_be_cut(self, error: json.JSONDecodeError) -> bool:
        is_near_end = error.pos >= len(self._rest) - _NEAR_END_CHARS
        return is_near_end or error.msg.startswith("Unterminated string")

    def _read_on(self) -> bool:
        """Add a piece to what is in memory; return whether there was one."""
        if len(self._rest) - self._at > MAX_ITEM_CHARS:
            raise self._broken(f"a value of more than {MAX_ITEM_CHARS} characters")
        piece = next(self._pieces, "")
        self._rest, self._at = self._rest[self._at :] + piece, 0
        self._is_all_read = not piece
        return bool(piece)

    def _broken(self, message: str) -> BrokenInputError:
        return BrokenInputError(f"{self._name}: {message}", self._name)


def _texts(file: InputFile) -> Iterator[str]:
    """Yield a file's text in pieces, never empty, without a byte order mark."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
    for piece in file.pieces(_PIECE_BYTES):
        if text := decoder.decode(piece):
            yield text
    if text := decoder.decode(b"", final=True):
        yield text
