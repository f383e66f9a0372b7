"""What an evaluation's rows say, table by table, for the command line and the report; published results below ours.

A table is a choice of an evaluation's rows (`schemas.evaluation.Score`): the metrics are its columns, the groups or the
models its rows. There is one shape and one way to write a number: `Table.lines` prints it, `parts.html.j2` draws it,
with its intervals where `is_plotted`.

Published results were measured on the papers' own builds and splits of the data sets, with the papers' features, so
they are context and no target; tests and training never read them. `published.csv` has one row for each row of a
paper's table:

    table       `links` (Hessel 2019, tables 2 and 3: DC, TK and AP with b = 10 and k = min(n, m); Li 2022, table 2),
                `transfer` (trained on another data set; Li 2022, table 4), `retrieval` (Alikhani 2022, tables 4 and 5;
                Liu 2020, tables 1 and 2), `role` (a model that reads the texts of one role alone)
    dataset, role, direction, model, source        what it is of, and where it stands
    split, pool                                    documents it was measured on; how many candidates a query had, where
                                                   it is retrieval (Liu 2020 has no test split: 1.2k pairs a language)
    the others                                     percent, and a rank from 1; empty where the paper gives none
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING

from schemas.console import aligned
from schemas.evaluation import Score
from training.evaluation.baselines import TITLES
from training.evaluation.evaluate import ABSENT, POSITION, RANDOM, kind_of, means_of
from training.evaluation.judge import ANALYSIS, BIAS, CALIBRATION, CAPTIONS, REFINED, RELATIONS, RETRIEVAL
from training.evaluation.position import VALIDATION_LOSS
from training.metrics.bootstrap import Interval
from training.metrics.links import LANGUAGE, ScoreKind
from training.metrics.retrieval import MEDIAN_RANK, RANK_UNIT, RECALL, Direction

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
Published = dict[str, str]
RETRIEVAL_COLUMNS = dict(zip(RECALL, ("R@1", "R@5", "R@10"), strict=True)) | {MEDIAN_RANK: "Median rank"}
LINK_COLUMNS = dict(ScoreKind.LINKS.metrics)
REGRESSION_COLUMNS = {
    "r_squared": "R², percent",
    "adjusted_r_squared": "Adjusted",
    "predictors": "Predictors",
    "f": "F",
    "p": "p",
}
BIAS_COLUMNS = {"distance": "Mean", "ks_statistic": "K-S statistic", "p": "p", COUNT: "Pairs"}
THRESHOLD_COLUMNS = {
    "threshold": "Similarity from",
    "precision": "Precision here",
    "kept": "Links kept, percent",
    COUNT: "Links kept",
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


@lru_cache(maxsize=1)
def _all_published() -> tuple[Published, ...]:
    text = files(__package__).joinpath("published.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def published(table: str, dataset: str, *, role: str = "", direction: str = "") -> list[Published]:
    """Return the published rows of a data set, weakest baseline first; those of any direction where none is named."""
    return [
        row
        for row in _all_published()
        if (row["table"], row["dataset"], row["role"]) == (table, dataset, role) and direction in ("", row["direction"])
    ]


def published_row(published: Published, metrics: list[str], *, name: str = "") -> Row:
    """Return a published row with a cell for each metric, under the model's name or another one."""
    cells = tuple(_score(published.get(metric, ""), metric) for metric in metrics)
    return Row(name or published["model"], cells, RowKind.PUBLISHED, _source(published))


def _source(published: Published) -> str:
    """Return where a published row stands, on which split it was measured, and among how many candidates."""
    pool = f", among {published['pool']}" if published["pool"] else ""
    return f"{published['source']}: {published['split']} split{pool}"


def _score(text: str, metric: str) -> Score | str:
    unit = RANK_UNIT if metric == MEDIAN_RANK else "percent"
    return Score(metric, float(text), unit=unit) if text else ""


def absent_baselines(rows: Iterable[Score]) -> dict[str, str]:
    """Return the title of each baseline without scores, and why it has none."""
    return {TITLES[row.measure]: row.note for row in rows if row.metric == ABSENT and row.measure in TITLES}


def score_table(rows: Sequence[Score], name: str, *, dataset: str = "") -> Table | None:
    """Return the model's means, below it each baseline's and random's, and the published ones of a data set.

    None where no document could be scored.
    """
    kind = kind_of(rows)
    own = means_of(rows, kind)
    if not own:
        return None
    found = [score_row(name, own, kind.metrics, RowKind.MODEL)]
    for measure in (*TITLES, RANDOM):
        means = means_of(rows, measure)
        if means:
            note = next(iter(means.values())).note
            found.append(score_row(TITLES.get(measure, measure), means, kind.metrics, note=note))
    return models_table([*found, *published_rows(dataset, kind)], kind)


def models_table(rows: Iterable[Row], kind: ScoreKind = ScoreKind.LINKS, head: str = "Model") -> Table:
    """Return a table of models with their intervals drawn."""
    return Table((head, *kind.metrics.values()), tuple(rows), is_plotted=True)


def published_rows(dataset: str, kind: ScoreKind = ScoreKind.LINKS, *, table: str = "links") -> list[Row]:
    """Return the papers' own results for a data set; of retrieval, an image for a text."""
    if kind is ScoreKind.PAIRS:
        found = published("retrieval", dataset, direction=Direction.TEXT_TO_IMAGE)
    else:
        found = published(table, dataset)
    return [published_row(row, list(kind.metrics)) for row in found]


def sections(rows: Sequence[Score], *, dataset: str = "") -> dict[str, Table]:
    """Return the tables of what else was measured, by name; those without a row are left out.

    Args:
        rows: of one evaluation.
        dataset: whose published rows stand beside ours.
    """
    retrieval = [row for row in rows if row.measure in (RETRIEVAL, REFINED)]
    found = {
        "position": pivot(
            (row for row in _of(rows, POSITION) if row.group),
            {VALIDATION_LOSS: "Validation loss"} | LINK_COLUMNS,
            "Weight",
        ),
        "groups": pivot(
            (row for row in rows if row.measure == ScoreKind.LINKS and "=" in row.group),
            LINK_COLUMNS | {COUNT: "Documents"},
            "Group",
        ),
        "retrieval": _with_published(
            pivot(
                (row for row in retrieval if "=" not in row.group), RETRIEVAL_COLUMNS, "Direction and pool", name=_name
            ),
            dataset,
        ),
        "retrieval_groups": _with_published_sources(
            pivot((row for row in retrieval if "=" in row.group), RETRIEVAL_COLUMNS, "Group, direction and pool"),
            dataset,
        ),
        "relations": pivot(
            _of(rows, RELATIONS),
            {"average_precision": "Average precision", "rate": "Rate", COUNT: "Pairs"},
            "Relation",
        ),
        "regressions": pivot(_of(rows, ANALYSIS), REGRESSION_COLUMNS, "Explained by"),
        "bias": pivot(_of(rows, BIAS), BIAS_COLUMNS, "L2 distance of a linked image's vector"),
        "thresholds": pivot(_of(rows, CALIBRATION), THRESHOLD_COLUMNS, "Wanted precision", name=_precision),
        "captions": pivot(
            (replace(row, metric="score", group=row.metric) for row in _of(rows, CAPTIONS) if row.metric != ABSENT),
            {"score": "Score x 100"},
            "Metric",
        ),
    }
    return {title: table for title, table in found.items() if table is not None}


def _of(rows: Iterable[Score], measure: str) -> list[Score]:
    return [row for row in rows if row.measure == measure]


def _name(row: Score) -> str:
    return f"{row.group}, refined by relations" if row.measure == REFINED else row.group


def _precision(row: Score) -> str:
    return row.group.removeprefix("precision ")


def _with_published(table: Table | None, dataset: str) -> Table | None:
    """Return retrieval with the papers' rows below ours."""
    if table is None:
        return None
    below = [_published(row, f"{row['direction']}: ") for row in published("retrieval", dataset)]
    return replace(table, rows=(*table.rows, *below))


def _with_published_sources(table: Table | None, dataset: str) -> Table | None:
    """Return retrieval by group, below each row the published one of the same role or source."""
    if table is None:
        return None
    rows: list[Row] = []
    for row in table.rows:
        group, direction = row.name.split(", ")[:2]
        kind, _, name = group.partition("=")
        found = [] if kind == LANGUAGE else published("role", dataset, role=name, direction=direction)
        rows += [row, *map(_published, found)]
    return replace(table, rows=tuple(rows))


def _published(row: dict[str, str], direction: str = "") -> Row:
    return published_row(row, list(RETRIEVAL_COLUMNS), name=f"{direction}{row['model']} ({_source(row)})")


def columns_of(rows: Iterable[Score], metrics: Sequence[str]) -> Mapping[str, dict[str, Score]]:
    """Return group -> metric -> score of some metrics, for a chart."""
    found: dict[str, dict[str, Score]] = {}
    for row in rows:
        if row.metric in metrics:
            found.setdefault(row.group, {})[row.metric] = row
    return found
