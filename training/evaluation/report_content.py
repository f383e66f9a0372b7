"""What an evaluation report says, as plain frozen dataclasses: no drawing, no file, no model.

Whoever evaluates fills a `ReportContent`; `report.py` turns it into a page. Every score here is a percentage (0 to
100), as the papers print them. What belongs here is content that any evaluation of link prediction has; example
documents are in `examples.py`, the papers' own numbers in `published.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from schemas.configs import Json
from schemas.manifest import SplitStatistics
from training.config import Select
from training.evaluation.examples import ExampleGroup
from training.evaluation.measures import Measures
from training.evaluation.score_kinds import ScoreKind


class RowKind(StrEnum):
    """Whose scores a row of the table holds."""

    MODEL = "model"
    BASELINE = "baseline"
    PUBLISHED = "published"


@dataclass(frozen=True, slots=True)
class Score:
    """A mean over documents in percent, with its 95% bootstrap interval where one was computed."""

    value: float
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        for name in ("value", "low", "high"):
            number = getattr(self, name)
            if number is not None and not 0 <= number <= 100:
                raise ValueError(f"{name} = {number!r}: a score is a percentage, 0 to 100")
        if (self.low is None) != (self.high is None):
            raise ValueError(f"interval of {self.value}: give both ends or neither")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRow:
    """Scores of one model over the same documents, by metric; None or absent where a score is not known."""

    name: str
    scores: Mapping[str, Score | None]
    kind: RowKind = RowKind.BASELINE
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """Which model was evaluated on what. No date: equal evaluations give equal reports.

    Attributes:
        model: registered name.
        model_version: its version.
        dataset: name of the data set.
        dataset_version: its version.
        split: split that was evaluated.
        documents: documents whose scores are averaged.
        left_out: documents that were not, by reason.
        recipe: recipe the model was trained by.
        objective: objective it minimised.
        similarity: similarity of a sentence set and an image set in that objective.
        epochs: epochs trained.
        kept_epoch: the epoch whose weights are the model, counted as in the history.
        select: rule that chose it.
        candidates: how many images a text chooses from, where documents are pairs.
        reads_links: whether the model was shown links in training.
    """

    model: str
    model_version: str
    dataset: str
    dataset_version: str
    split: str
    documents: int
    recipe: str
    objective: str
    similarity: str
    epochs: int
    kept_epoch: int
    select: Select
    left_out: Mapping[str, int] = field(default_factory=dict)
    candidates: int | None = None
    reads_links: bool = False

    @property
    def scored_by(self) -> ScoreKind:
        """Return what kind of scores the table has."""
        return ScoreKind.LINKS if self.candidates is None else ScoreKind.PAIRS


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportContent:
    """Everything on the page.

    Attributes:
        heading: model and data.
        scores: rows of the score table, the evaluated model first; published rows are added by the report.
        absent_baselines: baselines that have no row, and why.
        history: one mapping an epoch, with `epoch` and any of `train_loss`, `validation_loss`, `validation_auc`,
            `validation_precision_at_1` (both percentages) and `validation_rank`; absent, None and NaN are gaps.
        document_auc: AUC of each evaluated document, percent, in any order.
        examples: documents to draw, in groups.
        statistics: split -> statistics, from the data set's manifest.
        config: resolved configuration of the training run.
        measures: what else was measured.
        pictures: JPEGs by content hash, of the images that `measures` names.
    """

    heading: Heading
    scores: tuple[ScoreRow, ...] = ()
    absent_baselines: Mapping[str, str] = field(default_factory=dict)
    history: tuple[Mapping[str, float | None], ...] = ()
    document_auc: tuple[float, ...] = ()
    examples: tuple[ExampleGroup, ...] = ()
    statistics: Mapping[str, SplitStatistics] = field(default_factory=dict)
    config: Mapping[str, Json] = field(default_factory=dict)
    measures: Measures | None = None
    pictures: Mapping[str, bytes | None] = field(default_factory=dict)
