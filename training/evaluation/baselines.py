"""Baselines (SPEC 7): object detection, frozen joint embeddings, class names, without training; all beside a model.

Each gives similarities of a document's sentences and images, which are scored as a model's are. Every evaluation has
random's (`evaluate.py`); the nearest sentence's are in `position.py`. Beside a model stands each
baseline whose needs its data set meets, on the documents the model was judged on, read as the model reads them; one
that cannot be scored is named with its reason. NoStruct is a trained model of the registry
(`training.mlflow.registering`).

Object detection (Hessel 2019, 3.3): an image is the mean of the word vectors of its K most probable class labels, a
sentence the mean of its words' vectors; their cosine is the similarity. K runs over 1 to 20. The paper reports the K
that is best on the test split (an upper bound that looks at the answers); the honest number is that of the K that is
best on the validation split.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

import numpy as np

from schemas.documents import Split
from schemas.features import FeatureKind
from schemas.lake import Lake
from schemas.manifest import Manifest, read_manifest
from schemas.messages import UsageError
from training.data.documents import ALL_SENTENCES, ClassBank, DocumentSet, TextView
from training.data.lake import Columns, read_split
from training.data.loading import joint_size
from training.data.ragged import Float32, unit_rows
from training.evaluation.evaluate import (
    AUTO,
    POSITION,
    EvaluateConfig,
    Evaluation,
    absent,
    evaluate_embedded,
    evaluate_matrices,
    of_measure,
)
from training.evaluation.models import CLASS_NAMES, evaluate_model, named_columns, read_sampled
from training.evaluation.position import evaluate_nearest
from training.metrics.intervals import Score
from training.metrics.links import mean_auc
from training.model import EmbeddedDocument, LinkModel, embedded
from training.text.vocabulary import read_vectors, tokenize

MAX_CLASSES = 20
WordVectors = Mapping[str, Float32]
NOSTRUCT = "nostruct"


class Baseline(StrEnum):
    NEAREST_SENTENCE = "nearest-sentence"
    OBJECT_DETECTION = "object-detection"
    JOINT_EMBEDDINGS = "joint-embeddings"
    CLASS_NAMES = CLASS_NAMES


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineResult:
    """A baseline's evaluation, and a note on how it was made."""

    evaluation: Evaluation
    note: str = ""


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

    `view` selects the sentences that are read.

    Raises:
        NotFoundError: the data set, version or split is not there.
        ConfigError: a column or the word vectors are not there.
        UsageError: the data set does not carry what the baseline needs, or no document can be scored.
    """
    manifest, folder = read_sampled(lake, reference, config)
    where, read = f"{reference}, split {split}", partial(read_split, manifest, folder, view=view)
    if view.is_fused:
        raise UsageError("the model fuses a document's texts, which this baseline cannot")
    if baseline is Baseline.CLASS_NAMES:
        sentences, images = named_columns(manifest)
        config = replace(config, sentence_features=sentences, image_features=images)
    if baseline in (Baseline.JOINT_EMBEDDINGS, Baseline.CLASS_NAMES):
        documents = read(split, Columns(images=config.image_features, sentences=config.sentence_features, links=True))
        names = dict.fromkeys((config.sentence_features, config.image_features))
        embedded = evaluate_embedded(documents, joint_embeddings(documents), where=where)
        return BaselineResult(evaluation=embedded, note=f"zero-shot, {' and '.join(names)}")
    if baseline is Baseline.OBJECT_DETECTION and not manifest.extractors("images", FeatureKind.CLASSES):
        raise UsageError("the data set has no classes of its images; build it with a classifier")
    is_nearest = baseline is Baseline.NEAREST_SENTENCE
    columns = Columns(links=True, places=True) if is_nearest else Columns(classes=config.class_features, links=True)
    has_validation = bool(manifest.parts("documents", Split.VAL)) and split != Split.VAL
    test, validation = read(split, columns), read(Split.VAL, columns) if has_validation else None
    if is_nearest:
        evaluation, note = evaluate_nearest(test, validation, where=where)
        return BaselineResult(evaluation=evaluation, note=note)
    splits = [each for each in (test, validation) if each is not None]
    vectors = class_word_vectors(config.word_vectors, *splits, dimensions=config.word_dimensions)
    return evaluate_object_detection(test, validation, vectors, where=where)


def evaluate_object_detection(
    test: DocumentSet, validation: DocumentSet | None, vectors: WordVectors, *, where: str
) -> BaselineResult:
    """Return the baseline's scores on test documents, with K chosen on validation documents where that can be done.

    Without a K chosen on validation the scores are of the best of all K on the test documents themselves, as the paper
    reports it (an upper bound). The note has both and the AUC of the best.

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
    best_k, k = max(on_test, key=on_test.__getitem__), max(on_validation, key=on_validation.__getitem__, default=None)
    matrices = object_detection_scores(test, vectors, k=k or best_k)
    if k is None:
        note = f"K = {best_k}, the best on these documents: there is no validation document to choose it by"
    else:
        note = f"K = {k} by validation; the best here, {best_k}, has AUC {on_test[best_k]:.1f}"
    return BaselineResult(evaluation=evaluate_matrices(test.ids, matrices, test.links or (), where=where), note=note)


def auc_by_k(
    documents: DocumentSet, vectors: WordVectors, ks: Sequence[int] = range(1, MAX_CLASSES + 1)
) -> dict[int, float]:
    """Return the mean AUROC of each K on documents with known links; without a document to score, none."""
    if not documents.links:
        return {}
    return mean_auc(ks, lambda k: object_detection_scores(documents, vectors, k=k), documents.links)


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
    return tuple(
        document.similarities()
        for document in embedded(documents, unit_rows(texts, np.float32), unit_rows(images, np.float32))
    )


def mean_vectors(texts: Sequence[str], vectors: WordVectors, *, dimensions: int) -> Float32:
    """Return N x w means of the word vectors of texts: words without a vector are passed over; without any, 0."""
    means = np.zeros((len(texts), dimensions), np.float32)
    for row, text in enumerate(texts):
        word_rows = [vectors[word] for word in tokenize(text) if word in vectors]
        if word_rows:
            means[row] = np.mean(word_rows, axis=0)
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
        label_rows = [of_label[labels[index]] for index in order if labels[index] and of_label[labels[index]].any()]
        if label_rows:
            means[row] = np.mean(label_rows, axis=0)
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
    texts, images = documents.sentence_vectors, documents.image_bank
    if texts is None:
        raise UsageError("joint embeddings need sentence vectors; found none")
    joint_size(texts.shape[1], images.shape[1])
    return tuple(embedded(documents, unit_rows(texts, np.float32), unit_rows(images, np.float32)))


TITLES: Mapping[str, str] = {
    POSITION: "the model with position",
    NOSTRUCT: "NoStruct",
    Baseline.NEAREST_SENTENCE: "nearest sentence",
    Baseline.JOINT_EMBEDDINGS: "frozen joint embeddings",
    Baseline.OBJECT_DETECTION: "object detection",
    Baseline.CLASS_NAMES: "class names",
}


def score_beside(
    model: LinkModel,
    evaluation: Evaluation,
    lake: Lake,
    reference: str,
    *,
    split: str,
    config: EvaluateConfig,
    load_nostruct: Callable[[], tuple[LinkModel, str]],
) -> tuple[Score, ...]:
    """Return the mean scores of each baseline on the documents of a model's evaluation, or why it has none.

    Args:
        model: that was evaluated.
        evaluation: of the model.
        lake: holds the data set.
        reference: NAME@VERSION.
        split: of it.
        config: columns and word vectors of the baselines.
        load_nostruct: gives the NoStruct model of the same data set version and a note for the reader; raises a
            UsageError where there is none.
    """
    view = TextView.of(model.card.config.reading)

    def nostruct() -> BaselineResult:
        other, note = load_nostruct()
        evaluated = evaluate_model(
            other,
            lake,
            reference,
            split,
            with_pairs=evaluation.pairs is not None,
            max_documents=config.max_documents,
        )
        return BaselineResult(evaluation=evaluated, note=note)

    def of(baseline: Baseline) -> BaselineResult:
        settings = config
        if baseline is Baseline.JOINT_EMBEDDINGS:
            settings = joint_columns(read_manifest(lake, reference)[0], config)
        if baseline is Baseline.OBJECT_DETECTION and not evaluation.scores:
            raise UsageError("its K is chosen by AUC, which no document has")
        return evaluate_baseline(baseline, lake, reference, split, config=settings, view=view)

    rows = [*_rows(NOSTRUCT, nostruct, evaluation)]
    for baseline in Baseline:
        rows += _rows(baseline.value, partial(of, baseline), evaluation)
    return tuple(rows)


def joint_columns(manifest: Manifest, config: EvaluateConfig) -> EvaluateConfig:
    """Return the settings with the columns of one joint model: those named, else the two of one name and size.

    `NAME-images` and `NAME-texts` are of one name, too (`examples/export_towers.py`).

    Raises:
        UsageError: there are no such columns.
    """
    if AUTO not in (config.sentence_features, config.image_features):
        return config
    images = manifest.extractors("images")
    image_of = {(name.removesuffix("-images"), size): name for name, size in images.items()}
    for name, size in sorted(manifest.extractors("documents").items()):
        if image := image_of.get((name.removesuffix("-texts"), size)):
            return replace(config, sentence_features=name, image_features=image)
    raise UsageError("no two columns are named as of one joint model (sentence_features, image_features)")


def _rows(name: str, attempt: Callable[[], BaselineResult], judged: Evaluation) -> tuple[Score, ...]:
    """Return a baseline's means, which are of the same kind and documents as the model's, or why there are none."""
    try:
        result = attempt()
        theirs = result.evaluation.scores if judged.own.kind is judged.scores.kind else result.evaluation.pairs
        if theirs is None or [*result.evaluation.by_document(theirs)] != [*judged.by_document(judged.own)]:
            raise UsageError("it was not scored on the same documents: it reads other sentences of them")
    except UsageError as problem:
        return (absent(name, problem),)
    return of_measure(name, theirs.means().values(), note=result.note)
