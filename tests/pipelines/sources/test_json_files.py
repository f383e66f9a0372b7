"""Items of lists in large, damaged and compressed JSON files."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.files import BrokenInputError
from pipelines.sources import rows
from pipelines.sources.records import FieldError
from pipelines.sources.rows import read_items, read_lists, read_mapping, read_members
from schemas.errors import BuildError

CONTENT: dict[str, Any] = {
    "annotations": [[{"text": "é]}, {"}], "text", 17, -2.5e3, True, None],
    "info": {"year": 2014, "list": [1, 2]},
    "images": [{"id": 1, "name": 'q"uo\\te'}, {"id": 2, "nested": [[1, [2]], {"a": None}]}, []],
    "empty": [],
    "none": None,
}
NAMES = ("images", "annotations", "a", "empty", "none")
READERS: dict[str, Callable[[Path], Any]] = {
    "members": read_members,
    "items": read_items,
    "lists": lambda path: read_lists(path, "a"),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "c.json"


def test_the_lists_that_are_named_in_the_order_of_the_names(tmp_path: Path) -> None:
    path = tmp_path / "c.json.gz"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbf\n" + json.dumps(CONTENT, ensure_ascii=False, indent=1).encode()))
    wanted = [(name, item) for name in ("images", "annotations") for item in CONTENT[name]]
    assert [entry for _, entry in read_lists(path, *NAMES)] == wanted
    assert next(where for where, _ in read_lists(path, *NAMES)) == "c.json.gz#1 (images)"
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(BrokenInputError, match=r"c\.json\.gz: cannot be read on"):
        list(read_lists(path, *NAMES))


def test_members_and_items_of_a_large_file(tmp_path: Path) -> None:
    path = tmp_path / "large.json.gz"
    wanted = [{"id": number, "text": "\u00e4\U0001f426" * number} for number in range(600)]
    path.write_bytes(gzip.compress(b"\xef\xbb\xbf \n" + json.dumps(wanted, ensure_ascii=False).encode()))
    assert [item for _, item in read_items(path)] == wanted
    members = {str(number): item for number, item in enumerate(wanted)}
    path.write_bytes(gzip.compress(json.dumps(members).encode()))
    assert dict(read_members(path)) == members


@pytest.mark.parametrize(
    "text",
    [
        b"", b"<html>", b'{"a": [1, 2 3]}', b'{"a": [1, oops]}', b'{"a": [1]', b'{"a": [{"x": "yyy', b'{"a": [1]} more',
        b'{"a": ' + b"[" * 100_000, b"[" * 100_000, b'{"a": [1, \xff"]}', b'{"a\xff": [1]', b"3", b'"a"',
    ],
)  # fmt: skip
@pytest.mark.parametrize("reader", READERS)
def test_a_file_that_is_no_json_is_one_error(path: Path, text: bytes, reader: str) -> None:
    path.write_bytes(text)
    with pytest.raises(BrokenInputError) as caught:
        list(READERS[reader](path))
    assert caught.value.record_id == "c.json"


def test_a_number_of_5000_digits(path: Path) -> None:
    path.write_bytes(b'[{"a": 1}, {"a": ' + b"9" * 5000 + b"}]")
    first, second = (item for _, item in read_items(path))
    assert (first, type(second)) == ({"a": 1}, FieldError)
    path.write_bytes(b'{"a": [' + b"9" * 5000 + b"]}")
    with pytest.raises(BrokenInputError):
        list(read_lists(path, "a"))


def test_a_byte_that_is_not_utf8_is_the_failure_of_its_item(path: Path) -> None:
    path.write_bytes(b'{"a": [{"x": "\xe4"}, {"x": "b"}, {"x": "\xc3\xa4"}]}')
    assert [isinstance(entry, FieldError) for _, entry in read_lists(path, "a")] == [True, False, False]
    path.write_bytes(b'[{"x": "\xe4"}, {"x": "b"}]')
    assert [isinstance(item, FieldError) for _, item in read_items(path)] == [True, False]
    path.write_bytes(b'{"x": "\xe4"}')
    with pytest.raises(BuildError, match="expected UTF-8"):
        read_mapping(path, str)


@pytest.mark.parametrize("value", ['"\\ud83d"', "NaN", '"a\tb"'])
def test_what_python_writes_and_json_forbids(path: Path, value: str) -> None:
    path.write_text(f'[{{"x": {value}}}, {{"x": 1}}, 3]')
    assert [type(item) for _, item in read_items(path)] == [dict, dict, FieldError]


@pytest.mark.parametrize("text", ["{}", '{"a": []}', '{"a": {"b": [1]}, "c": [2]}'])
def test_a_list_that_is_needed(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(BuildError, match=r"c\.json: expected items in the lists a, b; found none in a, b"):
        list(read_lists(path, "a", "b", "d", needed=("a", "b")))


def test_a_file_above_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MAX_BYTES", 100)
    path = tmp_path / "c.json.gz"
    path.write_bytes(gzip.compress(b" " * 10_000))
    with pytest.raises(BrokenInputError, match="at most 100 bytes"):
        list(read_items(path))
