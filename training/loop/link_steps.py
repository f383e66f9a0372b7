"""What the steps at link time need of the data, once training is over: banks, and weights by the rank of own images.

The first worker does it alone, for the model that is kept.
"""

from collections.abc import Sequence
from itertools import chain, product

import numpy as np
import torch

from training.data.loading import TrainingData
from training.data.ragged import Int64
from training.data.split import TrainingSplit
from training.link_steps import LinkSteps
from training.loop.validation import RETRIEVAL_POOL, can_rank, own_set_ranks, rank_similarity
from training.model import LinkModel
from training.settings import LinkStep

NAMES_WEIGHTS = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6)
UNJUDGED = 0.2  # weight of class names where no rank can judge it
SAMPLED, POOLS = 1000, 10
PAIRS_AT_ONCE = 1 << 25  # of the sentences and images of a pool
Weights = tuple[float, ...]


def settle_steps(model: LinkModel, data: TrainingData) -> None:
    """Fill the banks of a model's steps from training documents, and choose their weights on validation documents.

    What is kept lies evenly over the split. Of weights that rank own images alike, the smallest are taken. With few
    validation documents class names count a little, and `csls` is done beside them alone: by itself it may lose links
    where training documents are few.
    """
    steps = model.steps
    if steps is None or steps.settings.steps == (LinkStep.HALF_SINKHORN,):
        return
    unit = _fill(model, steps, data.training)
    wanted = steps.settings.names
    names = (0.0,) if not unit else NAMES_WEIGHTS if wanted == "auto" else (wanted,)
    csls = (0.0, 1.0) if len(steps.texts) else (0.0,)
    tried = [(hubs, unit * weight) for hubs, weight in product(csls, names)]
    if data.validation is not None and can_rank(data.validation):
        chosen = tried[int(np.argmin(_ranks(model, steps, data.validation, tried)))]
    else:
        known = unit * (UNJUDGED if wanted == "auto" else wanted)
        chosen = (csls[-1] if known else 0.0, known)
    steps.weights.copy_(torch.tensor(chosen))


def _fill(model: LinkModel, steps: LinkSteps, training: TrainingSplit) -> float:
    """Fill the banks, and return what a weight of class names of 1 is; 0 where the model reads none."""
    size, usable = len(steps.texts) or SAMPLED, training.index.usable
    documents = training.documents(usable[_evenly(len(usable), size)])
    texts, images = (rows.cpu().numpy() for rows in model.encode(documents))
    rows, shown = _evenly(len(texts), size), _evenly(len(images), size)
    return steps.fill(texts[rows], images[shown], steps.namer(documents)(rows, shown))


def _ranks(model: LinkModel, steps: LinkSteps, split: TrainingSplit, tried: Sequence[Weights]) -> list[float]:
    """Return the mean rank of own images for each of some weights, over pools that lie evenly over a split."""
    usable, kind = split.index.usable, rank_similarity(model.card.config)
    pools = np.array_split(usable, -(-len(usable) // RETRIEVAL_POOL))
    ranks: list[list[float]] = []
    for pool in (pools[number] for number in _evenly(len(pools), POOLS)):
        documents = split.documents(_few(split, pool))
        texts, images = (rows.cpu().numpy() for rows in model.encode(documents))
        images, sets = images[documents.image_rows], documents.image_sets
        names = steps.namer(documents)(np.arange(len(texts)), documents.image_rows)
        allowed = torch.from_numpy(sets[:, None] != sets[None, :])
        for weights in tried:
            matrix = torch.from_numpy(steps.weighted(texts, images, names, weights))
            similarity_BB = kind.blocks(matrix, documents.sentences, documents.images)
            ranks.append(own_set_ranks(similarity_BB, allowed).tolist())
    return [float(np.mean(list(chain.from_iterable(ranks[number :: len(tried)])))) for number in range(len(tried))]


def _few(split: TrainingSplit, pool: Int64) -> Int64:
    """Return the first documents of a pool whose sentences and images make a matrix that memory holds; two at least."""
    n, m = (np.cumsum(each.counts[pool]) for each in (split.index.sentences, split.index.images))
    return pool[: max(2, int(np.searchsorted(n * m, PAIRS_AT_ONCE, side="right")))]


def _evenly(count: int, wanted: int) -> Int64:
    """Return the places of at most so many of `count` things, evenly apart."""
    return np.arange(min(count, wanted)) * count // min(count, wanted)
