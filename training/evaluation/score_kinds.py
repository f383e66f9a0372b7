"""The two kinds of scores a document can have, the metrics of each, and what the papers call them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


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
