"""What one JSON file holds, once all of it is in memory.

    read_members   {"id": value, ...}                          (name, value) of each member
    read_items     [value, ...]                                each item
    read_lists     {"images": [...], "annotations": [...]}     (name, item) of each item of the lists that are named
    read_mapping   {"id": value, ...}                          a dict of values of one type

`read_members` and `read_items` are for files of gigabytes, such as GoodNews': msgspec only says where each value is,
and values are parsed one by one. The other two are for files of some 150 MB, which Python's own parser takes whole. A
value with a byte that is not UTF-8 is a `FieldError` in its place. A file that is cut off, or is no JSON, is one
`BrokenInputError`: what stands before the damage is not used.
"""

import codecs
import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from pipelines.files import BrokenInputError, input_file
from pipelines.sources.fields import Object, typed
from pipelines.sources.records import FieldError, damage_of, json_object, object_or_problem
from schemas.errors import BuildError

T = TypeVar("T")
MAX_BYTES = 4 * 2**30  # of a file, decompressed
_PIECE_BYTES = 2**20


def read_members(address: str | Path) -> Iterator[tuple[str, dict[str, Any] | FieldError]]:
    """Yield the name of each member of the object that a file holds, and the object that it is, in file order.

    Raises:
        BrokenInputError: the file cannot be read, or holds no object.
        NotFoundError: there is no such file.
    """
    for name, value in _values(address, dict).items():
        yield name, _object(value)


def read_items(address: str | Path, name: str = "", start: int = 1) -> Iterator[tuple[str, Object | FieldError]]:
    """Yield each object of the list that a file holds, under `<name>:<number>`; see `read_members`.

    Args:
        address: of the file.
        name: what it goes by; "": its own name.
        start: number of the first.
    """
    for count, value in enumerate(_values(address, list), start=start):
        yield f"{name or input_file(address).name}:{count}", _object(value)


def read_lists(
    address: str | Path, *names: str, needed: Collection[str] = ()
) -> Iterator[tuple[str, tuple[str, object] | FieldError]]:
    """Yield each item of the lists of these names in a file's object, as (name, item), under `<file name>#<number>`.

    Args:
        address: of the file.
        names: of the lists, in the order in which they come.
        needed: those that must have an item.

    Raises:
        BrokenInputError: the file cannot be read, or holds no object.
        BuildError: a list that is needed is not there, or empty.
        NotFoundError: there is no such file.
    """
    file = input_file(address).name
    whole, is_damaged = _parsed(address)
    if not isinstance(whole, dict):
        raise BrokenInputError(f"{file}: expected an object", file)
    lists = {name: items for name in names if isinstance(items := whole.get(name), list)}
    if missing := ", ".join(sorted(name for name in needed if not lists.get(name))):
        raise BuildError(f"{address}: expected items in the lists {', '.join(needed)}; found none in {missing}")
    for name, items in lists.items():
        for count, item in enumerate(items, start=1):
            damage = damage_of(json.dumps(item, ensure_ascii=False)) if is_damaged else None
            yield f"{file}#{count} ({name})", damage or (name, item)


def read_mapping(address: str | Path, kind: type[T]) -> dict[str, T]:
    """Return the members of the object that a file holds, each of which must be of one type.

    Raises:
        BuildError: the file holds no such object.
        NotFoundError: there is no such file.
    """
    try:
        whole, is_damaged = _parsed(address)
        damage = damage_of(json.dumps(whole, ensure_ascii=False)) if is_damaged else None
        if damage is not None:
            raise damage
        return {name: typed(value, kind, f"$.{name}") for name, value in typed(whole, Object).items()}
    except (BrokenInputError, FieldError) as problem:
        raise BuildError(f"{address}: {problem}") from problem


def _parsed(address: str | Path) -> tuple[Any, bool]:
    """Return what a file holds, and whether bytes in it are not UTF-8: in Python's text they are lone surrogates."""
    text = _read(address).decode("utf-8", errors="surrogateescape")
    try:
        return json.loads(text, strict=False), damage_of(text) is not None
    except (ValueError, RecursionError) as problem:
        name = input_file(address).name
        raise BrokenInputError(f"{name}: expected JSON: {problem}", name) from problem


def _values(address: str | Path, kind: type[dict[Any, Any] | list[Any]]) -> Any:
    """Return the values of a file's object or list as `msgspec.Raw`.

    What msgspec refuses and Python's parser takes, such as halves of surrogate pairs and NaN, comes as Python values.
    """
    try:
        return msgspec.json.decode(_read(address), type=dict[str, msgspec.Raw] if kind is dict else list[msgspec.Raw])
    except (ValueError, RecursionError):
        whole, is_damaged = _parsed(address)
    if is_damaged or not isinstance(whole, kind):
        name = input_file(address).name
        raise BrokenInputError(f"{name}: expected {'an object' if kind is dict else 'a list'} in UTF-8", name)
    return whole


def _object(value: object) -> dict[str, Any] | FieldError:
    return json_object(bytes(value)) if isinstance(value, msgspec.Raw) else object_or_problem(value)


def _read(address: str | Path) -> bytearray:
    """Return the bytes of a file without a byte order mark."""
    file, data = input_file(address), bytearray()
    with file.open() as stream:
        while len(data) <= MAX_BYTES and (piece := stream.read(_PIECE_BYTES)):
            data += piece
    if len(data) > MAX_BYTES:
        raise BrokenInputError(f"{file.name}: expected at most {MAX_BYTES} bytes", file.name)
    return data.removeprefix(codecs.BOM_UTF8)
