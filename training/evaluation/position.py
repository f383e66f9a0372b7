"""The position of an image in the layout: the nearest sentence as a baseline, and nearness as a feature of the score.

A data set states how many sentences stand before an image (`schemas.documents`): it stands between two of them. A
sentence is as near as its distance is small, counted in sentences from the one that the side names:

    sentence     ...  2     3     4     5  ...          an image at 4, after sentence 3
    after             2     1     0     1               the sentence next to or below the image
    before            1     0     1     2               the sentence above it
    either           1.5   0.5   0.5   1.5              both alike

Validation links choose the side of the baseline, as they choose the K of object detection; without them both sides
count alike. Ties are scored by their expectation. Where every true link leads to the sentence that the layout names,
the layout is the truth, and the baseline is an upper bound by construction, not a competitor of what reads texts and
images: the note of its scores says so. (Images without a link stand somewhere, too: they cost it a few points.)

The ablation scores (1 - w) * model + w * nearness. Its weight w and side are those of the smallest validation loss: the
loss that the model was trained with, over the same batches, without any link. A position means the same in every
document, so that a document's sentences are compared with the images of others by the same score. Training reads no
positions: the model stays as it is.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from itertools import pairwise

import numpy as np
import torch

from schemas.documents import AFTER_SENTENCE, Split
from schemas.lake import Folder
from schemas.manifest import Manifest
from schemas.messages import NotFoundError, UsageError
from training.config import TrainConfig
from training.data.documents import UNKNOWN_PLACE, DocumentSet
from training.data.loading import read_for_model
from training.data.ragged import Float32, Int64
from training.data.split import validation_bounds
from training.evaluation.evaluate import Evaluation, evaluate_matrices
from training.loop.encoding import EncodedDocuments
from training.loop.epoch import batch_losses
from training.metrics.intervals import Score
from training.metrics.links import mean_auc, score_documents
from training.model import EmbeddedDocument, LinkModel


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
    Side.AFTER: "the sentence next to or below an image",
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
        raise UsageError(f"{where} has no positions of images among the sentences ({AFTER_SENTENCE})")
    return documents.after_sentence


def nearest_similarities(documents: DocumentSet, side: Side, *, where: str) -> list[Float32]:
    """Return each document's n x m nearness.

    Raises:
        UsageError: as for `places_of`.
    """
    after, numbers = places_of(documents, where=where), documents.sentence_numbers
    parts = zip(documents.sentences, documents.images, strict=True)
    return [nearness(numbers[rows], after[images], side) for rows, images in parts]


def evaluate_nearest(documents: DocumentSet, validation: DocumentSet | None, *, where: str) -> tuple[Evaluation, str]:
    """Return the baseline's evaluation, and a note that names the side it was scored with.

    Args:
        documents: with links and places.
        validation: likewise, to choose the side; None: both sides count alike.
        where: what the messages call the documents.

    Raises:
        UsageError: no place is known, or no document can be scored.
    """
    side, chosen = _side(validation), "by validation"
    if side is None:
        side, chosen = Side.EITHER, "because no validation link shows on which side captions are"
    links = documents.links or ()
    matrices = nearest_similarities(documents, side, where=where)
    evaluation = evaluate_matrices(documents.ids, matrices, links, where=where)
    linked = [matrix[tuple(pairs.T)] for matrix, pairs in zip(matrices, links, strict=True) if pairs is not None]
    share = float(np.mean(np.concatenate(linked) == 1))  # of nearness 1: at distance 0
    agreement = f"{share:.1%} of the true links lead to it"
    if share == 1:
        agreement = "every true link leads to it: an upper bound by construction"
    return evaluation, f"{side.words}, {chosen}" + ("" if side is Side.EITHER else f"; {agreement}")


def _side(validation: DocumentSet | None) -> Side | None:
    """Return the side with the highest mean AUC on validation documents; None where none of them can be scored."""
    if validation is None or not validation.links:
        return None
    try:
        auc = mean_auc(Side, partial(nearest_similarities, validation, where="validation"), validation.links)
    except UsageError:  # no place of them is known
        return None
    return max(auc, key=auc.__getitem__, default=None)


WEIGHTS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
VALIDATION_LOSS = "validation_loss"
JUDGED = "the judged split"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Mix:
    """A weight of the nearness and its side, with the validation loss they give; ordered by that."""

    loss: float
    weight: float
    side: Side

    @property
    def words(self) -> str:
        """Return the mix in words."""
        return f"w={self.weight:g}, {self.side.words}" if self.weight else "w=0, the model alone"


def position_scores(
    model: LinkModel,
    manifest: Manifest,
    folder: Folder,
    documents: DocumentSet,
    embedded: Sequence[EmbeddedDocument],
) -> Iterator[Score]:
    """Yield the link scores of the mix that validation loss chooses, then of each weight with its loss.

    Args:
        model: that is judged.
        manifest: of the data set version.
        folder: of the data set version.
        documents: that it is judged on, with links and places.
        embedded: the vectors of each.

    Raises:
        UsageError: no place is known, or there is no validation loss without links.
    """
    places_of(documents, where=JUDGED)
    tried = [min(mixes) for mixes in _losses(model, manifest, folder)]
    chosen = min(tried)
    note = f"{chosen.words}, by validation loss: {chosen.loss:.4f}, without places {tried[0].loss:.4f}"
    yield from (replace(score, note=note) for score in _scores(documents, embedded, chosen))
    for mix in tried:
        yield Score(VALIDATION_LOSS, mix.loss, n=len(documents), group=mix.words, unit="loss")
        yield from (replace(score, group=mix.words) for score in _scores(documents, embedded, mix))


def mixed(
    documents: DocumentSet, embedded: Sequence[EmbeddedDocument], weight: float, side: Side, *, where: str
) -> list[EmbeddedDocument]:
    """Return vectors of each document whose products are (1 - weight) * similarity + weight * nearness.

    They go where the model's vectors go, the products of two documents included: beside a sentence's vector stands a 1
    in the column of its number, beside an image's its nearness to each number.

        sentence i     sqrt(1 - w) * t_i     sqrt(w) * (0 ... 1 ... 0)
        image at p     sqrt(1 - w) * v       sqrt(w) * (nearness(0, p), nearness(1, p), ...)

    Raises:
        UsageError: no place is known.
    """
    after, numbers = places_of(documents, where=where), documents.sentence_numbers
    every = np.arange(numbers.max(initial=-1) + 1)
    near = np.float32(np.sqrt(weight)) * nearness(every, after, side).T
    one_hot = np.float32(np.sqrt(weight)) * np.eye(len(every), dtype=np.float32)[numbers]
    model = np.float32(np.sqrt(1 - weight))
    return [
        EmbeddedDocument(
            np.concatenate([model * document.texts, one_hot[rows]], axis=1),
            np.concatenate([model * document.images, near[images]], axis=1),
        )
        for document, rows, images in zip(embedded, documents.sentences, documents.images, strict=True)
    ]


def _scores(documents: DocumentSet, embedded: Sequence[EmbeddedDocument], mix: Mix) -> Iterable[Score]:
    """Return the mean link scores of a mix."""
    pairs = mixed(documents, embedded, mix.weight, mix.side, where=JUDGED)
    scores = score_documents((pair.similarities() for pair in pairs), documents.links or ())
    if not scores:
        raise UsageError("no document has links that can be scored")
    return scores.means().values()


def _losses(model: LinkModel, manifest: Manifest, folder: Folder) -> Iterator[list[Mix]]:
    """Yield the validation losses of each weight, with every side; without a weight, one.

    Raises:
        UsageError: of no validation image it is known where it stands, or the loss is made of links.
    """
    config = model.card.config
    if config.needs.links:
        raise UsageError(
            "its weight is chosen by a validation loss without links, and this objective's is made of them"
        )
    try:
        documents = read_for_model(config.reading, model.card.data, manifest, folder, Split.VAL, with_truth=True)
    except NotFoundError as problem:
        raise UsageError("there is no validation split to choose its weight on") from problem
    places_of(documents, where="the validation split")
    embedded = model.embed(documents)
    for weight in WEIGHTS:
        sides = list(Side) if weight else [Side.EITHER]
        yield [Mix(loss=_loss(config, documents, embedded, weight, side), weight=weight, side=side) for side in sides]


def _loss(
    config: TrainConfig, documents: DocumentSet, embedded: Sequence[EmbeddedDocument], weight: float, side: Side
) -> float:
    """Return the validation loss with the places mixed in."""
    pairs = mixed(documents, embedded, weight, side, where="the validation split")
    encoded = EncodedDocuments(
        documents=documents,
        text_vectors=torch.from_numpy(np.concatenate([pair.texts for pair in pairs])),
        image_vectors=torch.from_numpy(np.concatenate([pair.images for pair in pairs])),
    )
    usable = np.flatnonzero((documents.sentences.counts > 0) & (documents.images.counts > 0))
    cuts = validation_bounds(len(usable), negative_documents=config.training.negative_documents)
    with torch.no_grad():
        losses = batch_losses(config, encoded, (usable[first:last] for first, last in pairwise(cuts.tolist())))
        return float(torch.cat(list(losses)).mean())
