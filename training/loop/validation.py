"""What an epoch is judged by: validation loss, rank of a document's own image set, and (reported only) its links.

Every validation document is encoded once. Rank 0 measures, and all workers take its numbers, so that they decide alike.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from schemas.documents import Split
from schemas.errors import UsageError
from schemas.lake import Folder
from schemas.manifest import Manifest
from training.config import TrainConfig
from training.data.batches import validation_batches
from training.data.documents import HeldSplit
from training.data.loading import hold_split
from training.data.ragged import Float64, Int64
from training.data.sampling import choose_all
from training.loop.context import Context
from training.loop.encoding import (
    OwnRows,
    PreparedSplit,
    allowed_negatives,
    choose_encoded,
    encode_documents,
    prepare_split,
    share,
)
from training.loop.step import COLLAPSED
from training.metrics.links import score_documents
from training.model import LinkModel
from training.objectives import batch as objectives
from training.objectives.batch import EncodedBatch, Moment
from training.similarity.kinds.ap import Ap
from training.similarity.similarity import SetSimilarity

logger = logging.getLogger(__name__)
RETRIEVAL_POOL = 200
PAIRS_POOL = 500  # Alikhani 2022, table 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """Measurements of one epoch.

    Attributes:
        loss: mean loss of a document, without dropout, over batches that are the same every epoch.
        rank: mean rank (from 1; ties count half) of a document's own image set for its sentences, among pools of
            consecutive documents, at most `RETRIEVAL_POOL` each (`PAIRS_POOL` of image-text pairs).
        median_rank: median of the same ranks.
        auc: mean AUROC of the documents with known links, times 100; None where there is none.
        precision_at_1: as `auc`.
        precision_at_5: as `auc`.
    """

    loss: float
    rank: float
    median_rank: float
    auc: float | None
    precision_at_1: float | None
    precision_at_5: float | None


def validate(model: LinkModel, split: PreparedSplit, context: Context, *, epoch: int) -> Validation:
    """Return the epoch's measurements, equal on every worker."""
    own = encode_documents(model, split, context)
    everything = share(own, context)
    numbers = np.zeros(3)
    if context.rank == 0:
        with torch.no_grad():
            numbers = _measure(model.card.config, everything, split.held, epoch)
    loss, rank, median = _agree(numbers, context)
    links = _link_means(own, split.held, context)
    return Validation(
        loss=loss, rank=rank, median_rank=median, auc=links[0], precision_at_1=links[1], precision_at_5=links[2]
    )


def split_loss(model: LinkModel, manifest: Manifest, folder: Folder, split: Split) -> float | None:
    """Return the mean loss of a model's own objective on a split, in this process; None of one that reads links.

    Raises:
        UsageError: the data set lacks what the model reads, or no document has a sentence and an image.
    """
    config = model.card.config
    if config.needs.links:
        return None
    held = hold_split(manifest, folder, model.card.data, config, split)
    if not len(held.index.usable):
        where = f"{manifest.dataset}@{manifest.version}, split {split}"
        raise UsageError(f"{where}: no document has a sentence and an image")
    return validate(model, prepare_split(model, held), Context(device=model.device), epoch=model.card.epoch).loss


def own_set_ranks(similarity_BB: Tensor, allowed_BB: Tensor) -> Tensor:
    """Return B ranks, from 1, of each row's diagonal entry among the allowed entries of the row; a tie counts half."""
    own_B1 = similarity_BB.diagonal()[:, None]
    better = ((similarity_BB > own_B1) & allowed_BB).sum(dim=1)
    equal = ((similarity_BB == own_B1) & allowed_BB).sum(dim=1)
    return 1 + better + equal / 2


def mean_loss(config: TrainConfig, rows: OwnRows, held: HeldSplit) -> float:
    """Return the mean loss of a document, over batches and draws that are the same every time.

    Args:
        config: that the model was trained with, whose objective's loss it is.
        rows: of all documents of the split, in the common order.
        held: the split.
    """
    found: list[Tensor] = []
    moment = _moment(config)
    for positions in validation_batches(held.index, negative_documents=config.training.negative_documents):
        allowed = allowed_negatives(held, positions, rows.text_vectors.device)
        choice = objectives.choose(config.objective, held.index, positions, moment)
        batch = choose_encoded(rows, choice, allowed, moment=moment, links=held.links_at(positions))
        found.append(objectives.losses(config.objective, batch))
    return float(torch.cat(found).mean())


def rank_similarity(config: TrainConfig) -> SetSimilarity:
    """Return the similarity that own sets are ranked by: that of the first term that compares sets, else AP."""
    found = (getattr(term, "similarity", None) for term in config.objective)
    return next((kind for kind in found if isinstance(kind, SetSimilarity)), Ap())


def _moment(config: TrainConfig) -> Moment:
    return Moment(split="validation", epoch=0, step=0, seed=config.training.seed)


def _measure(config: TrainConfig, rows: OwnRows, held: HeldSplit, epoch: int) -> Float64:
    loss, similarity = mean_loss(config, rows, held), rank_similarity(config)
    ranks: list[Tensor] = []
    spread = 0.0
    for pool in _pools(config, rows, held):
        similarity_BB = pool.similarity(similarity)
        spread = max(spread, float(similarity_BB.max() - similarity_BB.min()))
        ranks.append(own_set_ranks(similarity_BB, pool.allowed))
    if spread < COLLAPSED and len(held.index.usable) > 1:
        logger.warning("epoch %d: all validation documents are equally similar: the model has collapsed", epoch)
    ranks_B = torch.cat(ranks).double().cpu().numpy()
    return np.array([loss, ranks_B.mean(), np.median(ranks_B)])


def _pools(config: TrainConfig, rows: OwnRows, held: HeldSplit) -> Iterator[EncodedBatch]:
    usable, size = held.index.usable, PAIRS_POOL if config.needs.pairs else RETRIEVAL_POOL
    for positions in np.array_split(usable, -(-len(usable) // size)):
        allowed = allowed_negatives(held, positions, rows.text_vectors.device)
        yield choose_encoded(rows, choose_all(held.index, positions), allowed, moment=_moment(config))


def _link_means(own: OwnRows, held: HeldSplit, context: Context) -> list[float | None]:
    """Return the mean AUC, precision at 1 and at 5 over all workers' documents with known links."""
    text_ND, image_MD = own.text_vectors.cpu().numpy(), own.image_vectors.cpu().numpy()
    matrices = [text_ND[rows] @ image_MD[places].T for rows, places in zip(own.sentences, own.images, strict=True)]
    links: tuple[Int64 | None, ...] = held.documents.links or (None,) * len(held.documents)
    scores = score_documents(matrices, links).table()
    table = torch.cat(context.gather(torch.from_numpy(scores).to(context.device)))
    return [float(value) for value in table.mean(dim=0)] if len(table) else [None, None, None]


def _agree(numbers: Float64, context: Context) -> list[float]:
    """Return rank 0's numbers."""
    row = torch.from_numpy(numbers)[None].to(context.device)
    return [float(value) for value in context.gather(row)[0][0]]
