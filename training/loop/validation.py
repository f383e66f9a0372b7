"""What an epoch is judged by: validation loss, rank of a document's own image set, and (reported only) its links.

A split is judged in pools of documents that follow one another. Each worker encodes and measures its pools; what is put
together of them are sums and counts, in the order of the pools, so that all workers have the numbers of one.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from scipy.sparse import coo_array
from torch import Tensor

from training.config import TrainConfig
from training.data.documents import DocumentSet
from training.data.index import validation_bounds
from training.data.ragged import Bool, Float64, Int64
from training.data.split import TrainingSplit
from training.loop.context import Context
from training.loop.encoding import EncodedDocuments, choose, encode_documents, losses
from training.loop.step import COLLAPSED
from training.metrics.links import score_documents
from training.model import LinkModel
from training.objectives.batch import DrawKey
from training.similarity.similarity import Ap, SetSimilarity

logger = logging.getLogger(__name__)
RETRIEVAL_POOL = 200
PAIRS_POOL = 500  # Alikhani 2022, table 4
ENOUGH_TO_RANK = 20  # documents: of fewer all own images are soon first, and their mean rank tells nothing apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """Measurements of one epoch.

    Attributes:
        loss: mean loss of a document, without dropout, over batches that are the same every epoch.
        rank: mean rank (from 1; ties count half) of a document's own image set for its sentences, among pools of
            consecutive documents, at most `RETRIEVAL_POOL` each (`PAIRS_POOL` of image-text pairs).
        median_rank: median of the same ranks.
        auc: mean AUROC of the documents with known links, by cosines, times 100; None where there is none.
        precision_at_1: as `auc`.
        precision_at_5: as `auc`.
    """

    loss: float
    rank: float
    median_rank: float
    auc: float | None
    precision_at_1: float | None
    precision_at_5: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pool:
    """Measurements of a pool: what sums over pools are made of.

    Attributes:
        loss: sum of the losses of the documents of the batches that begin in the pool.
        spread: of the similarities in the pool, the largest less the smallest.
        links: 4 numbers: of documents with known links the sums of AUC, precision at 1 and at 5, and their count.
        ranks: twice the rank of each document.
    """

    loss: float
    spread: float
    links: Float64
    ranks: Int64


def validate(model: LinkModel, split: TrainingSplit, context: Context, *, epoch: int) -> Validation:
    """Return the epoch's measurements, equal on every worker."""
    config, documents = model.card.config, len(split.index.usable)
    size = PAIRS_POOL if config.needs.pairs else RETRIEVAL_POOL
    cuts = validation_bounds(documents, negative_documents=config.training.negative_documents)
    everyone = np.array_split(np.arange(documents), -(-documents // size))
    assigned = np.array_split(np.arange(len(everyone)), context.world_size)[context.rank]
    pools = [_judge(model, split, everyone[number], cuts) for number in assigned]
    rows = np.array([[pool.loss, pool.spread, *pool.links] for pool in pools]).reshape(-1, 6)
    doubled = np.concatenate([np.zeros(0, np.int64), *(pool.ranks for pool in pools)])
    counts = np.bincount(doubled, minlength=2 * size + 3)
    table = torch.cat(context.gather(torch.from_numpy(rows).to(context.device))).cpu().numpy()
    ranks = context.total(torch.from_numpy(counts).to(context.device)).cpu().numpy()
    if context.rank == 0 and documents > 1 and table[:, 1].max() < COLLAPSED:
        logger.warning("epoch %d: all validation documents are equally similar: the model has collapsed", epoch)
    auc, first, fifth, scored = table[:, 2:].sum(axis=0).tolist()
    return Validation(
        loss=float(table[:, 0].sum()) / documents,
        rank=float(ranks @ np.arange(len(ranks))) / (2 * documents),
        median_rank=_median(ranks) / 2,
        auc=auc / scored if scored else None,
        precision_at_1=first / scored if scored else None,
        precision_at_5=fifth / scored if scored else None,
    )


def can_rank(split: TrainingSplit) -> bool:
    """Return whether a split has enough documents for the rank of own images to choose by."""
    return len(split.index.usable) >= ENOUGH_TO_RANK


def own_set_ranks(similarity_BB: Tensor, allowed_BB: Tensor) -> Tensor:
    """Return B ranks, from 1, of each row's diagonal entry among the allowed entries of the row; a tie counts half."""
    own_B1 = similarity_BB.diagonal()[:, None]
    better = ((similarity_BB > own_B1) & allowed_BB).sum(dim=1)
    equal = ((similarity_BB == own_B1) & allowed_BB).sum(dim=1)
    return 1 + better + equal / 2


def sharing(documents: DocumentSet) -> Bool:
    """Return D x D, whether two documents share an image or a sentence: then neither's rank can judge the other."""
    numbers = {text: number for number, text in enumerate(dict.fromkeys(documents.row_texts))}
    texts = np.array([numbers[text] for text in documents.row_texts], np.int64)
    found = np.eye(len(documents), dtype=bool)
    for members, sets in ((texts, documents.sentences), (documents.image_rows, documents.images)):
        holds = coo_array((np.ones(len(members), np.int32), (sets.owners, members))).tocsr()
        found |= (holds @ holds.T).toarray() > 0
    return found


def batch_losses(config: TrainConfig, encoded: EncodedDocuments, batches: Iterator[Int64]) -> Iterator[Tensor]:
    """Yield the losses of each batch of encoded documents, over draws that are the same every time.

    Args:
        config: that the model was trained with, whose objective's losses they are.
        encoded: documents.
        batches: rows of the documents of each batch.
    """
    draw_key = _draw_key(config)
    for rows in batches:
        choice = choose(config.objective, encoded.documents, rows, draw_key)
        yield losses(config.objective, encoded.batch(rows, draw_key, choice))


def rank_similarity(config: TrainConfig) -> SetSimilarity:
    """Return the similarity that own sets are ranked by: that of the first term that compares sets, else AP."""
    return next((term.similarity for term in config.objective if term.similarity is not None), Ap())


def _draw_key(config: TrainConfig) -> DrawKey:
    return DrawKey(split="validation", epoch=0, step=0, seed=config.training.seed)


def _judge(model: LinkModel, split: TrainingSplit, positions: Int64, cuts: Int64) -> _Pool:
    """Return the measurements of a pool of usable documents, and of the batches that begin in it.

    Args:
        model: is judged.
        split: that the documents are of.
        positions: of the pool among the usable documents, one after the other.
        cuts: place at which each batch begins, and the end of the last.
    """
    config, start, end = model.card.config, int(positions[0]), int(positions[-1]) + 1
    first, last = np.searchsorted(cuts[:-1], [start, end])
    bounds = cuts[first : last + 1]
    encoded = encode_documents(model, split, split.index.usable[start : max(end, int(bounds[-1]))])
    with torch.no_grad():
        batches = (np.arange(*pair) - start for pair in pairwise(bounds.tolist()))
        sums = [part.sum() for part in batch_losses(config, encoded, batches)]
        pool = encoded.batch(np.arange(end - start), _draw_key(config))
        similarity_BB = pool.similarity(rank_similarity(config))
        shared = torch.from_numpy(sharing(encoded.documents.take_documents(np.arange(end - start))))
        ranks = own_set_ranks(similarity_BB, ~shared.to(similarity_BB.device))
    return _Pool(
        loss=float(torch.stack(sums).double().sum()) if sums else 0.0,
        spread=float(similarity_BB.max() - similarity_BB.min()),
        links=_link_sums(encoded, len(positions)),
        ranks=(2 * ranks).long().cpu().numpy(),
    )


def _link_sums(encoded: EncodedDocuments, count: int) -> Float64:
    """Return the sums of the link scores of the first documents, and how many of them have scores."""
    documents = encoded.documents
    text_ND, image_MD = encoded.text_vectors.cpu().numpy(), encoded.image_vectors.cpu().numpy()
    slices = [(documents.sentences.rows(row), documents.images.rows(row)) for row in range(count)]
    scores = score_documents(
        [text_ND[rows] @ image_MD[images].T for rows, images in slices], (documents.links or (None,) * count)[:count]
    ).table
    return np.append(scores.sum(axis=0), len(scores))


def _median(counts: Int64) -> float:
    """Return the median of integers, of which `counts` says how often each occurs."""
    ends, total = np.cumsum(counts), int(counts.sum())
    return float(np.searchsorted(ends, [(total - 1) // 2, total // 2], side="right").mean())
