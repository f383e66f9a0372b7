"""What an evaluation's rows say, table by table, for the command line and the report; published results below ours.

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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib.resources import files

from schemas.evaluation import Score
from training.evaluation.baselines import TITLES
from training.evaluation.judge import ANALYSIS, BIAS, CALIBRATION, CAPTIONS, REFINED, RELATIONS, RETRIEVAL
from training.evaluation.metrics.groups import LANGUAGE
from training.evaluation.metrics.links import ScoreKind
from training.evaluation.metrics.retrieval import MEDIAN_RANK, RANK_UNIT, RECALL, Direction
from training.evaluation.position import VALIDATION_LOSS
from training.evaluation.rows import ABSENT, POSITION, RANDOM, kind_of, means_of
from training.report.tables import COUNT, Row, RowKind, Table, pivot, score_row

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
