"""What stands beside a model in its report: each baseline that a data set carries what it needs for.

The baselines are scored on the documents the model was judged on, read as the model reads them; one that cannot be is
named with its reason. Random's scores are part of every `Evaluation`; which NoStruct model there is, is the registry's
to say (`training.mlflow.evaluations`); the baselines themselves are in `baselines.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from schemas.errors import UsageError
from schemas.features import FeatureKind
from schemas.lake import Lake
from schemas.manifest import Manifest, read_manifest
from training.data.views import TextView
from training.evaluation.baselines import (
    AUTO,
    Baseline,
    BaselineConfig,
    evaluate_joint_embeddings,
    read_and_evaluate_object_detection,
)
from training.evaluation.evaluate import Evaluation, MeanScores, evaluate_model
from training.evaluation.pair_scores import PairMeans
from training.model import LinkModel

NOSTRUCT = "nostruct"
TITLES: Mapping[str, str] = {
    NOSTRUCT: "NoStruct",
    Baseline.JOINT_EMBEDDINGS: "frozen joint embeddings",
    Baseline.OBJECT_DETECTION: "object detection",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineScores:
    """One baseline on the documents of an evaluation.

    Attributes:
        name: `nostruct`, or one of `Baseline`.
        means: of the same kind as the model's.
        note: how they came about.
    """

    name: str
    means: MeanScores | PairMeans
    note: str = ""

    @property
    def title(self) -> str:
        return TITLES[self.name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """The baselines that could be scored, and why the others could not."""

    scores: tuple[BaselineScores, ...] = ()
    absent: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """A NoStruct model of the same data set version, and what a reader is told of it; or why there is none."""

    model: LinkModel | None
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ground:
    """What the baselines are scored on: a split in the view of the model, and the model's evaluation on it."""

    lake: Lake
    manifest: Manifest
    split: str
    view: TextView
    evaluation: Evaluation

    @property
    def reference(self) -> str:
        return f"{self.manifest.dataset}@{self.manifest.version}"


def score_beside(
    model: LinkModel,
    evaluation: Evaluation,
    lake: Lake,
    reference: str,
    *,
    split: str,
    config: BaselineConfig,
    rival: Rival,
) -> Beside:
    """Return the baselines on the documents of a model's evaluation.

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
    ground = _Ground(lake=lake, manifest=manifest, split=split, view=view, evaluation=evaluation)
    scores, absent = [], {}
    for name, found in _attempts(ground, config, rival):
        if isinstance(found, str):
            absent[name] = found
        else:
            scores.append(found)
    return Beside(scores=tuple(scores), absent=absent)


def joint_columns(manifest: Manifest, config: BaselineConfig) -> tuple[str, str] | None:
    """Return the sentence and image column of one joint model: as named, else the two of one name and size."""
    if AUTO not in (config.sentence_features, config.image_features):
        return config.sentence_features, config.image_features
    sentences, images = manifest.extractors("documents"), manifest.extractors("images")
    shared = sorted(name for name in sentences if sentences[name] == images.get(name))
    return (shared[0], shared[0]) if shared else None


def _attempts(ground: _Ground, config: BaselineConfig, rival: Rival) -> Iterator[tuple[str, BaselineScores | str]]:
    """Yield each baseline's scores, or why there are none."""
    for name, make in (
        (NOSTRUCT, partial(_nostruct, ground, rival)),
        (str(Baseline.JOINT_EMBEDDINGS), partial(_joint_embeddings, ground, config)),
        (str(Baseline.OBJECT_DETECTION), partial(_object_detection, ground, config)),
    ):
        try:
            yield name, make()
        except UsageError as problem:
            yield name, str(problem)


def _nostruct(ground: _Ground, rival: Rival) -> BaselineScores:
    if rival.model is None:
        raise UsageError(rival.note)
    with_pairs = ground.evaluation.pairs is not None
    found = evaluate_model(rival.model, ground.lake, ground.reference, ground.split, with_pairs=with_pairs)
    return BaselineScores(name=NOSTRUCT, means=_same_means(found, ground.evaluation), note=rival.note)


def _joint_embeddings(ground: _Ground, config: BaselineConfig) -> BaselineScores:
    columns = joint_columns(ground.manifest, config)
    if columns is None:
        raise UsageError("no two columns are named as of one joint model (sentence_features, image_features)")
    _refuse_fused(ground)
    sentences, images = columns
    found = evaluate_joint_embeddings(
        ground.lake,
        ground.reference,
        ground.split,
        sentence_features=sentences,
        image_features=images,
        view=ground.view,
    )
    note = sentences if sentences == images else f"{sentences} and {images}"
    means = _same_means(found, ground.evaluation)
    return BaselineScores(name=str(Baseline.JOINT_EMBEDDINGS), means=means, note=f"zero-shot, {note}")


def _object_detection(ground: _Ground, config: BaselineConfig) -> BaselineScores:
    if not ground.manifest.extractors("images", FeatureKind.CLASSES):
        raise UsageError("the data set has no classes of its images")
    if ground.evaluation.link_means is None:
        raise UsageError("its K is chosen by AUC, which no document has")
    _refuse_fused(ground)
    found = read_and_evaluate_object_detection(
        ground.lake, ground.reference, ground.split, config=config, view=ground.view
    )
    if found.chosen is None:
        note, shown = f"K = {found.best_k}, the best on these documents", found.best
    else:
        best = f"the best here, {found.best_k}, has AUC {found.best.mean.auc.mean:.1f}"
        note, shown = f"K = {found.chosen_k} by validation; {best}", found.chosen
    return BaselineScores(name=str(Baseline.OBJECT_DETECTION), means=_same_means(shown, ground.evaluation), note=note)


def _refuse_fused(ground: _Ground) -> None:
    if ground.view.is_fused:
        raise UsageError("the model fuses a document's texts, which this baseline cannot")


def _same_means(found: Evaluation, own: Evaluation) -> MeanScores | PairMeans:
    """Return the means of a baseline on the documents that the model was scored on.

    Raises:
        UsageError: it was scored on others.
    """
    if own.link_means is not None:
        if found.link_means is None or _ids(found, found.scored) != _ids(own, own.scored):
            raise UsageError("it was not scored on the same documents: it reads other sentences of them")
        return found.link_means
    if own.pairs is None or found.pairs is None or _ids(found, found.pairs.documents) != _ids(own, own.pairs.documents):
        raise UsageError("it was not scored on the same documents: it reads other sentences of them")
    return found.pairs.means()


def _ids(evaluation: Evaluation, places: Sequence[int]) -> list[str]:
    return [evaluation.ids[place] for place in places]
