"""Baselines that need no model, evaluated on a split of a data set as a model is (SPEC 7).

NoStruct is trained; here are the three that are not: random, object detection and frozen joint embeddings. Their
similarities come from `training.baselines`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from schemas.configs import require
from schemas.documents import Split
from schemas.errors import UsageError
from schemas.lake import Lake
from schemas.manifest import read_manifest
from training.baselines.joint_embeddings import joint_embeddings
from training.baselines.object_detection import MOST_CLASSES, Judged, WordVectors, best_k, judge
from training.baselines.random import random_scores
from training.data.documents import DocumentSet
from training.data.lake import Columns, read_split
from training.data.views import ALL_SENTENCES, TextView
from training.evaluation.evaluate import Evaluation, evaluate_embedded, evaluate_matrices
from training.text.tokens import tokenize
from training.text.word_vectors import PACKAGED, read_vectors

AUTO = "auto"


class Baseline(StrEnum):
    RANDOM = "random"
    OBJECT_DETECTION = "object-detection"
    JOINT_EMBEDDINGS = "joint-embeddings"


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineConfig:
    """What the baselines read; `auto` takes the only column there is.

    Attributes:
        image_features: image column of `joint-embeddings`.
        sentence_features: sentence column of `joint-embeddings`.
        class_features: classes of `object-detection`.
        word_vectors: of `object-detection`: a vector file or `glove-6b-50d` (packaged).
        word_dimensions: their size.
        seed: of `random`.
    """

    image_features: str = AUTO
    sentence_features: str = AUTO
    class_features: str = AUTO
    word_vectors: str = PACKAGED
    word_dimensions: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        require(self.word_dimensions > 0, field="word_dimensions", value=self.word_dimensions, rule="must be positive")
        require(self.seed >= 0, field="seed", value=self.seed, rule="must not be negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectDetection:
    """The object detection baseline, with K chosen in the two ways.

    Attributes:
        chosen: K chosen on the validation split, scored on the test split.
        chosen_k: that K.
        best: the best of all K on the test split itself, as the paper reports it: an upper bound.
        best_k: that K.
    """

    chosen: Evaluation | None
    chosen_k: int | None
    best: Evaluation
    best_k: int


def evaluate_random(lake: Lake, reference: str, split: Split | str = Split.TEST, *, seed: int = 0) -> Evaluation:
    """Return how well similarities drawn at random link a split of `NAME[@VERSION]`: no column is read.

    Raises:
        NotFoundError: the data set, version or split is not there.
        UsageError: no document can be scored.
    """
    manifest, folder = read_manifest(lake, reference)
    documents = read_split(manifest, folder, split, Columns(links=True))
    sizes = zip(documents.ids, documents.sentences.counts.tolist(), documents.images.counts.tolist(), strict=True)
    matrices = [random_scores(id_, n, m, seed=seed) for id_, n, m in sizes]
    return evaluate_matrices(documents.ids, matrices, documents.links or (), where=f"{reference}, split {split}")


def read_and_evaluate_object_detection(
    lake: Lake,
    reference: str,
    split: Split | str = Split.TEST,
    *,
    config: BaselineConfig,
    view: TextView = ALL_SENTENCES,
) -> ObjectDetection:
    """Return the object detection baseline on a split of `NAME[@VERSION]`, K chosen on its validation split.

    `view` says which sentences are read.

    Raises:
        NotFoundError: the data set, version or split is not there.
        ConfigError: the word vectors or the classes are not there.
        UsageError: no document can be scored.
    """
    manifest, folder = read_manifest(lake, reference)
    columns = Columns(classes=config.class_features, links=True)
    test = read_split(manifest, folder, split, columns, view=view)
    has_validation = bool(manifest.parts("documents", Split.VAL)) and split != Split.VAL
    validation = read_split(manifest, folder, Split.VAL, columns, view=view) if has_validation else None
    known = [each for each in (test, validation) if each is not None]
    vectors = class_word_vectors(config.word_vectors, *known, dimensions=config.word_dimensions)
    return evaluate_object_detection(test, validation, vectors, where=f"{reference}, split {split}")


def evaluate_object_detection(
    test: DocumentSet, validation: DocumentSet | None, vectors: WordVectors, *, where: str
) -> ObjectDetection:
    """Return the baseline's scores on test documents, K chosen on validation documents and on the test ones.

    Args:
        test: with links and classes.
        validation: likewise; without any, or without known links, no K can be chosen honestly.
        vectors: word -> vector, see `class_word_vectors`.
        where: what the messages call the documents.

    Raises:
        UsageError: the images have no classes, or no test document can be scored.
    """
    if test.classes is None:
        raise UsageError(f"{where}: the images have no classes; build the data set with a classifier")
    judged = judge(test, vectors)
    if not judged:
        raise UsageError(f"{where}: expected documents with some linked and some unlinked pairs, found none")
    best = best_k(judged)
    on_validation = judge(validation, vectors) if validation is not None and validation.classes is not None else []
    chosen_k = best_k(on_validation).k if on_validation else None
    chosen = judged[chosen_k - 1] if chosen_k is not None else None
    return ObjectDetection(
        chosen=None if chosen is None else _evaluation(test, chosen, where),
        chosen_k=chosen_k,
        best=_evaluation(test, best, where),
        best_k=best.k,
    )


def class_word_vectors(source: str, *splits: DocumentSet, dimensions: int) -> WordVectors:
    """Return the vectors of all words in the sentences and class labels of some documents.

    Args:
        source: a vector file or a packaged one, as `text.word_vectors`.
        splits: the documents.
        dimensions: size of a vector.
    """
    wanted = {word for documents in splits for text in documents.texts for word in tokenize(text)}
    for documents in splits:
        if documents.classes is not None:
            labels = {label for row in documents.classes.labels for label in row[:MOST_CLASSES]}
            wanted |= {word for label in labels for word in tokenize(label)}
    return dict(read_vectors(source, wanted, dimensions=dimensions))


def evaluate_joint_embeddings(
    lake: Lake,
    reference: str,
    split: Split | str = Split.TEST,
    *,
    sentence_features: str,
    image_features: str,
    view: TextView = ALL_SENTENCES,
) -> Evaluation:
    """Return how well two columns of one joint model link a split of `NAME[@VERSION]` without training.

    Where documents are pairs, retrieval is scored. `view` says which sentences are read.

    Raises:
        NotFoundError: the data set, version or split is not there.
        ConfigError: a column is not there.
        UsageError: the columns are of different sizes, or no document can be scored.
    """
    manifest, folder = read_manifest(lake, reference)
    columns = Columns(images=image_features, sentences=sentence_features, links=True)
    documents = read_split(manifest, folder, split, columns, view=view)
    return evaluate_embedded(documents, joint_embeddings(documents), where=f"{reference}, split {split}")


def _evaluation(documents: DocumentSet, judged: Judged, where: str) -> Evaluation:
    return evaluate_matrices(documents.ids, judged.matrices, documents.links or (), where=where)
