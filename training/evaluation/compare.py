"""Models side by side on the same documents: means, paired differences, and whether they err on the same documents.

Differences are to the first model, by paired bootstrap; agreement is the rank correlation of per-document AUC (Hessel
2019, 4.1). Only documents that every model was scored on are compared. Where documents are pairs, which have no AUC,
the scores are those of retrieval, and agreement is of the reciprocal rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from schemas.errors import UsageError
from schemas.evaluation import Score
from training.data.ragged import Float64
from training.evaluation.bootstrap import Comparison, compare
from training.evaluation.evaluate import Evaluation, scored_ids
from training.evaluation.metrics.links import ScoreKind, mean_scores
from training.evaluation.metrics.spread import spearman
from training.evaluation.rows import interval_json


@dataclass(frozen=True, slots=True)
class Contestant:
    """A model by its name, and what came of evaluating it."""

    name: str
    evaluation: Evaluation


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelResult:
    """One model among others.

    Attributes:
        name: of the model.
        means: metric -> mean over the common documents.
        differences: metric -> this model minus the first, paired; empty for the first itself.
        leading: of each common document, the metric that agreement is of, percent.
    """

    name: str
    means: Mapping[str, Score]
    differences: Mapping[str, Comparison]
    leading: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelComparison:
    """Models compared on the documents they have in common.

    Attributes:
        dataset: NAME@VERSION they are of.
        split: split of it.
        documents: ids of those.
        left_out: documents that some models were scored on and others not.
        kind: of the scores.
        models: in the order given.
        agreement: rank correlation of the leading metric, model by model; None where a model's does not vary.
    """

    dataset: str
    split: str
    documents: tuple[str, ...]
    left_out: int
    kind: ScoreKind
    models: tuple[ModelResult, ...]
    agreement: tuple[tuple[float | None, ...], ...]

    def to_json(self) -> dict[str, Any]:
        """Return means, differences and agreement; not the scores of single documents."""
        return {
            "dataset": self.dataset,
            "split": self.split,
            "documents": len(self.documents),
            "left_out": self.left_out,
            "models": [
                {
                    "model": result.name,
                    **{metric: interval_json(score) for metric, score in result.means.items()},
                    "minus_first": {
                        metric: interval_json(found.difference.score(metric, n=len(self.documents)))
                        | {"probability_at_least": found.probability_at_least}
                        for metric, found in result.differences.items()
                    },
                }
                for result in self.models
            ],
            "spearman": [list(row) for row in self.agreement],
        }


def compare_models(contestants: Sequence[Contestant], *, dataset: str, split: str) -> ModelComparison:
    """Return how models compare; the first is what the others are compared with.

    Args:
        contestants: evaluated on the same split.
        dataset: NAME@VERSION it is of.
        split: its name.

    Raises:
        UsageError: there are fewer than two models, or no document that all were scored on.
    """
    if len(contestants) < 2:
        raise UsageError(f"compare: expected at least two models, found {len(contestants)}")
    kind = _kind([contestant.evaluation for contestant in contestants])
    tables = [_table(contestant.evaluation, kind) for contestant in contestants]
    documents = tuple(document for document in tables[0] if all(document in table for table in tables))
    if not documents:
        raise UsageError("compare: no document could be scored with every model")
    values = [np.array([table[document] for document in documents]) for table in tables]
    models = tuple(
        ModelResult(
            name=contestant.name,
            means=mean_scores(own, kind),
            differences={} if number == 0 else _differences(own, values[0], kind),
            leading=tuple(own[:, list(kind.metrics).index(kind.leading)].tolist()),
        )
        for number, (contestant, own) in enumerate(zip(contestants, values, strict=True))
    )
    return ModelComparison(
        dataset=dataset,
        split=split,
        documents=documents,
        left_out=len({document for table in tables for document in table}) - len(documents),
        kind=kind,
        models=models,
        agreement=tuple(tuple(spearman(one.leading, other.leading) for other in models) for one in models),
    )


def _kind(evaluations: Sequence[Evaluation]) -> ScoreKind:
    """Return the kind of scores that all evaluations have.

    Raises:
        UsageError: there is none.
    """
    if all(each.scores for each in evaluations):
        return ScoreKind.LINKS
    if all(each.pairs for each in evaluations):
        return ScoreKind.PAIRS
    raise UsageError("compare: links were scored with some models, and retrieval alone with others")


def _table(evaluation: Evaluation, kind: ScoreKind) -> dict[str, tuple[float, ...]]:
    """Return document id -> the metrics of the scored documents."""
    scores = evaluation.pairs if kind is ScoreKind.PAIRS and evaluation.pairs is not None else evaluation.scores
    return dict(zip(scored_ids(evaluation, scores), scores.scores, strict=True))


def _differences(own: Float64, first: Float64, kind: ScoreKind) -> dict[str, Comparison]:
    return {metric: compare(own[:, column], first[:, column]) for column, metric in enumerate(kind.metrics)}
