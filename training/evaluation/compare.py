"""Models side by side on the same documents: means, paired differences, and whether they err on the same documents.

Differences are to the first model, by paired bootstrap; agreement is the rank correlation of per-document AUC (Hessel
2019, 4.1). Only documents that every model was scored on are compared.
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

METRICS = ("auc", "precision_at_1", "precision_at_5")
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
        auc: of each common document, percent.
    """

    name: str
    means: MeanScores
    differences: Mapping[str, Comparison]
    auc: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelComparison:
    """Models compared on the documents they have in common.

    Attributes:
        documents: ids of those.
        left_out: documents that some models were scored on and others not.
        models: in the order given.
        agreement: rank correlation of per-document AUC, model by model; None where a model's does not vary.
    """

    documents: tuple[str, ...]
    left_out: int
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
                    **{metric: _interval_json(getattr(result.means, metric)) for metric in METRICS},
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
    tables = [_table(contestant.evaluation) for contestant in contestants]
    documents = tuple(document for document in tables[0] if all(document in table for table in tables))
    if not documents:
        raise UsageError("compare: no document could be scored with every model")
    values = [np.array([table[document] for document in documents]) for table in tables]
    models = tuple(
        ModelResult(
            name=contestant.name,
            means=MeanScores(*(mean_interval(column) for column in own.T)),
            differences={} if place == 0 else _differences(own, values[0]),
            auc=tuple(own[:, 0].tolist()),
        )
        for place, (contestant, own) in enumerate(zip(contestants, values, strict=True))
    )
    return ModelComparison(
        documents=documents,
        left_out=len({document for table in tables for document in table}) - len(documents),
        models=models,
        agreement=tuple(tuple(spearman(one.auc, other.auc) for other in models) for one in models),
    )


def comparison_lines(found: ModelComparison) -> list[str]:
    """Return the comparison as aligned text: means, differences to the first model, agreement."""
    width = max(len(result.name) for result in found.models) + 2
    lines = [f"{'':{width}}{'AUC':>22}{'p@1':>22}{'p@5':>22}"]
    for result in found.models:
        cells = (getattr(result.means, metric) for metric in METRICS)
        shown = (f"{cell.mean:.1f} ({cell.low:.1f}-{cell.high:.1f})" for cell in cells)
        lines.append(f"{result.name:{width}}" + "".join(text.rjust(22) for text in shown))
    lines.append(f"minus {found.models[0].name}, paired:")
    for result in found.models[1:]:
        differences = (result.differences[metric].difference for metric in METRICS)
        shown = (f"{cell.mean:+.1f} ({cell.low:+.1f} to {cell.high:+.1f})" for cell in differences)
        lines.append(f"{result.name:{width}}" + "".join(text.rjust(24) for text in shown))
    lines.append("rank correlation of per-document AUC:")
    for result, row in zip(found.models, found.agreement, strict=True):
        lines.append(f"{result.name:{width}}" + "".join(correlation_text(value).rjust(8) for value in row))
    left_out = f"; {found.left_out} were not scored with every model" if found.left_out else ""
    return [*lines, f"{len(found.documents)} documents{left_out}"]


def correlation_text(value: float | None) -> str:
    """Return a rank correlation with two decimals."""
    return "none" if value is None else f"{value:.2f}"


def _table(evaluation: Evaluation) -> dict[str, tuple[float, float, float]]:
    """Return document id -> AUC, precision at 1 and at 5 of the scored documents."""
    return {
        evaluation.ids[place]: (score.auc, score.precision_at_1, score.precision_at_5)
        for place, score in zip(evaluation.scored, evaluation.scores, strict=True)
    }


def _differences(own: Float64, first: Float64) -> dict[str, Comparison]:
    return {metric: compare(own[:, column], first[:, column]) for column, metric in enumerate(METRICS)}


def _interval_json(interval: Interval) -> dict[str, float]:
    return {"mean": interval.mean, "low": interval.low, "high": interval.high}
