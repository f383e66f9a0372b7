"""Rows of delimited files and items of JSON files: large, damaged and compressed."""

import csv
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.files import BrokenInputError
from pipelines.sources import rows
from pipelines.sources.records import FieldError
from pipelines.sources.rows import MAX_CELL_LINES, read_items, read_lists, read_mapping, read_table
from schemas.failures import Reason
from schemas.messages import BuildError

HEADER = ["id", "a", "b", "c", "text"]
ROWS = 1000


def lines(delimiter: str, **texts: str) -> list[str]:
    return [delimiter.join(HEADER)] + [
        delimiter.join([str(n), "1", "", "x", texts.get(f"row{n}", f"Cut number {n}.")]) for n in range(ROWS)
    ]


def read(path: Path, content: list[str] | bytes) -> tuple[list[str], list[str], list[str]]:
    """Return the ids of rows, their texts, and where those are that are broken."""
    path.write_bytes(content if isinstance(content, bytes) else "\n".join(content).encode())
    _, rows = read_table(str(path))
    found = list(rows)
    good = [row for _, row in found if not isinstance(row, FieldError)]
    bad = [(where, row) for where, row in found if isinstance(row, FieldError)]
    assert {row.reason for _, row in bad} <= {Reason.BROKEN_RECORD}
    return [row["id"] for row in good], [row["text"] for row in good], [where for where, _ in bad]


@pytest.mark.parametrize("delimiter", list(",|\t;"))
@pytest.mark.parametrize(
    ("texts", "lost"),
    [
        ({"row10": '"Cut the boards.'}, [10]),
        ({"row10": '"Cut the boards.', "row11": '"And again.', "row999": '"At the end.'}, [10, 11, 999]),
        ({"row10": '"Cut the boards.', "row30": '"In quotes, twice."'}, [10]),
        ({"row10": '"Cut the boards.', "row30": 'A board of 12"'}, [10]),
        ({"row10": 'A board of 12" by 7".', "row30": 'It is 5"'}, []),
        ({"row10": '"Stray" quote.'}, [10]),
    ],
)
def test_a_stray_quotation_mark(tmp_path: Path, delimiter: str, texts: dict[str, str], lost: list[int]) -> None:
    ids, _, broken = read(tmp_path / "a.csv", lines(delimiter, **texts))
    assert ids == [str(n) for n in range(ROWS) if n not in lost]
    assert broken == [f"a.csv:{n + 2}" for n in lost]


def test_cells_of_several_lines(tmp_path: Path) -> None:
    long = '"' + "line, with a comma\n" * (MAX_CELL_LINES - 1) + 'end"'
    longer = '"' + "line\n" * MAX_CELL_LINES + 'end"'
    ids, texts, broken = read(tmp_path / "a.csv", lines(",", row3=long, row5=longer, row7='"a, ""b""\n\nc"'))
    assert ids == [str(n) for n in range(ROWS) if n != 5]
    assert (texts[3].count("\n"), texts[6]) == (MAX_CELL_LINES - 1, 'a, "b"\nc')
    assert broken[0] == f"a.csv:{7 + MAX_CELL_LINES - 1}"
    assert len(broken) == MAX_CELL_LINES + 1  # each line of what is no cell


def test_a_file_that_is_cut_off_behind_a_stray_mark(tmp_path: Path) -> None:
    packed = gzip.compress("\n".join(lines(",", row995='"Never closed')).encode())
    path = tmp_path / "a.csv.gz"
    path.write_bytes(packed[:-6])
    _, rows = read_table(str(path))
    found = []
    with pytest.raises(BrokenInputError):
        for _, row in rows:
            found.append(row)
    assert sum(isinstance(row, FieldError) for row in found) == 1
    assert len(found) == ROWS - 1  # the last line may be half a line
    path.write_bytes(b"no gzip")
    with pytest.raises(BuildError, match=r"expected a header: a\.csv\.gz: cannot be read on"):
        read_table(str(path))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.text("ab,;\t|\" '\n", max_size=9).map(lambda text: text.strip()), min_size=3, max_size=3),
        max_size=8,
    )
)
def test_what_pythons_writer_writes_is_read(tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]]) -> None:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows([["x", "y", "z"], *rows])
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    path.write_text(text.getvalue(), newline="")
    columns, found = read_table(str(path))
    blank_lines_aside = [["\n".join(line for line in cell.split("\n") if line.strip()) for cell in row] for row in rows]
    assert columns == ["x", "y", "z"]
    read_back = [list(row.values()) for _, row in found if isinstance(row, dict)]
    assert [[" ".join(cell.split()) for cell in row] for row in read_back] == [
        [" ".join(cell.split()) for cell in row] for row in blank_lines_aside
    ]


CONTENT: dict[str, Any] = {
    "annotations": [[{"text": "é]}, {"}], "text", 17, -2.5e3, True, None],
    "info": {"year": 2014, "list": [1, 2]},
    "images": [{"id": 1, "name": 'q"uo\\te'}, {"id": 2, "nested": [[1, [2]], {"a": None}]}, []],
    "empty": [],
    "none": None,
}
NAMES = ("images", "annotations", "a", "empty", "none")
READERS: dict[str, Callable[[Path], Any]] = {
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


def test_items_of_a_large_file(tmp_path: Path) -> None:
    path = tmp_path / "large.json.gz"
    wanted = [{"id": number, "text": "\u00e4\U0001f426" * number} for number in range(600)]
    path.write_bytes(gzip.compress(b"\xef\xbb\xbf \n" + json.dumps(wanted, ensure_ascii=False).encode()))
    assert [item for _, item in read_items(path)] == wanted


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
