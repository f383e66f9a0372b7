"""Items of lists in large, damaged and compressed JSON files."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.files import BrokenInputError
from pipelines.sources import json_stream
from pipelines.sources.json_stream import read_lists
from schemas.errors import BuildError

CONTENT: dict[str, Any] = {
    "info": {"year": 2014, "list": [1, 2]},
    "count": 12345,
    "images": [{"id": 1, "name": 'q"uo\\te'}, {"id": 2, "nested": [[1, [2]], {"a": None}]}, []],
    "empty": [],
    "none": None,
    "annotations": [[{"text": "é]}, {"}], "text", 17, -2.5e3, True, None],
}
NAMES = ("images", "annotations", "a", "empty", "none")
EXPECTED = [(key, item) for key in ("images", "annotations") for item in CONTENT[key]]


def lists_of(path: Path) -> list[tuple[str, object]]:
    return [entry for _, entry in read_lists(path, *NAMES)]


@pytest.mark.parametrize("piece_bytes", [1, 2, 3, 7, 2**20])
@pytest.mark.parametrize("indent", [None, 2])
def test_items_in_file_order_wherever_pieces_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece_bytes: int, indent: int | None
) -> None:
    monkeypatch.setattr(json_stream, "_PIECE_BYTES", piece_bytes)
    path = tmp_path / "c.json"
    path.write_bytes(b"\xef\xbb\xbf\n" + json.dumps(CONTENT, ensure_ascii=False, indent=indent).encode() + b"\n")
    assert lists_of(path) == EXPECTED


def test_gzip(tmp_path: Path) -> None:
    path = tmp_path / "c.json.gz"
    packed = gzip.compress(json.dumps(CONTENT).encode())
    path.write_bytes(packed)
    assert lists_of(path) == EXPECTED
    path.write_bytes(packed[:-12])
    with pytest.raises(BrokenInputError, match=r"c\.json\.gz: cannot be read on"):
        lists_of(path)


def test_every_cut_gives_the_items_before_it(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    text = json.dumps(CONTENT)
    for end in range(1, len(text)):
        path.write_text(text[:end])
        found = []
        with pytest.raises(BrokenInputError):
            for _, entry in read_lists(path, *NAMES):
                found.append(entry)
        assert found[:-1] == EXPECTED[: len(found)][:-1]  # a number at the end may be half of one


@pytest.mark.parametrize(
    ("text", "items", "message"),
    [
        (b'{"a": [1, 2 3]}', [1, 2], "expected ',', found '3'"),
        (b'{"a": [1, oops, 333333333333333333]}', [1], "no JSON from here on"),
        (b'{"a": [1]', [1], "the end of the file"),
        (b'{"a": [{}, {"b": 23', [{}], "no JSON from here on"),
        (b'{"a": [{"x": "' + b"y" * 40, [], "Unterminated string"),
        (b'{"a": [' + b"[" * 100_000, [], "nested too deep"),
        (b'{"a": [1, ' + b"9" * 5000 + b"]}", [1], "Exceeds the limit"),
        (b'{"a": [1, "\xc3\xa9"]} trailing', [1, "é"], None),
    ],
)
def test_damage(tmp_path: Path, text: bytes, items: list[object], message: str | None) -> None:
    path = tmp_path / "c.json"
    path.write_bytes(text)
    lists = read_lists(path, "a")
    assert [next(lists) for _ in items] == [(f"c.json#{n} (a)", ("a", item)) for n, item in enumerate(items, start=1)]
    if message:
        with pytest.raises(BrokenInputError, match=message):
            next(lists)
    else:
        assert next(lists, None) is None


@pytest.mark.parametrize("text", ["", "[1]", "<html>"])
def test_a_file_that_is_no_object(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.json"
    path.write_text(text)
    with pytest.raises(BrokenInputError, match=r"expected '\{'"):
        lists_of(path)


@pytest.mark.parametrize("text", ["{}", '{"a": []}', '{"a": {"b": [1]}, "c": [2]}'])
def test_a_list_that_is_needed(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.json"
    path.write_text(text)
    with pytest.raises(BuildError, match=r"c\.json: expected items in the lists a, b; found none in a, b"):
        list(read_lists(path, "a", "b", "d", needed=("a", "b")))


def test_a_value_without_end_is_not_read_to_the_end_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_stream, "MAX_ITEM_CHARS", 100)
    monkeypatch.setattr(json_stream, "_PIECE_BYTES", 10)
    path = tmp_path / "c.json"
    path.write_text('{"a": ["' + "x" * 1000 + '"]}')
    with pytest.raises(BrokenInputError, match="more than 100 characters"):
        lists_of(path)
