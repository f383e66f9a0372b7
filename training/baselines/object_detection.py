"""The object detection baseline (Hessel 2019, 3.3): words of an image's likeliest classes against words of a sentence.

An image is the mean of the word vectors of its K most probable class labels, a sentence the mean of its words' vectors;
their cosine is the similarity. K runs over 1 to 20. The paper reports the K that is best on the test split (`best_k`,
an upper bound that looks at the answers); the honest number is that of the K that is best on the validation split.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from training.baselines.cosines import document_cosines
from training.data.documents import ClassBank, DocumentSet
from training.evaluation.links import score_documents
from training.text.tokens import tokenize

Float32 = npt.NDArray[np.float32]
WordVectors = Mapping[str, Float32]
MOST_CLASSES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The scores of one K: mean AUROC over documents, times 100, and the n x m similarities of each document."""

    k: int
    auc: float
    matrices: tuple[Float32, ...]


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
        known = [of_label[labels[place]] for place in order if labels[place] and of_label[labels[place]].any()]
        if known:
            means[row] = np.mean(known, axis=0)
    return means


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
    return document_cosines(documents, texts, class_means(documents.classes, vectors, k=k, dimensions=dimensions))


def judge(documents: DocumentSet, vectors: WordVectors, ks: Sequence[int] = range(1, MOST_CLASSES + 1)) -> list[Judged]:
    """Return the mean AUROC of each K on documents with known links; without a document to score, none."""
    found: list[Judged] = []
    for k in ks:
        matrices = object_detection_scores(documents, vectors, k=k)
        table = score_documents(matrices, documents.links or ()).table() if documents.links else np.zeros((0, 3))
        if len(table):
            found.append(Judged(k=k, auc=float(table[:, 0].mean()), matrices=matrices))
    return found


def best_k(judged: Sequence[Judged]) -> Judged:
    """Return the K with the highest AUROC; of equals, the smallest."""
    return max(judged, key=_by_auc)


def _by_auc(judged: Judged) -> tuple[float, int]:
    return judged.auc, -judged.k
