"""Published results, for pages to print beside ours; tests and training never read them.

They were measured on the papers' own builds and splits of the data sets, with the papers' features, so they are context
and no target. `published.csv` has one row for each row of a paper's table:

    table       `links` (Hessel 2019, tables 2 and 3: DC, TK and AP with b = 10 and k = min(n, m); Li 2022, table 2),
                `transfer` (trained on another data set; Li 2022, table 4), `retrieval` (Alikhani 2022, tables 4 and 5,
                among 500 images; Liu 2020, tables 1 and 2), `role` (a model that reads the texts of one role alone)
    dataset, role, direction, model, source        what it is of, and where it stands
    the others                                     percent, and a rank from 1; empty where the paper gives none
"""

from __future__ import annotations

import csv
from functools import lru_cache
from importlib.resources import files

from schemas.evaluation import Score
from training.evaluation.metrics.retrieval import MEDIAN_RANK, RANK_UNIT
from training.report.tables import Row, RowKind

Published = dict[str, str]


@lru_cache(maxsize=1)
def _published() -> tuple[Published, ...]:
    text = files(__package__).joinpath("published.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def published(table: str, dataset: str, *, role: str = "", direction: str = "") -> list[Published]:
    """Return the published rows of a data set, weakest baseline first; those of any direction where none is named."""
    return [
        row
        for row in _published()
        if (row["table"], row["dataset"], row["role"]) == (table, dataset, role) and direction in ("", row["direction"])
    ]


def published_row(published: Published, metrics: list[str], *, name: str = "") -> Row:
    """Return a published row with a cell for each metric, under the model's name or another one."""
    cells = tuple(_score(published.get(metric, ""), metric) for metric in metrics)
    return Row(name or published["model"], cells, RowKind.PUBLISHED, published["source"])


def _score(text: str, metric: str) -> Score | str:
    unit = RANK_UNIT if metric == MEDIAN_RANK else "percent"
    return Score(metric, float(text), unit=unit) if text else ""
