"""Baselines (SPEC 7): object detection and frozen joint embeddings, which need no model; and what stands beside one.

Each gives similarities of a document's sentences and images, which are scored as a model's are. Random's are in
`evaluate.py`, since every evaluation has them; the nearest sentence's are in `nearest.py`. Beside a model stands each
baseline that its data set carries what it needs for, on the documents the model was judged on, read as the model reads
them; one that cannot be scored is named with its reason. NoStruct is trained: which model there is, is the registry's
to say (`training.mlflow.registering`).

Object detection (Hessel 2019, 3.3): an image is the mean of the word vectors of its K most probable class labels, a
sentence the mean of its words' vectors; their cosine is the similarity. K runs over 1 to 20. The paper reports the K
that is best on the test split (an upper bound that looks at the answers); the honest number is that of the K that is
best on the validation split.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from schemas.documents import Split
from schemas.errors import UsageError
from schemas.evaluation import Score
from schemas.features import FeatureKind
from schemas.lake import Lake
from schemas.manifest import Manifest, read_manifest
from training.data.documents import ClassBank, DocumentSet
from training.data.lake import Columns, read_split
from training.data.ragged import Float32, Floats
from training.data.views import ALL_SENTENCES, TextView
from training.evaluation.evaluate import (
    AUTO,
    POSITION,
    EvaluateConfig,
    Evaluation,
    absent,
    evaluate_embedded,
    evaluate_matrices,
    evaluate_model,
    of_measure,
    random_similarities,
    scored_ids,
)
from training.evaluation.nearest import evaluate_nearest
from training.metrics.links import score_documents
from training.model import EmbeddedDocument, LinkModel, embedded
from training.text.vocabulary import tokenize
from training.text.word_vectors import read_vectors

MAX_CLASSES = 20
WordVectors = Mapping[str, Float32]
NOSTRUCT = "nostruct"


class Baseline(StrEnum):
    RANDOM = "random"
    NEAREST_SENTENCE = "nearest-sentence"
    OBJECT_DETECTION = "object-detection"
    JOINT_EMBEDDINGS = "joint-embeddings"


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineResult:
    """A baseline's evaluation, and how it came about: in words, and as values for a machine."""

    evaluation: Evaluation
    note: str = ""
    values: Mapping[str, float | str | None] = field(default_factory=dict)


def evaluate_baseline(
    baseline: Baseline,
    lake: Lake,
    reference: str,
    split: Split | str,
    *,
    config: EvaluateConfig,
    view: TextView = ALL_SENTENCES,
) -> BaselineResult:
    """Return how well a baseline links a split of `NAME[@VERSION]`; where documents are pairs, retrieval is scored.

    `view` says which sentences are read.

    Raises:
        NotFoundError: the data set, version or split is not there.
        ConfigError: a column or the word vectors are not there.
        UsageError: the data set does not carry what the baseline needs, or no document can be scored.
    """
    manifest, folder = read_manifest(lake, reference)
    where = f"{reference}, split {split}"
    if baseline is Baseline.RANDOM:
        documents = read_split(manifest, folder, split, Columns(links=True), view=view)
        sizes = zip(documents.ids, documents.sentences.counts.tolist(), documents.images.counts.tolist(), strict=True)
        matrices = [random_similarities(name, n, m, seed=config.seed) for name, n, m in sizes]
        return BaselineResult(evaluation=evaluate_matrices(documents.ids, matrices, documents.links or (), where=where))
    if view.is_fused:
        raise UsageError("the model fuses a document's texts, which this baseline cannot")
    has_validation = bool(manifest.parts("documents", Split.VAL)) and split != Split.VAL
    if baseline is Baseline.NEAREST_SENTENCE:
        columns = Columns(links=True, places=True)
        documents = read_split(manifest, folder, split, columns, view=view)
        validation = read_split(manifest, folder, Split.VAL, columns, view=view) if has_validation else None
        evaluation, side, note = evaluate_nearest(documents, validation, where=where)
        return BaselineResult(evaluation=evaluation, note=note, values={"side": str(side)})
    if baseline is Baseline.JOINT_EMBEDDINGS:
        columns = Columns(images=config.image_features, sentences=config.sentence_features, links=True)
        documents = read_split(manifest, folder, split, columns, view=view)
        names = dict.fromkeys((config.sentence_features, config.image_features))
        evaluation = evaluate_embedded(documents, joint_embeddings(documents), where=where)
        return BaselineResult(evaluation=evaluation, note=f"zero-shot, {' and '.join(names)}")
    if not manifest.extractors("images", FeatureKind.CLASSES):
        raise UsageError("the data set has no classes of its images; build it with a classifier")
    columns = Columns(classes=config.class_features, links=True)
    test = read_split(manifest, folder, split, columns, view=view)
    validation = read_split(manifest, folder, Split.VAL, columns, view=view) if has_validation else None
    known = [each for each in (test, validation) if each is not None]
    vectors = class_word_vectors(config.word_vectors, *known, dimensions=config.word_dimensions)
    return evaluate_object_detection(test, validation, vectors, where=where)


def evaluate_object_detection(
    test: DocumentSet, validation: DocumentSet | None, vectors: WordVectors, *, where: str
) -> BaselineResult:
    """Return the baseline's scores on test documents, with K chosen on validation documents where that can be done.

    Its values are `k`, that K or None; `best_k`, the best of all K on the test documents themselves, as the paper
    reports it (an upper bound); and `best_auc`, its AUC. Without a K chosen on validation the scores are of `best_k`.

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
    on_test = auc_by_k(test, vectors)
    if not on_test:
        raise UsageError(f"{where}: expected documents with some linked and some unlinked pairs, found none")
    on_validation = auc_by_k(validation, vectors) if validation is not None and validation.classes is not None else {}
    best_k, k = best(on_test), best(on_validation) if on_validation else None
    matrices = object_detection_scores(test, vectors, k=k or best_k)
    if k is None:
        note = f"K = {best_k}, the best on these documents: there is no validation document to choose it by"
    else:
        note = f"K = {k} by validation; the best here, {best_k}, has AUC {on_test[best_k]:.1f}"
    return BaselineResult(
        evaluation=evaluate_matrices(test.ids, matrices, test.links or (), where=where),
        note=note,
        values={"k": k, "best_k": best_k, "best_auc": on_test[best_k]},
    )


def auc_by_k(
    documents: DocumentSet, vectors: WordVectors, ks: Sequence[int] = range(1, MAX_CLASSES + 1)
) -> dict[int, float]:
    """Return the mean AUROC of each K on documents with known links; without a document to score, none."""
    found = {}
    for k in ks if documents.links else ():
        scores = score_documents(object_detection_scores(documents, vectors, k=k), documents.links or ())
        if scores:
            found[k] = float(scores.table()[:, 0].mean())
    return found


def best(auc: Mapping[int, float]) -> int:
    """Return the K with the highest AUROC; of equals, the smallest."""
    highest = max(auc.values())
    return min(k for k, value in auc.items() if value == highest)


def object_detection_scores(documents: DocumentSet, vectors: WordVectors, *, k: int) -> tuple[Float32, ...]:
    """Return each document's n x m cosines; where a sentence or an image has no known word, they are 0.

    Args:
        documents: with the classes of their images.
        vectors: word -> vector, all of one size.
        k: how many classes of an image count.
    """
    if documents.classes is None:
        raise ValueError("the documents' classes were not read")
    dimensions = len(next(iter(vectors.values()))) if vectors else 1
    texts = mean_vectors(documents.texts, vectors, dimensions=dimensions)
    images = class_means(documents.classes, vectors, k=k, dimensions=dimensions)
    return tuple(document.similarities() for document in embedded(documents, _unit(texts), _unit(images)))


def mean_vectors(texts: Sequence[str], vectors: WordVectors, *, dimensions: int) -> Float32:
    """Return N x w means of the word vectors of texts: words without a vector are passed over; without any, 0."""
    means = np.zeros((len(texts), dimensions), np.float32)
    for row, text in enumerate(texts):
        known = [vectors[word] for word in tokenize(text) if word in vectors]
        if known:
            means[row] = np.mean(known, axis=0)
    return means


def class_means(classes: ClassBank, vectors: WordVectors, *, k: int, dimensions: int) -> Float32:
    """Return U x w means of the label vectors of each image's K most probable classes.

    A label's vector is the mean of its words'. A label without any is passed over: it is not among the K averaged.
    """
    different = sorted({label for labels in classes.labels for label in labels if label})
    of_label = dict(zip(different, mean_vectors(different, vectors, dimensions=dimensions), strict=True))
    means = np.zeros((len(classes.labels), dimensions), np.float32)
    for row, labels in enumerate(classes.labels):
        order = np.argsort(-classes.probabilities[row], kind="stable")[:k]
        known = [of_label[labels[index]] for index in order if labels[index] and of_label[labels[index]].any()]
        if known:
            means[row] = np.mean(known, axis=0)
    return means


def class_word_vectors(source: str, *splits: DocumentSet, dimensions: int) -> WordVectors:
    """Return the vectors of all words in the sentences and class labels of some documents.

    Args:
        source: a vector file or a packaged one, as `text.word_vectors`.
        splits: the documents.
        dimensions: size of a vector.
    """
    labels = [row[:MAX_CLASSES] for documents in splits if documents.classes for row in documents.classes.labels]
    texts = {text for group in (*(documents.texts for documents in splits), *labels) for text in group}
    return dict(read_vectors(source, {word for text in texts for word in tokenize(text)}, dimensions=dimensions))


def joint_embeddings(documents: DocumentSet) -> tuple[EmbeddedDocument, ...]:
    """Return each document's sentence and image vectors of a joint text-image model (CLIP-style) as unit vectors.

    Their products are the zero-shot similarities.

    Raises:
        UsageError: there are no sentence vectors, or the two columns are of different sizes.
    """
    if documents.sentence_vectors is None:
        raise UsageError(
            "zero-shot scores need two columns of one joint model: sentence vectors and image vectors; "
            "found no sentence vectors"
        )
    text_size, image_size = documents.sentence_vectors.shape[1], documents.image_bank.shape[1]
    if text_size != image_size:
        raise UsageError(
            f"sentence vectors have {text_size} numbers, image vectors {image_size}: they are not of one joint model; "
            "name its two columns"
        )
    return tuple(embedded(documents, _unit(documents.sentence_vectors), _unit(documents.image_bank)))


def _unit(rows: Floats) -> Float32:
    wide = rows.astype(np.float32)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    return (wide / np.where(lengths > 0, lengths, 1)).astype(np.float32)


TITLES: Mapping[str, str] = {
    POSITION: "the model with position",
    NOSTRUCT: "NoStruct",
    Baseline.NEAREST_SENTENCE: "nearest sentence",
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

    def nearest_sentence() -> BaselineResult:
        return evaluate_baseline(Baseline.NEAREST_SENTENCE, lake, reference, split, config=config, view=view)

    def joint_embeddings() -> BaselineResult:
        columns = joint_columns(manifest, config)
        return evaluate_baseline(Baseline.JOINT_EMBEDDINGS, lake, reference, split, config=columns, view=view)

    def object_detection() -> BaselineResult:
        if not evaluation.scores:
            raise UsageError("its K is chosen by AUC, which no document has")
        return evaluate_baseline(Baseline.OBJECT_DETECTION, lake, reference, split, config=config, view=view)

    attempts: Mapping[str, Callable[[], BaselineResult]] = {
        NOSTRUCT: nostruct,
        Baseline.NEAREST_SENTENCE: nearest_sentence,
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
