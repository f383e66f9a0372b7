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
import numpy.typing as npt

from schemas.errors import UsageError
from training.evaluation.analysis import spearman
from training.evaluation.bootstrap import Comparison, Interval, compare, mean_interval
from training.evaluation.evaluate import Evaluation, MeanScores
from training.evaluation.pair_scores import PairMeans
from training.evaluation.score_kinds import ScoreKind

Float64 = npt.NDArray[np.float64]


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
        means: over the common documents, percent.
        differences: metric -> this model minus the first, paired; empty for the first itself.
        leading: of each common document, the metric that agreement is of, percent.
    """

    name: str
    means: MeanScores | PairMeans
    differences: Mapping[str, Comparison]
    leading: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelComparison:
    """Models compared on the documents they have in common.

    Attributes:
        documents: ids of those.
        left_out: documents that some models were scored on and others not.
        kind: of the scores.
        models: in the order given.
        agreement: rank correlation of the leading metric, model by model; None where a model's does not vary.
    """

    documents: tuple[str, ...]
    left_out: int
    kind: ScoreKind
    models: tuple[ModelResult, ...]
    agreement: tuple[tuple[float | None, ...], ...]

    def to_json(self) -> dict[str, Any]:
        """Return means, differences and agreement; not the scores of single documents."""
        return {
            "documents": len(self.documents),
            "left_out": self.left_out,
            "models": [
                {
                    "model": result.name,
                    **{metric: _interval_json(getattr(result.means, metric)) for metric in self.kind.metrics},
                    "minus_first": {
                        metric: _interval_json(found.difference) | {"probability_at_least": found.probability_at_least}
                        for metric, found in result.differences.items()
                    },
                }
                for result in self.models
            ],
            "spearman": [list(row) for row in self.agreement],
        }


def compare_models(contestants: Sequence[Contestant]) -> ModelComparison:
    """Return how models compare; the first is what the others are compared with.

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
    means = MeanScores if kind is ScoreKind.LINKS else PairMeans
    models = tuple(
        ModelResult(
            name=contestant.name,
            means=means(*(mean_interval(column) for column in own.T)),
            differences={} if place == 0 else _differences(own, values[0], kind),
            leading=tuple(own[:, list(kind.metrics).index(kind.leading)].tolist()),
        )
        for place, (contestant, own) in enumerate(zip(contestants, values, strict=True))
    )
    return ModelComparison(
        documents=documents,
        left_out=len({document for table in tables for document in table}) - len(documents),
        kind=kind,
        models=models,
        agreement=tuple(tuple(spearman(one.leading, other.leading) for other in models) for one in models),
    )


def comparison_lines(found: ModelComparison) -> list[str]:
    """Return the comparison as aligned text: means, differences to the first model, agreement."""
    width = max(len(result.name) for result in found.models) + 2
    titles = found.kind.metrics
    lines = [" " * width + "".join(title.rjust(22) for title in titles.values())]
    for result in found.models:
        cells = (getattr(result.means, metric) for metric in titles)
        shown = (f"{cell.mean:.1f} ({cell.low:.1f}-{cell.high:.1f})" for cell in cells)
        lines.append(f"{result.name:{width}}" + "".join(text.rjust(22) for text in shown))
    lines.append(f"minus {found.models[0].name}, paired:")
    for result in found.models[1:]:
        differences = (result.differences[metric].difference for metric in titles)
        shown = (f"{cell.mean:+.1f} ({cell.low:+.1f} to {cell.high:+.1f})" for cell in differences)
        lines.append(f"{result.name:{width}}" + "".join(text.rjust(24) for text in shown))
    lines.append(f"rank correlation of per-document {titles[found.kind.leading]}:")
    for result, row in zip(found.models, found.agreement, strict=True):
        lines.append(f"{result.name:{width}}" + "".join(correlation_text(value).rjust(8) for value in row))
    left_out = f"; {found.left_out} were not scored with every model" if found.left_out else ""
    return [*lines, f"{len(found.documents)} documents{left_out}"]


def correlation_text(value: float | None) -> str:
    """Return a rank correlation with two decimals."""
    return "none" if value is None else f"{value:.2f}"


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
    if kind is ScoreKind.PAIRS and evaluation.pairs is not None:
        places, scores = evaluation.pairs.documents, evaluation.pairs.table()
    else:
        places = evaluation.scored
        scores = np.array([[getattr(score, name) for name in kind.metrics] for score in evaluation.scores])
    return {evaluation.ids[place]: tuple(row) for place, row in zip(places, scores.tolist(), strict=True)}


def _differences(own: Float64, first: Float64, kind: ScoreKind) -> dict[str, Comparison]:
    return {metric: compare(own[:, column], first[:, column]) for column, metric in enumerate(kind.metrics)}


def _interval_json(interval: Interval) -> dict[str, float]:
    return {"mean": interval.mean, "low": interval.low, "high": interval.high}
