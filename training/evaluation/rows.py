"""The table of an evaluation: every number that was measured as a row of `schemas.evaluation`."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import pyarrow.parquet as pq

from schemas.evaluation import EVALUATION_SCHEMA, Score
from schemas.lake import Folder
from schemas.tables import to_table
from training.evaluation.metrics.links import FULLY_LINKED, ScoreKind

FILE_NAME = "evaluation.parquet"
ABSENT, LEFT_OUT, CANDIDATES, RANDOM, DOCUMENT = "absent", "left_out", "candidates", "random", "document"
POSITION = "position"
METRICS = frozenset(metric for kind in ScoreKind for metric in kind.metrics)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationReport:
    """What was evaluated on what, and every number of it.

    Attributes:
        model: registered name, or the address it was loaded from.
        model_version: registered version, where there is one.
        dataset: name of the data set.
        dataset_version: its version.
        split: split of it.
        rows: all numbers.
    """

    model: str
    model_version: str | None
    dataset: str
    dataset_version: str
    split: str
    rows: tuple[Score, ...]

    def write(self, directory: Path) -> Path:
        """Write the table into a folder, made if missing, and return its path."""
        about = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "rows"}
        rows = (about | asdict(row) for row in self.rows)
        buffer = io.BytesIO()
        pq.write_table(to_table(rows, EVALUATION_SCHEMA), buffer, compression="zstd")
        Folder(str(directory)).write(FILE_NAME, buffer.getvalue())
        return directory / FILE_NAME

    def values(self) -> dict[str, float]:
        """Return `measure metric group` -> value of the numbers that have one, but for those of single documents."""
        return {
            " ".join(filter(None, (row.measure, row.metric, row.group))): row.value
            for row in self.rows
            if row.value is not None and row.measure != DOCUMENT
        }


def of_measure(measure: str, rows: Iterable[Score], *, note: str | None = None) -> tuple[Score, ...]:
    """Return rows as of one measure, with a note where one is given."""
    return tuple(replace(row, measure=measure, note=row.note if note is None else note) for row in rows)


def absent(measure: str, reason: object) -> Score:
    """Return the row that says why a measure has no numbers."""
    return Score(ABSENT, measure=measure, unit="", note=str(reason))


def means_of(rows: Iterable[Score], measure: str) -> dict[str, Score]:
    """Return metric -> mean score of a model or a baseline; those of a language, a role or another group are not."""
    return {
        row.metric: row
        for row in rows
        if row.measure == measure and row.metric in METRICS and "=" not in row.group and row.value is not None
    }


def kind_of(rows: Sequence[Score]) -> ScoreKind:
    """Return what kind of scores the model has: of links, and of retrieval only where no document has those."""
    has_pairs_alone = not means_of(rows, ScoreKind.LINKS) and means_of(rows, ScoreKind.PAIRS)
    return ScoreKind.PAIRS if has_pairs_alone else ScoreKind.LINKS


def documents_of(rows: Sequence[Score]) -> int:
    """Return how many documents the model's means are over."""
    return max((score.n for score in means_of(rows, kind_of(rows)).values()), default=0)


def candidates_of(rows: Iterable[Score]) -> int | None:
    """Return how many images a text chooses from, where documents are pairs."""
    return next((row.n for row in rows if row.metric == CANDIDATES), None)


def left_out_of(rows: Sequence[Score]) -> dict[str, int]:
    """Return the documents that could not be scored, by reason; of pairs, every one has its only pair linked."""
    found = {row.group: row.n for row in rows if row.metric == LEFT_OUT}
    return {reason: n for reason, n in found.items() if reason != FULLY_LINKED or kind_of(rows) is ScoreKind.LINKS}


def interval_json(score: Score) -> dict[str, float | None]:
    """Return a mean and the ends of its interval."""
    return {"mean": score.value, "low": score.low, "high": score.high}
