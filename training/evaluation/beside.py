"""What stands beside a model in its report: each baseline that a data set carries what it needs for.

The baselines are scored on the documents the model was judged on, read as the model reads them; one that cannot be is
named with its reason. Random's scores are part of every `Evaluation`; which NoStruct model there is, is the registry's
to say (`training.mlflow.evaluations`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from schemas.errors import UsageError
from schemas.evaluation import Score
from schemas.lake import Lake
from schemas.manifest import Manifest, read_manifest
from training.data.views import TextView
from training.evaluation.baselines import Baseline, BaselineResult, evaluate_baseline
from training.evaluation.config import AUTO, EvaluateConfig
from training.evaluation.evaluate import Evaluation, evaluate_model, scored_ids
from training.evaluation.rows import absent, of_measure
from training.model import LinkModel

NOSTRUCT = "nostruct"
TITLES: Mapping[str, str] = {
    NOSTRUCT: "NoStruct",
    Baseline.JOINT_EMBEDDINGS: "frozen joint embeddings",
    Baseline.OBJECT_DETECTION: "object detection",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """A NoStruct model of the same data set version, and what a reader is told of it; or why there is none."""

    model: LinkModel | None
    note: str


def score_beside(
    model: LinkModel,
    evaluation: Evaluation,
    lake: Lake,
    reference: str,
    *,
    split: str,
    config: EvaluateConfig,
    rival: Rival,
) -> tuple[Score, ...]:
    """Return the mean scores of each baseline on the documents of a model's evaluation, or why it has none.

    Args:
        model: that was evaluated.
        evaluation: what came of it.
        lake: holds the data set.
        reference: NAME@VERSION.
        split: of it.
        config: columns and word vectors of the baselines.
        rival: the NoStruct model.
    """
    manifest, _ = read_manifest(lake, reference)
    view = TextView.of(model.card.config)

    def nostruct() -> BaselineResult:
        if rival.model is None:
            raise UsageError(rival.note)
        with_pairs = evaluation.pairs is not None
        found = evaluate_model(rival.model, lake, reference, split, with_pairs=with_pairs)
        return BaselineResult(evaluation=found, note=rival.note)

    def joint_embeddings() -> BaselineResult:
        columns = joint_columns(manifest, config)
        return evaluate_baseline(Baseline.JOINT_EMBEDDINGS, lake, reference, split, config=columns, view=view)

    def object_detection() -> BaselineResult:
        if not evaluation.scores:
            raise UsageError("its K is chosen by AUC, which no document has")
        return evaluate_baseline(Baseline.OBJECT_DETECTION, lake, reference, split, config=config, view=view)

    attempts: Mapping[str, Callable[[], BaselineResult]] = {
        NOSTRUCT: nostruct,
        Baseline.JOINT_EMBEDDINGS: joint_embeddings,
        Baseline.OBJECT_DETECTION: object_detection,
    }
    return tuple(row for name, attempt in attempts.items() for row in _rows(str(name), attempt, evaluation))


def joint_columns(manifest: Manifest, config: EvaluateConfig) -> EvaluateConfig:
    """Return the settings with the columns of one joint model: those named, else the two of one name and size.

    Raises:
        UsageError: there are no such columns.
    """
    if AUTO not in (config.sentence_features, config.image_features):
        return config
    sentences, images = manifest.extractors("documents"), manifest.extractors("images")
    shared = sorted(name for name in sentences if sentences[name] == images.get(name))
    if not shared:
        raise UsageError("no two columns are named as of one joint model (sentence_features, image_features)")
    return replace(config, sentence_features=shared[0], image_features=shared[0])


def _rows(name: str, attempt: Callable[[], BaselineResult], own: Evaluation) -> tuple[Score, ...]:
    """Return a baseline's means, which are of the same kind and documents as the model's, or why there are none."""
    try:
        found = attempt()
        theirs = found.evaluation.scores if own.own.kind is own.scores.kind else found.evaluation.pairs
        if theirs is None or scored_ids(found.evaluation, theirs) != scored_ids(own, own.own):
            raise UsageError("it was not scored on the same documents: it reads other sentences of them")
    except UsageError as problem:
        return (absent(name, problem),)
    return of_measure(name, theirs.means().values(), note=found.note)
