"""Studies of several models: side by side, transfer between data sets, a sweep's table.

Side by side: means, differences to the first model document by document, and whether the models err on the same
documents: the rank correlation of per-document AUC (Hessel 2019, 4.1). Only documents that every model was scored on
are compared. Where documents are pairs, which have no AUC, the scores are those of retrieval, and agreement is of the
reciprocal rank.

What trains the cells of a sweep is `training.workflows.studies`. The supervised upper bound by share of labels (Li
2022, figure 5) is a sweep over `objective.labelled_share`.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np

from schemas.configs import resolve
from schemas.documents import Split
from schemas.lake import Lake
from schemas.messages import ConfigError, NotFoundError, Say, UsageError
from training.evaluation.evaluate import Evaluation, interval_json
from training.evaluation.models import evaluate_model
from training.metrics.intervals import Interval, Score, difference_interval
from training.metrics.links import ScoreKind, mean_scores
from training.metrics.spread import spearman
from training.model import LinkModel


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
    differences: Mapping[str, Interval]
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
        models = [
            {
                "model": result.name,
                **{metric: interval_json(score) for metric, score in result.means.items()},
                "minus_first": {
                    metric: interval_json(difference.score(metric, n=len(self.documents)))
                    for metric, difference in result.differences.items()
                },
            }
            for result in self.models
        ]
        return {
            "dataset": self.dataset,
            "split": self.split,
            "documents": len(self.documents),
            "left_out": self.left_out,
            "models": models,
            "spearman": [list(row) for row in self.agreement],
        }


def compare_models(evaluations: Mapping[str, Evaluation], *, dataset: str, split: str) -> ModelComparison:
    """Return how models compare; the first is what the others are compared with.

    Args:
        evaluations: of each model by its name, on the same split.
        dataset: NAME@VERSION it is of.
        split: its name.

    Raises:
        UsageError: there are fewer than two models, or no document that all were scored on.
    """
    if len(evaluations) < 2:
        raise UsageError(f"compare: expected at least two models, found {len(evaluations)}")
    kind = _kind(evaluations.values())
    scores_of = [each.scores if kind is ScoreKind.LINKS else each.pairs for each in evaluations.values()]
    scored = [each.by_document(scores) for each, scores in zip(evaluations.values(), scores_of, strict=True) if scores]
    documents = tuple(document for document in scored[0] if all(document in each for each in scored))
    if not documents:
        raise UsageError("compare: no document could be scored with every model")
    values = [np.array([each[document] for document in documents], np.float64) for each in scored]
    models = tuple(
        ModelResult(
            name=name,
            means=mean_scores(scores_of, kind),
            differences={
                metric: difference_interval(scores_of[:, column] - values[0][:, column])
                for column, metric in enumerate(kind.metrics)
            }
            if number
            else {},
            leading=tuple(scores_of[:, list(kind.metrics).index(kind.leading)].tolist()),
        )
        for number, (name, scores_of) in enumerate(zip(evaluations, values, strict=True))
    )
    return ModelComparison(
        dataset=dataset,
        split=split,
        documents=documents,
        left_out=len({document for each in scored for document in each}) - len(documents),
        kind=kind,
        models=models,
        agreement=tuple(tuple(spearman(one.leading, other.leading) for other in models) for one in models),
    )


def _kind(evaluations: Collection[Evaluation]) -> ScoreKind:
    """Return the kind of scores that all evaluations have.

    Raises:
        UsageError: there is none.
    """
    if all(each.scores for each in evaluations):
        return ScoreKind.LINKS
    if all(each.pairs for each in evaluations):
        return ScoreKind.PAIRS
    raise UsageError("compare: links were scored with some models, and retrieval alone with others")


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyCell:
    """One model of a transfer or of a sweep, on one data set.

    Attributes:
        model: its address; "" where there is none.
        dataset: NAME@VERSION it is judged on, of a transfer.
        trained_on: NAME@VERSION, of a transfer.
        settings: `key=value` of what a sweep varies.
        run: id of the training run of a sweep; "" where there is none.
        means: metric -> mean score; empty where it cannot be judged.
        problem: why it cannot be judged; "" where it can.
    """

    model: str = ""
    dataset: str = ""
    trained_on: str = ""
    settings: tuple[str, ...] = ()
    run: str = ""
    means: Mapping[str, Score] = field(default_factory=dict)
    problem: str = ""

    @property
    def title(self) -> str:
        return ", ".join(self.settings) or f"{self.model} on {self.dataset}"

    @property
    def is_transfer(self) -> bool:
        """Return whether model and data set are of different data sets (versions of one are not)."""
        return self.trained_on.partition("@")[0] != self.dataset.partition("@")[0]

    def to_json(self) -> dict[str, Any]:
        """Return the cell with its means; one that could not be judged has none."""
        return resolve(replace(self, means={})) | {name: interval_json(each) for name, each in self.means.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """A table of cells; `run` is the id of the run that is their parent."""

    recipe: str
    dataset: str
    split: str
    run: str
    cells: tuple[StudyCell, ...]

    @property
    def kind(self) -> ScoreKind:
        """Return the kind of the scores."""
        return ScoreKind.PAIRS if any(ScoreKind.PAIRS.leading in cell.means for cell in self.cells) else ScoreKind.LINKS


def combinations(vary: Sequence[str]) -> list[tuple[str, ...]]:
    """Return every combination of `KEY=VALUE,VALUE,...` items as `KEY=VALUE` assignments; the first varies slowest.

    Raises:
        ConfigError: an item of another form, or a key given twice.
    """
    axes: dict[str, list[str]] = {}
    for item in vary:
        key, _, values = item.partition("=")
        parts = [value.strip() for value in values.split(",")]
        if not key.strip() or not all(parts):
            raise ConfigError(f"--vary {item}: expected KEY=VALUE,VALUE,...")
        if key.strip() in axes:
            raise ConfigError(f"--vary {item}: {key.strip()} is varied already")
        axes[key.strip()] = [f"{key.strip()}={value}" for value in dict.fromkeys(parts)]
    return list(product(*axes.values()))


def transfer_cells(
    models: Mapping[str, LinkModel],
    lake: Lake,
    references: Sequence[str],
    split: Split | str = Split.TEST,
    *,
    say: Say,
) -> Iterator[StudyCell]:
    """Yield every model on every data set, model by model (Li 2022, table 4).

    A data set without the columns a model reads is no error: its cell names what is missing.

    Args:
        models: address -> model.
        lake: that the data sets are in.
        references: NAME@VERSION each.
        split: of every data set.
        say: takes a line of progress.

    Raises:
        NotFoundError: a data set, version or split is not there.
    """
    for address, model in models.items():
        for reference in references:
            cell = StudyCell(model=address, trained_on=model.card.data.reference, dataset=reference)
            try:
                cell = replace(cell, means=evaluate_model(model, lake, reference, split).mean)
            except NotFoundError:
                raise
            except UsageError as problem:
                cell = replace(cell, problem=str(problem))
            say(f"{address} on {reference}: {cell.problem or 'done'}")
            yield cell
