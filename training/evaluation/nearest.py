"""The nearest sentence of an image in the layout, as a baseline.

A data set states how many sentences stand before an image (`schemas.documents`): it stands between two of them. A
sentence is as near as its distance is small, counted in sentences from the one that the side names:

    sentence     ...  2     3     4     5  ...          an image at 4, after sentence 3
    after             2     1     0     1               the sentence beside or below the image
    before            1     0     1     2               the sentence above it
    either           1.5   0.5   0.5   1.5              both alike

Validation links choose the side, as they choose the K of object detection; without them both sides count alike.
Ties are scored by their expectation. Where every true link leads to the sentence that the layout names, the layout is
the truth, and the baseline is an upper bound by construction, not a competitor of what reads texts and images: the note
of its scores says so. (Images without a link stand somewhere, too: they cost it a few points.)
"""

from collections.abc import Mapping
from enum import StrEnum
from functools import partial

import numpy as np

from schemas.documents import AFTER_SENTENCE
from schemas.errors import UsageError
from training.data.documents import UNKNOWN_PLACE, DocumentSet
from training.data.ragged import Float32, Int64
from training.evaluation.evaluate import Evaluation, evaluate_matrices
from training.metrics.links import mean_auc


class Side(StrEnum):
    """Which sentence an image is nearest to."""

    EITHER = "either"
    AFTER = "after"
    BEFORE = "before"

    @property
    def words(self) -> str:
        """Return the side in words."""
        return _WORDS[self]


_OFFSETS: Mapping[Side, float] = {Side.EITHER: 0.5, Side.AFTER: 0.0, Side.BEFORE: 1.0}
_WORDS: Mapping[Side, str] = {
    Side.EITHER: "the sentences before and after an image alike",
    Side.AFTER: "the sentence beside or below an image",
    Side.BEFORE: "the sentence above an image",
}


def nearness(sentences: Int64, after_sentence: Int64, side: Side) -> Float32:
    """Return n x m: 1 / (1 + distance) of sentences and images, in (0, 1]; 0 for an image of unknown place.

    It orders pairs as minus the distance does, and is on the scale of a cosine.

    Args:
        sentences: n numbers of sentences in their document, from 0.
        after_sentence: m places of images, `UNKNOWN_PLACE` where not known.
        side: see the module.
    """
    distances = np.abs(sentences[:, None] - after_sentence[None, :] + _OFFSETS[side])
    return np.where(after_sentence[None, :] == UNKNOWN_PLACE, 0, 1 / (1 + distances)).astype(np.float32)


def places_of(documents: DocumentSet, *, where: str) -> Int64:
    """Return M places of the documents' images.

    Raises:
        UsageError: none is known, or the documents' rows are not single sentences.
    """
    if documents.sources is not None:
        raise UsageError("the model fuses a document's texts, of which none is nearer to an image")
    if documents.after_sentence is None or (documents.after_sentence == UNKNOWN_PLACE).all():
        raise UsageError(f"{where} does not say where images stand among the sentences ({AFTER_SENTENCE})")
    return documents.after_sentence


def nearest_similarities(documents: DocumentSet, side: Side, *, where: str) -> list[Float32]:
    """Return each document's n x m nearness.

    Raises:
        UsageError: as for `places_of`.
    """
    after, numbers = places_of(documents, where=where), documents.sentence_numbers
    parts = zip(documents.sentences, documents.images, strict=True)
    return [nearness(numbers[rows], after[places], side) for rows, places in parts]


def evaluate_nearest(
    documents: DocumentSet, validation: DocumentSet | None, *, where: str
) -> tuple[Evaluation, Side, str]:
    """Return the baseline's evaluation, the side it was scored with, and a note for the reader.

    Args:
        documents: with links and places.
        validation: likewise, to choose the side; None: both sides count alike.
        where: what the messages call the documents.

    Raises:
        UsageError: no place is known, or no document can be scored.
    """
    side, chosen = _side(validation), "by validation"
    if side is None:
        side, chosen = Side.EITHER, "as no validation link shows on which side captions stand"
    links = documents.links or ()
    matrices = nearest_similarities(documents, side, where=where)
    evaluation = evaluate_matrices(documents.ids, matrices, links, where=where)
    known = [matrix[tuple(pairs.T)] for matrix, pairs in zip(matrices, links, strict=True) if pairs is not None]
    share = float(np.mean(np.concatenate(known) == 1))  # of nearness 1: at distance 0
    agreement = f"{share:.1%} of the true links lead to it"
    if share == 1:
        agreement = "every true link leads to it: an upper bound by construction"
    return evaluation, side, f"{side.words}, {chosen}" + ("" if side is Side.EITHER else f"; {agreement}")


def _side(validation: DocumentSet | None) -> Side | None:
    """Return the side with the highest mean AUC on validation documents; None where none of them can be scored."""
    if validation is None or not validation.links:
        return None
    try:
        auc = mean_auc(Side, partial(nearest_similarities, validation, where="validation"), validation.links)
    except UsageError:  # no place of them is known
        return None
    return max(auc, key=auc.__getitem__, default=None)
