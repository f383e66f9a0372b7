"""Which links a model predicts in a document: the best one-to-one assignment of its sentences and images.

As in figure 4 of Hessel 2019, the predicted edges are the matching that AP sums over. Every pair has a similarity, but
a table of all of them is not a prediction; and since a threshold on cosines would have to be tuned on ground truth,
which this project never shows a model, there is none beyond zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from schemas.errors import IntegrityError, UsageError
from schemas.failures import Failure, Reason, Stage
from schemas.links import PredictedLink
from training.assignment import Matrix
from training.config import Matching
from training.linking.calibration import Calibration
from training.matching import match
from training.model import DocumentInput, LinkModel

DOCUMENTS_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class LinkInput:
    """A document to be linked, with its id."""

    id: str
    document: DocumentInput


@dataclass(frozen=True, slots=True)
class LinkedDocument:
    """A document's predicted links, the most similar first."""

    id: str
    links: tuple[PredictedLink, ...]


def link_documents(
    model: LinkModel,
    documents: Iterable[LinkInput],
    *,
    model_uri: str,
    calibration: Calibration | None = None,
    precision: float | None = None,
) -> Iterator[LinkedDocument | Failure]:
    """Yield each document with its predicted links, or why it has none, in order; a few are in memory at a time.

    Args:
        model: predicts.
        documents: to be linked. One that lacks what the model reads, or whose vectors are not finite, is a failure.
        model_uri: address of the model.
        calibration: gives links their probability.
        precision: share of links, 0 to 1, that is to be true: links below the calibration's threshold are left out.

    Raises:
        UsageError: a precision without a calibration, or one that no threshold reaches.
    """
    threshold = threshold_of(calibration, precision, model_uri)
    waiting = iter(documents)
    while batch := list(islice(waiting, DOCUMENTS_AT_ONCE)):
        for item, found in zip(batch, _matrices(model, batch), strict=True):
            if isinstance(found, Failure):
                yield found
                continue
            links = predicted_links(item.id, found, model_uri=model_uri)
            kept = [link for link in links if link.similarity >= threshold]
            yield LinkedDocument(item.id, tuple(calibrated(kept, calibration)))


def predicted_links(document: str, matrix: Matrix, *, model_uri: str) -> list[PredictedLink]:
    """Return the links of one document, the most similar first.

    They are the maximum-weight matching of at most min(n, m) edges of the n x m matrix: each sentence and each image
    has at most one link, and no link has a similarity below zero.
    """
    if not matrix.size:
        return []
    rows, columns = match(matrix, min(matrix.shape), Matching.AT_MOST)
    weights = matrix[rows, columns]
    order = np.lexsort((columns, rows, -weights))
    return [
        PredictedLink(document, int(rows[e]), int(columns[e]), float(weights[e]), rank, model_uri)
        for rank, e in enumerate(order, start=1)
    ]


def threshold_of(calibration: Calibration | None, precision: float | None, model_uri: str) -> float:
    """Return the similarity below which links are left out.

    Raises:
        UsageError: a precision is wanted and there is no calibration, or none of its thresholds reaches it.
    """
    if precision is None:
        return -np.inf
    if calibration is None:
        raise UsageError(
            f"--precision {precision:g}: {model_uri} has no calibration; `multilink evaluate` makes one where the "
            "data set it was trained on has validation links, or give one with --calibration"
        )
    return calibration.threshold(precision)


def _matrices(model: LinkModel, batch: Sequence[LinkInput]) -> list[Matrix | Failure]:
    """Return each document's similarities, or why there are none.

    Where the batch as a whole is refused, each document is asked for by itself: one bad document costs no other.
    """
    try:
        matrices = model.similarities(item.document for item in batch)
    except (UsageError, IntegrityError) as problem:
        if len(batch) == 1:
            return [_failure(batch[0].id, Reason.UNREADABLE, str(problem), type(problem).__name__)]
        return [found for item in batch for found in _matrices(model, [item])]
    return [
        matrix if np.isfinite(matrix).all() else _failure(item.id, Reason.NOT_FINITE, "its vectors are not finite")
        for item, matrix in zip(batch, matrices, strict=True)
    ]


def _failure(document: str, reason: Reason, message: str, exception: str | None = None) -> Failure:
    return Failure(Stage.LINKING, document, reason, message, exception)


def calibrated(links: list[PredictedLink], calibration: Calibration | None) -> list[PredictedLink]:
    """Return links with their probability, where there is a calibration."""
    if calibration is None or not links:
        return links
    probabilities = calibration.probability(np.array([link.similarity for link in links])).tolist()
    return [replace(link, probability=value) for link, value in zip(links, probabilities, strict=True)]
