"""Items of lists in large, damaged and compressed JSON files."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.sources import json_streams
from pipelines.sources.json_streams import read_lists
from pipelines.sources.openings import BrokenInputError
from schemas.errors import BuildError

CONTENT: dict[str, Any] = {
    "info": {"year": 2014, "list": [1, 2]},
    "count": 12345,
    "images": [{"id": 1, "name": 'q"uo\\te'}, {"id": 2, "nested": [[1, [2]], {"a": None}]}, []],
    "empty": [],
    "none": None,
    "annotations": [[{"text": "é]}, {"}], "text", 17, -2.5e3, True, None],
}
EXPECTED = [(key, item) for key in ("images", "annotations") for item in CONTENT[key]]


@pytest.mark.parametrize("piece_bytes", [1, 2, 3, 7, 2**20])
@pytest.mark.parametrize("indent", [None, 2])
def test_items_in_file_order_wherever_pieces_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece_bytes: int, indent: int | None
) -> None:
    monkeypatch.setattr(json_streams, "_PIECE_BYTES", piece_bytes)
    path = tmp_path / "c.json"
    path.write_bytes(b"\xef\xbb\xbf\n" + json.dumps(CONTENT, ensure_ascii=False, indent=indent).encode() + b"\n")
    assert list(read_lists(path)) == EXPECTED


def test_gzip(tmp_path: Path) -> None:
    path = tmp_path / "c.json.gz"
    packed = gzip.compress(json.dumps(CONTENT).encode())
    path.write_bytes(packed)
    assert list(read_lists(path)) == EXPECTED
    path.write_bytes(packed[:-12])
    with pytest.raises(BrokenInputError, match=r"c\.json\.gz: cannot be read on"):
        list(read_lists(path))


def test_every_cut_gives_the_items_before_it(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    text = json.dumps(CONTENT)
    for end in range(1, len(text)):
        path.write_text(text[:end])
        found = []
        with pytest.raises(BrokenInputError):
            for entry in read_lists(path):
                found.append(entry)
        assert found == EXPECTED[: len(found)]


@pytest.mark.parametrize(
    ("text", "items", "message"),
    [
        (b'{"a": [1, 2 3]}', [1], "expected ','"),
        (b'{"a": [1, oops, 333333333333333333]}', [1], "no JSON from here on"),
        (b'{"a": [1]', [1], "the end of the file"),
        (b'{"a": [1, 23', [1], "expected ',', found 'the end of the file'"),
        (b'{"a": [{"x": "' + b"y" * 40, [], "ends in the middle of a value"),
        (b'{"a": [' + b"[" * 100_000, [], "cannot be read on"),
        (b'{"a": [1, ' + b"9" * 5000 + b"]}", [1], "cannot be read on"),
        (b'{"a": [1, "\xff\xe9"]} trailing', [1, "\ufffd\ufffd"], None),
    ],
)
def test_damage(tmp_path: Path, text: bytes, items: list[object], message: str | None) -> None:
    path = tmp_path / "c.json"
    path.write_bytes(text)
    lists = read_lists(path)
    assert [next(lists) for _ in items] == [("a", item) for item in items]
    if message:
        with pytest.raises(BrokenInputError, match=message):
            next(lists)
    else:
        assert next(lists, None) is None


@pytest.mark.parametrize("text", ["", "[1]", "<html>"])
def test_a_file_that_is_no_object(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.json"
    path.write_text(text)
    with pytest.raises(BuildError, match="expected a JSON object"):
        list(read_lists(path))


def test_a_value_without_end_is_not_read_to_the_end_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_streams, "MAX_ITEM_CHARS", 100)
    monkeypatch.setattr(json_streams, "_PIECE_BYTES", 10)
    path = tmp_path / "c.json"
    path.write_text('{"a": ["' + "x" * 1000 + '"]}')
    with pytest.raises(BrokenInputError, match="more than 100 characters"):
        list(read_lists(path))
