"""What one large JSON file holds, one part at a time.

    read_members   {"id": value, ...}                          (name, value) of each member
    read_items     [value, ...]                                each item
    read_lists     {"images": [...], "annotations": [...]}     (name, item) of each item of each member that is a list

For files of any size: a piece and a value are in memory. A value with a byte that is not UTF-8 is a `FieldError` in its
place. A file that ends early, or stops being JSON, gives what comes before that and then raises `BrokenInputError`.
Values are parsed by Python's own decoder, which is three times as fast as ijson's C back end on lists of small records,
takes halves of surrogate pairs, and refuses what that crashes on: numbers of 5,000 digits, nesting without end.
"""

import codecs
import json
import re
from collections.abc import Collection, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar, cast

from pipelines.files import BrokenInputError, InputFile, input_file
from pipelines.sources.records import FieldError, checked, damage_of
from schemas.errors import BuildError

T = TypeVar("T")
MAX_ITEM_CHARS = 64 * 2**20  # a value this long is no record: a quote or a bracket is missing
_PIECE_BYTES = 2**20
_NEAR_END_CHARS = 16  # longer than any token but texts and numbers: what is this near to the end may be half a token
_SPACE = re.compile(r"\s*")
_DECODER = json.JSONDecoder(strict=False)


def read_members(address: str | Path) -> Iterator[tuple[str, object]]:
    """Yield the name and the value of each member of the object that a file holds, in file order.

    Raises:
        BrokenInputError: the rest cannot be read, or the file holds no object.
        NotFoundError: there is no such file.
    """
    text = _Text(input_file(address))
    for name in text.names():
        yield name, text.value()


def read_items(address: str | Path) -> Iterator[tuple[str, object]]:
    """Yield each item of the list that a file holds, under `<file name>#<number>`; see `read_members`."""
    text = _Text(input_file(address))
    for count, item in enumerate(text.items(), start=1):
        yield f"{text.name}#{count}", item


def read_lists(
    address: str | Path, *names: str, needed: Collection[str] = ()
) -> Iterator[tuple[str, tuple[str, object] | FieldError]]:
    """Yield each item of the lists of these names in a file's object, as (name, item), under `<file name>#<number>`.

    Args:
        address: of the file.
        names: of the lists; other members are passed over.
        needed: those that must have an item.

    Raises:
        BrokenInputError: the rest cannot be read, or the file holds no object.
        BuildError: a list that is needed is not there, or empty.
        NotFoundError: there is no such file.
    """
    text = _Text(input_file(address))
    found: set[str] = set()
    for name in text.names():
        if text.peek() != "[":
            text.value()
            continue
        for count, item in enumerate(text.items(), start=1):
            if name in names:
                found.add(name)
                yield f"{text.name}#{count} ({name})", item if isinstance(item, FieldError) else (name, item)
    if not found.issuperset(needed):
        missing = ", ".join(sorted(set(needed) - found))
        raise BuildError(f"{address}: expected items in the lists {', '.join(needed)}; found none in {missing}")


def read_mapping(address: str | Path, kind: type[T]) -> dict[str, T]:
    """Return the members of an object that is small enough for memory, each of which must be of one type.

    Raises:
        BuildError: the file holds no such object.
        NotFoundError: there is no such file.
    """
    try:
        return {name: checked(_sound(value), kind, repr(name)) for name, value in read_members(address)}
    except (BrokenInputError, FieldError) as problem:
        raise BuildError(f"{address}: {problem}") from problem


def _sound(value: object) -> object:
    if isinstance(value, FieldError):
        raise value
    return value


class _Text:
    """A file's text from what has been read on; what comes before it is forgotten."""

    def __init__(self, file: InputFile) -> None:
        self.name = file.name
        self._pieces = _texts(file)
        self._rest = ""
        self._offset = 0
        self._is_damaged = False  # whether a byte was met that is not UTF-8

    def names(self) -> Iterator[str]:
        """Yield the name of each member of an object; its value has to be read before the next name is asked for."""
        for _ in self._parts("{", "}"):
            if self.peek() != '"':
                raise self._broken("expected a name in quotes")
            name = self.value()
            if isinstance(name, FieldError):
                raise self._broken(str(name))
            self._take(":")
            yield str(name)

    def items(self) -> Iterator[object]:
        """Yield each item of a list."""
        return (self.value() for _ in self._parts("[", "]"))

    def peek(self) -> str:
        """Return the next character that is no white space; empty at the end of the file."""
        while True:
            self._offset = cast(re.Match[str], _SPACE.match(self._rest, self._offset)).end()
            if self._offset < len(self._rest) or not self._read_on():
                return self._rest[self._offset : self._offset + 1]

    def value(self) -> object:
        """Return the JSON value that comes next and pass over it; a `FieldError` of one that is not UTF-8."""
        self.peek()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._rest, self._offset)
                if end + _NEAR_END_CHARS < len(self._rest) or not self._read_on():  # else a number may go on
                    begin, self._offset = self._offset, end
                    return (damage_of(self._rest[begin:end]) if self._is_damaged else None) or value
            except RecursionError as error:
                raise self._broken("values are nested too deep") from error
            except ValueError as error:  # perhaps the value goes on in the next piece
                if not self._read_on():
                    raise self._broken(f"no JSON from here on: {error}") from error

    def _parts(self, opening: str, closing: str) -> Iterator[None]:
        self._take(opening)
        while self.peek() != closing:
            yield
            if self.peek() != closing:
                self._take(",")
        self._take(closing)

    def _take(self, character: str) -> None:
        found = self.peek()
        if found != character:
            raise self._broken(f"expected {character!r}, found {found or 'the end of the file'!r}")
        self._offset += 1

    def _read_on(self) -> bool:
        """Add as much as is in memory, so that a long value is tried a few times; return whether there was any."""
        rest = self._rest[self._offset :]
        if len(rest) > MAX_ITEM_CHARS:
            raise self._broken(f"a value of more than {MAX_ITEM_CHARS} characters")
        added = "".join(islice(self._pieces, 1 + len(rest) // _PIECE_BYTES))
        if added:
            self._rest, self._offset = rest + added, 0
            self._is_damaged = self._is_damaged or damage_of(added) is not None
        return bool(added)

    def _broken(self, message: str) -> BrokenInputError:
        return BrokenInputError(f"{self.name}: {message}", self.name)


def _texts(file: InputFile) -> Iterator[str]:
    """Yield a file's text in pieces, never empty, without a byte order mark."""
    with file.open() as stream:
        pieces = iter(partial(stream.read1, _PIECE_BYTES), b"")
        yield from codecs.iterdecode(pieces, "utf-8-sig", errors="surrogateescape")
