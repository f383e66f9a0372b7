"""The rows of an evaluation as tables, for the command line and the report; published results below ours.

A table is a choice of an evaluation's rows (`training.metrics.intervals`): the metrics are its columns, the groups or
the models its rows. There is one shape and one way to write a number: `Table.lines` prints it, `parts.html.j2` draws
it.

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
from itertools import product

from schemas.messages import aligned
from training.evaluation.baselines import TITLES
from training.evaluation.evaluate import ABSENT, POSITION, RANDOM, kind_of, means_of
from training.evaluation.judge import ANALYSIS, CALIBRATION, DECOYS, REFINED, RELATIONS, RETRIEVAL
from training.evaluation.position import VALIDATION_LOSS
from training.evaluation.studies import ModelComparison, StudyCell, Sweep
from training.metrics.intervals import Score
from training.metrics.links import LANGUAGE, ScoreKind
from training.metrics.retrieval import MEDIAN_RANK, RANK_UNIT, RECALL, Direction

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
    "similarity": ".3f",
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
    """A name and its cells, one a column; of a table of models also whose they are, and a note.

    The note of a published row is its source.
    """

    name: str
    cells: tuple[Cell, ...]
    kind: RowKind = RowKind.BASELINE
    note: str = ""

    @property
    def title(self) -> str:
        """Return the name, and of a published row its source."""
        lacks_source = self.kind is RowKind.PUBLISHED and self.note not in self.name
        return f"{self.name} ({self.note})" if lacks_source else self.name


@dataclass(frozen=True, slots=True)
class Table:
    """Heads, the first being that of the row names, and rows."""

    heads: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def footnotes(self) -> list[str]:
        """Return the notes that stand below the printed table; published rows have theirs beside the name."""
        return [f"{row.name}: {row.note}" for row in self.rows if row.note and row.kind is not RowKind.PUBLISHED]

    def above(self, rows: Iterable[Row]) -> Table:
        """Return the table with other rows below its own."""
        return replace(self, rows=(*self.rows, *rows))

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
    cells_of: dict[str, dict[str, Cell]] = {}
    for row in rows:
        if row.metric in columns:
            cells_of.setdefault(name(row), {COUNT: f"{row.n:,}"})[row.metric] = row
    cells = (Row(group, tuple(values.get(metric, "") for metric in columns)) for group, values in cells_of.items())
    return Table((head, *columns.values()), tuple(cells)) if cells_of else None


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


def _number(value: float, score: Score) -> str:
    form = ".1f" if score.deviation is not None else _FORMATS.get(score.unit, ".1f")
    text = format(value, form)
    is_zero = float(text) == 0
    return (format(0.0, form).lstrip("+") if is_zero else text).replace("-", "−")


@lru_cache(maxsize=1)
def _all_published() -> tuple[Published, ...]:
    return tuple(csv.DictReader(files(__package__).joinpath("published.csv").read_text(encoding="utf-8").splitlines()))


def published(table: str, dataset: str, *, role: str = "", direction: str = "") -> list[Published]:
    """Return the published rows of a data set, weakest baseline first; those of any direction where none is named."""
    return [
        row
        for row in _all_published()
        if (row["table"], row["dataset"], row["role"]) == (table, dataset, role) and direction in ("", row["direction"])
    ]


def published_row(published: Published, metrics: Iterable[str]) -> Row:
    """Return a published row with a cell for each metric; its note is source, split and number of candidates."""
    units = {metric: RANK_UNIT if metric == MEDIAN_RANK else "percent" for metric in metrics}
    values = {metric: published.get(metric, "") for metric in units}
    cells = (Score(metric, float(text), unit=units[metric]) if text else "" for metric, text in values.items())
    pool = f", among {published['pool']}" if published["pool"] else ""
    source = f"{published['source']}: {published['split']} split{pool}"
    return Row(published["model"], tuple(cells), RowKind.PUBLISHED, source)


def absent_baselines(rows: Iterable[Score]) -> dict[str, str]:
    """Return the title of each baseline without scores, and why it has none."""
    return {TITLES[row.measure]: row.note for row in rows if row.metric == ABSENT and row.measure in TITLES}


def score_table(rows: Sequence[Score], name: str, *, dataset: str = "") -> Table | None:
    """Return the model's means, below it each baseline's and random's, and the published ones of a data set.

    None where no document could be scored.
    """
    kind = kind_of(rows)
    means_of_model = means_of(rows, kind)
    if not means_of_model:
        return None
    beside = {measure: means for measure in (*TITLES, RANDOM) if (means := means_of(rows, measure))}
    baselines = (
        score_row(TITLES.get(measure, measure), means, kind.metrics, note=next(iter(means.values())).note)
        for measure, means in beside.items()
    )
    model = score_row(name, means_of_model, kind.metrics, RowKind.MODEL)
    return models_table([model, *baselines, *published_rows(dataset, kind)], kind)


def models_table(rows: Iterable[Row], kind: ScoreKind = ScoreKind.LINKS, head: str = "Model") -> Table:
    """Return a table of models with a column for each metric."""
    return Table((head, *kind.metrics.values()), tuple(rows))


def published_rows(dataset: str, kind: ScoreKind = ScoreKind.LINKS, *, table: str = "links") -> list[Row]:
    """Return the papers' own results for a data set; of retrieval, an image for a text."""
    is_retrieval = kind is ScoreKind.PAIRS
    table, direction = ("retrieval", Direction.TEXT_TO_IMAGE) if is_retrieval else (table, "")
    return [published_row(row, kind.metrics) for row in published(table, dataset, direction=direction)]


def sections(rows: Sequence[Score], *, dataset: str = "") -> dict[str, Table]:
    """Return the tables of what else was measured, by name; those without a row are left out.

    Args:
        rows: of one evaluation.
        dataset: whose published rows stand beside ours.
    """
    retrieval = [row for row in rows if row.measure in (RETRIEVAL, REFINED)]
    tables = {
        "position": pivot(
            (row for row in _of(rows, POSITION) if row.group),
            {VALIDATION_LOSS: "Validation loss"} | LINK_COLUMNS,
            "Weight",
        ),
        "groups": pivot(
            (row for row in _of(rows, ScoreKind.LINKS) if "=" in row.group),
            LINK_COLUMNS | {COUNT: "Documents"},
            "Group",
        ),
        "retrieval": _with_published(
            pivot(
                (row for row in retrieval if "=" not in row.group),
                RETRIEVAL_COLUMNS,
                "Direction and pool",
                name=lambda row: f"{row.group}, refined by relations" if row.measure == REFINED else row.group,
            ),
            dataset,
        ),
        "retrieval_groups": _with_published_groups(
            pivot((row for row in retrieval if "=" in row.group), RETRIEVAL_COLUMNS, "Group, direction and pool"),
            dataset,
        ),
        "relations": pivot(
            _of(rows, RELATIONS),
            {"average_precision": "Average precision", "rate": "Rate", COUNT: "Pairs"},
            "Relation",
        ),
        "regressions": pivot(_of(rows, ANALYSIS), REGRESSION_COLUMNS, "Explained by"),
        "thresholds": pivot(
            _of(rows, CALIBRATION),
            THRESHOLD_COLUMNS,
            "Wanted precision",
            name=lambda row: row.group.removeprefix("precision "),
        ),
        "decoys": pivot(
            _of(rows, DECOYS),
            {"false_links": "False, percent (estimate)", COUNT: "Pairs"},
            "No link is known: estimated by",
        ),
    }
    return {title: table for title, table in tables.items() if table is not None}


def _of(rows: Iterable[Score], measure: str) -> list[Score]:
    return [row for row in rows if row.measure == measure]


def _with_published(table: Table | None, dataset: str) -> Table | None:
    """Return retrieval with the papers' rows below ours."""
    known = published("retrieval", dataset)
    return table and table.above(_published_retrieval(row, f"{row['direction']}: ") for row in known)


def _with_published_groups(table: Table | None, dataset: str) -> Table | None:
    """Return retrieval by group, below each row the published one of the same role or source."""
    if table is None:
        return None
    rows: list[Row] = []
    for row in table.rows:
        group, direction = row.name.split(", ")[:2]
        kind, _, name = group.partition("=")
        known = [] if kind == LANGUAGE else published("role", dataset, role=name, direction=direction)
        rows += [row, *map(_published_retrieval, known)]
    return replace(table, rows=tuple(rows))


def _published_retrieval(published: Published, prefix: str = "") -> Row:
    row = published_row(published, RETRIEVAL_COLUMNS)
    return replace(row, name=f"{prefix}{row.name} ({row.note})")


def columns_of(rows: Iterable[Score], metrics: Sequence[str]) -> Mapping[str, dict[str, Score]]:
    """Return group -> metric -> score of some metrics, for a chart."""
    groups: dict[str, dict[str, Score]] = {}
    for row in rows:
        if row.metric in metrics:
            groups.setdefault(row.group, {})[row.metric] = row
    return groups


def comparison_lines(comparison: ModelComparison) -> list[str]:
    """Return means, paired differences to the first model, and agreement on documents."""
    models, metrics = comparison.models, comparison.kind.metrics
    means = models_table((score_row(each.name, each.means, metrics) for each in models), comparison.kind)
    differences = (
        Row(each.name, tuple(each.differences[metric].score(metric, n=0, unit=POINTS) for metric in metrics))
        for each in models[1:]
    )
    left_out = f"; {comparison.left_out} were not scored with every model" if comparison.left_out else ""
    return [
        *means.above(published_rows(_name(comparison.dataset), comparison.kind)).lines(),
        f"minus {models[0].name}, paired:",
        *models_table(differences, comparison.kind).lines()[1:],
        f"rank correlation of per-document {metrics[comparison.kind.leading]}:",
        *_agreement_table(comparison).lines()[1:],
        f"{len(comparison.documents)} documents{left_out}",
    ]


def _agreement_table(comparison: ModelComparison) -> Table:
    """Return the rank correlations, models numbered in the heads."""
    rows = (
        Row(
            f"{number}  {result.name}",
            tuple(Score("spearman", value, unit="correlation", note="none") for value in own),
        )
        for number, (result, own) in enumerate(zip(comparison.models, comparison.agreement, strict=True), start=1)
    )
    return Table(("Model", *map(str, range(1, len(comparison.models) + 1))), tuple(rows))


def sweep_lines(sweep: Sweep) -> list[str]:
    """Return a row for each combination, the model of each, and why others have none."""
    rows = (score_row(cell.title, cell.means, sweep.kind.metrics, note=cell.model) for cell in sweep.cells)
    table = models_table(rows, sweep.kind, head="Settings").above(published_rows(_name(sweep.dataset), sweep.kind))
    return [f"{sweep.dataset}, {sweep.split}", *table.lines(), *table.footnotes, *_problems(sweep.cells)]


def transfer_lines(cells: Sequence[StudyCell]) -> list[str]:
    """Return AUC of every model (down) on every data set (across); a model's own data set is marked."""
    rows: dict[str, dict[str, Cell]] = {}
    for cell in cells:
        text = "–" if cell.problem else cell_text(cell.means["auc"])
        row = rows.setdefault(f"{cell.model}, of {cell.trained_on}", {})
        row[cell.dataset] = text if cell.is_transfer else f"{text} ⌂"
    datasets = tuple(dict.fromkeys(cell.dataset for cell in cells))
    for dataset, table in product(datasets, ("transfer", "links")):
        for published in published_rows(_name(dataset), table=table):
            rows.setdefault(published.title, {})[dataset] = published.cells[0]
    full = (Row(title, tuple(row.get(dataset, "") for dataset in datasets)) for title, row in rows.items())
    return [*Table(("AUC", *datasets), tuple(full)).lines(), *_problems(cells)]


def _problems(cells: Sequence[StudyCell]) -> list[str]:
    return [f"- {cell.title}: {cell.problem}" for cell in cells if cell.problem]


def _name(reference: str) -> str:
    return reference.partition("@")[0]
