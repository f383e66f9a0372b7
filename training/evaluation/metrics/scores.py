"""The scores a document has: of its links, or of how its texts find their images among those of all documents.

Both kinds are percentages, and a mean over documents has a bootstrap interval over them. Documents of one text and one
image have no scores of links: their only pair is linked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from schemas.evaluation import Score
from training.evaluation.bootstrap import mean_interval

Float64 = npt.NDArray[np.float64]


class ScoreKind(StrEnum):
    """Of links within a document; or of retrieval among all documents, where a document is a text and an image."""

    LINKS = "links"
    PAIRS = "pairs"

    @property
    def metrics(self) -> Mapping[str, str]:
        """Return metric -> title, in the order of the papers' tables."""
        return _METRICS[self]

    @property
    def leading(self) -> str:
        """Return the metric that tells documents apart best."""
        return "auc" if self is ScoreKind.LINKS else "reciprocal_rank"


_METRICS: Mapping[ScoreKind, Mapping[str, str]] = {
    ScoreKind.LINKS: {"auc": "AUC", "precision_at_1": "p@1", "precision_at_5": "p@5"},
    ScoreKind.PAIRS: {
        "recall_at_1": "R@1",
        "recall_at_5": "R@5",
        "recall_at_10": "R@10",
        "reciprocal_rank": "reciprocal rank",
    },
}


class LinkScore(NamedTuple):
    """Link scores of one document, 0 to 100."""

    auc: float
    precision_at_1: float
    precision_at_5: float


class PairScore(NamedTuple):
    """Retrieval scores of one document, 0 to 100: texts with an image among the first 1, 5, 10, and 100 / rank."""

    recall_at_1: float
    recall_at_5: float
    recall_at_10: float
    reciprocal_rank: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentScores:
    """Scores of the documents that have any.

    Attributes:
        kind: of the scores.
        documents: positions (in what was given) of the scored documents.
        scores: of each.
        left_out: documents that could not be scored, by reason.
        candidates: how many images a text chooses from; 0 for scores of links.
        chance: what a random order of the candidates is expected to score, on the same documents.
    """

    kind: ScoreKind
    documents: tuple[int, ...]
    scores: tuple[LinkScore | PairScore, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)
    candidates: int = 0
    chance: PairScore | None = None

    def __len__(self) -> int:
        return len(self.scores)

    def table(self) -> Float64:
        """Return D x k: a row a scored document, a column a metric."""
        return np.array(self.scores, np.float64).reshape(-1, len(self.kind.metrics))

    def means(self) -> dict[str, Score]:
        """Return metric -> mean over documents; empty where no document has scores."""
        return mean_scores(self.table(), self.kind) if len(self) else {}


def mean_scores(table: Float64 | Sequence[Sequence[float]], kind: ScoreKind) -> dict[str, Score]:
    """Return metric -> mean, with its 95% bootstrap interval, of D x k scores of documents."""
    columns = np.asarray(table, np.float64).T
    return {
        metric: mean_interval(column).score(metric, n=len(column))
        for metric, column in zip(kind.metrics, columns, strict=True)
    }
