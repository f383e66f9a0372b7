"""Rows of delimited files: a stray quotation mark costs its own row alone."""

import csv
import gzip
import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.files import BrokenInputError
from pipelines.sources.records import FieldError
from pipelines.sources.rows import MAX_CELL_LINES, read_table
from schemas.errors import BuildError
from schemas.failures import Reason

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
    writer = csv.writer(text, quoting=csv.QUOTE_ALL)
    writer.writerows([["x", "y", "z"], *rows])
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    path.write_text(text.getvalue(), newline="")
    columns, found = read_table(str(path))
    blank_lines_aside = [["\n".join(line for line in cell.split("\n") if line.strip()) for cell in row] for row in rows]
    assert columns == ["x", "y", "z"]
    read_back = [list(row.values()) for _, row in found if isinstance(row, dict)]
    assert [[" ".join(cell.split()) for cell in row] for row in read_back] == [
        [" ".join(cell.split()) for cell in row] for row in blank_lines_aside
    ]
