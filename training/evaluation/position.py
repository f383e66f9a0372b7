"""An ablation: the place of an image in the layout as a feature of the score, (1 - w) * model + w * nearness.

The weight w and the side are those of the smallest validation loss: the loss that the model was trained with, over the
same batches, without any link. A place means the same in every document, so that a document's sentences are compared
with the images of others by the same score. Training gets no places: the model stays as it is.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch

from schemas.documents import Split
from schemas.errors import NotFoundError, UsageError
from schemas.lake import Folder
from schemas.manifest import Manifest
from training.config import TrainConfig
from training.data.batches import validation_bounds
from training.data.documents import DocumentSet
from training.data.loading import read_for_model
from training.evaluation.nearest import Side, nearness, places_of
from training.loop.encoding import EncodedDocuments
from training.loop.validation import batch_losses
from training.metrics.links import score_documents
from training.metrics.scores import Score
from training.model import EmbeddedDocument, LinkModel

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
    tried = [min(found) for found in _losses(model, manifest, folder)]
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
    own = np.float32(np.sqrt(weight)) * np.eye(len(every), dtype=np.float32)[numbers]
    model = np.float32(np.sqrt(1 - weight))
    return [
        EmbeddedDocument(
            np.concatenate([model * document.texts, own[rows]], axis=1),
            np.concatenate([model * document.images, near[places]], axis=1),
        )
        for document, rows, places in zip(embedded, documents.sentences, documents.images, strict=True)
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
