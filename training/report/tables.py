"""Tables of scores: one shape and one way to write a number, for the command line and for the pages.

A table of an evaluation is a choice of its rows (`schemas.evaluation.Score`): the metrics are its columns, the groups
or the models its rows. `Table.lines` prints it; `parts.html.j2` draws it, with its intervals where `is_plotted`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from schemas.console import aligned
from schemas.evaluation import Score
from training.evaluation.bootstrap import Interval

if TYPE_CHECKING:
    from training.report.figures import Axis

COUNT = "n"
POINTS = "points"
NO_BREAK = "\u2060"
TO = f"–{NO_BREAK}"  # between two numbers, where no line may end
_FORMATS = {
    "percent": ".1f",
    POINTS: "+.1f",
    "rank, from 1": "g",
    "probability": ".3f",
    "loss": ".4f",
    "cosine": ".3f",
    "distance": ".3f",
    "correlation": ".2f",
    "squared probability": ".3f",
    "predictors": ".0f",
}


class RowKind(StrEnum):
    """Whose scores a row of a table holds."""

    MODEL = "model"
    BASELINE = "baseline"
    PUBLISHED = "published"


Cell = Score | str


@dataclass(frozen=True, slots=True)
class Row:
    """A name and its cells, one a column; of a table of models also whose they are, and what else is to be known."""

    name: str
    cells: tuple[Cell, ...]
    kind: RowKind = RowKind.BASELINE
    note: str = ""

    @property
    def is_told(self) -> bool:
        """Return whether its note stands below a printed table (that of a published row is its source)."""
        return bool(self.note) and self.kind is not RowKind.PUBLISHED

    @property
    def title(self) -> str:
        """Return the name, and of a published row where it stands."""
        lacks_source = self.kind is RowKind.PUBLISHED and self.note not in self.name
        return f"{self.name} ({self.note})" if lacks_source else self.name


@dataclass(frozen=True, slots=True)
class Table:
    """Heads, the first being that of the row names, and rows."""

    heads: tuple[str, ...]
    rows: tuple[Row, ...]
    is_plotted: bool = False

    @property
    def axes(self) -> list[Axis]:
        """Return the axis that the intervals of each column share; differences are shown beside zero."""
        from training.report.figures import Axis

        found = []
        for column in range(len(self.heads) - 1):
            cells = [row.cells[column] for row in self.rows]
            scores = [cell for cell in cells if isinstance(cell, Score)]
            ends = [end for score in scores for end in (score.value, score.low, score.high) if end is not None]
            found.append(Axis.over([*ends, *([0.0] if any(score.unit == POINTS for score in scores) else [])]))
        return found

    def lines(self) -> list[str]:
        """Return the table as aligned text."""
        rows = ((row.title, *map(cell_text, row.cells)) for row in self.rows)
        return aligned([text.replace(NO_BREAK, "") for text in row] for row in (self.heads, *rows))


def pivot(
    rows: Iterable[Score],
    columns: Mapping[str, str],
    head: str,
    *,
    name: Callable[[Score], str] = lambda score: score.group,
) -> Table | None:
    """Return a table with a row for each name and a column for each metric; None without a row.

    Args:
        rows: numbers; those of other metrics are left out.
        columns: metric -> head; `n` is how many documents, pairs or links are behind a row.
        head: of the names.
        name: of the row that a number is in.
    """
    found: dict[str, dict[str, Cell]] = {}
    for row in rows:
        if row.metric in columns:
            found.setdefault(name(row), {COUNT: f"{row.n:,}"})[row.metric] = row
    cells = (Row(group, tuple(values.get(metric, "") for metric in columns)) for group, values in found.items())
    return Table((head, *columns.values()), tuple(cells)) if found else None


def cell_text(cell: Cell) -> str:
    """Return a number with its interval or its deviation; without a value, why there is none."""
    if isinstance(cell, str) or cell.value is None:
        return cell if isinstance(cell, str) else cell.note or "–"
    value, range_ = value_text(cell), range_text(cell)
    return f"{value} ({range_})" if range_ and cell.deviation is None else f"{value} {range_}".rstrip()


def value_text(score: Score) -> str:
    """Return a number, as many decimals as its unit has, with a true minus sign."""
    if score.unit == "probability" and score.value is not None and score.value < 0.001:
        return "<\u00a00.001"
    return _number(score.value or 0.0, score)


def range_text(score: Score) -> str:
    """Return the interval of a number, or its deviation over samples."""
    if score.deviation is not None:
        return f"± {score.deviation:.1f}"
    if score.low is None or score.high is None:
        return ""
    to = " to " if score.unit == POINTS else TO
    return f"{_number(score.low, score)}{to}{_number(score.high, score)}"


def score_row(
    name: str, scores: Mapping[str, Score], columns: Iterable[str], kind: RowKind = RowKind.BASELINE, note: str = ""
) -> Row:
    """Return the row of a model's scores by metric."""
    return Row(name, tuple(scores.get(metric, "") for metric in columns), kind, note)


def difference(metric: str, interval: Interval) -> Score:
    """Return a difference of two means as a cell."""
    return interval.score(metric, n=0, unit=POINTS)


def is_clear(score: Score) -> bool:
    """Return whether the interval of a difference leaves zero out."""
    return (score.low or 0.0) > 0 or (score.high or 0.0) < 0


def _number(value: float, score: Score) -> str:
    form = ".1f" if score.deviation is not None else _FORMATS.get(score.unit, ".1f")
    text = format(value, form)
    is_zero = float(text) == 0
    return (format(0.0, form).lstrip("+") if is_zero else text).replace("-", "−")
