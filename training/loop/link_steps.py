"""What the steps at link time need of the data, once training is over: banks, and weights by the rank of own images.

The first worker does it alone, for the model that is kept.
"""

from collections.abc import Sequence
from itertools import chain, product

import numpy as np
import torch

from training.closed_form.order import BINS, FOLDS, Order, bins_of, masses, relative_places
from training.closed_form.plans import pair_weights
from training.data.loading import TrainingData
from training.data.ragged import Int64
from training.data.split import TrainingSplit
from training.link_steps import SHARPNESS, LinkSteps
from training.loop.validation import RETRIEVAL_POOL, can_rank, own_set_ranks, rank_similarity, sharing
from training.model import LinkModel
from training.settings import LinkStep

NAMES_WEIGHTS = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6)
UNJUDGED = 0.2  # weight of class names where no rank can judge it
SATURATED = 0.97  # share of other documents behind the own ones, from which on their rank cannot judge
SAMPLED, ORDERED, POOLS = 1000, 5000, 10
PAIRS_AT_ONCE = 1 << 25  # of the sentences and images of a pool
Weights = tuple[float, ...]


def settle_steps(model: LinkModel, data: TrainingData) -> None:
    """Fill the banks of a model's steps from training documents, and choose their weights on validation documents.

    What is kept lies evenly over the split. Of weights that rank own images alike, the smallest are taken. Where no rank
    can judge, class names count a little, and `csls` is done beside them alone: by itself it may lose links where
    training documents are few.
    """
    steps = model.steps
    if steps is None:
        return
    if (order := order_of(model, data)) is not None:
        _learn_order(model, steps, data.training, order)
    if not set(steps.settings.steps) - {LinkStep.HALF_SINKHORN}:
        return
    unit = _fill(model, steps, data.training)
    wanted = steps.settings.names
    names = (0.0,) if not unit else NAMES_WEIGHTS if wanted == "auto" else (wanted,)
    csls = (0.0, 1.0) if len(steps.texts) else (0.0,)
    tried = [(hubs, unit * weight) for hubs, weight in product(csls, names)]
    weight = unit * (UNJUDGED if wanted == "auto" else wanted)
    chosen = (csls[-1] if weight else 0.0, weight)
    if data.validation is not None and can_rank(data.validation):
        chosen = _judged(model, steps, data.validation, tried, chosen)
    steps.weights.copy_(torch.tensor(chosen))


def order_of(model: LinkModel, data: TrainingData) -> Order | None:
    """Return the order that a model keeps; None where it does not count (`link.order`)."""
    if model.steps is None or model.steps.order is None:
        return None
    is_tested = model.card.config.link.order == "auto"
    return None if is_tested and data.knows_links else Order(log_weights=model.steps.order, is_tested=is_tested)


def _learn_order(model: LinkModel, steps: LinkSteps, training: TrainingSplit, order: Order) -> None:
    """Learn an order from plans of a model's cosines alone, of training documents that lie evenly over the split."""
    usable = training.index.usable
    total = torch.zeros(FOLDS, 2, BINS, dtype=torch.float64)
    for number in _evenly(len(usable), ORDERED).tolist():
        documents = training.documents(usable[number : number + 1])
        texts, images = (rows.cpu() for rows in model.encode(documents))
        cosines_1nm = (texts @ images[documents.image_rows].T)[None]
        weights_1nm = pair_weights(cosines_1nm, documents.sentences, documents.images, SHARPNESS)
        text_places, image_places = (torch.from_numpy(each)[None] for each in relative_places(documents))
        bins_1nm, fold = bins_of(text_places, image_places), torch.tensor([number % FOLDS])
        total += masses(weights_1nm, bins_1nm, documents.sentences, documents.images, fold)
    order.learn(total)


def _fill(model: LinkModel, steps: LinkSteps, training: TrainingSplit) -> float:
    """Fill the banks, and return what a weight of class names of 1 is; 0 where the model reads none."""
    size, usable = len(steps.texts) or SAMPLED, training.index.usable
    documents = training.documents(usable[_evenly(len(usable), size)])
    texts, images = (rows.cpu().numpy() for rows in model.encode(documents))
    rows, shown = _evenly(len(texts), size), _evenly(len(images), size)
    return steps.fill(texts[rows], images[shown], steps.namer(documents)(rows, shown))


def _judged(
    model: LinkModel, steps: LinkSteps, split: TrainingSplit, tried: Sequence[Weights], default: Weights
) -> Weights:
    """Return the weights that rank own images best, over pools that lie evenly over a split.

    They are the default where it leaves nearly all other documents behind: there the rank cannot judge.
    """
    usable, kind = split.index.usable, rank_similarity(model.card.config)
    pools = np.array_split(usable, -(-len(usable) // RETRIEVAL_POOL))
    behind: list[list[float]] = []
    for pool in (pools[number] for number in _evenly(len(pools), POOLS)):
        documents = split.documents(_few(split, pool))
        texts, images = (rows.cpu().numpy() for rows in model.encode(documents))
        images = images[documents.image_rows]
        names = steps.namer(documents)(np.arange(len(texts)), documents.image_rows)
        allowed = torch.from_numpy(~sharing(documents))
        for weights in tried:
            matrix = torch.from_numpy(steps.weighted(texts, images, names, weights))
            similarity_BB = kind.blocks(matrix, documents.sentences, documents.images)
            ahead = own_set_ranks(similarity_BB, allowed) - 1
            behind.append((1 - ahead / allowed.sum(dim=1))[allowed.any(dim=1)].tolist())
    shares = [list(chain.from_iterable(behind[number :: len(tried)])) for number in range(len(tried))]
    means = [float(np.mean(each)) if each else 1.0 for each in shares]
    return default if means[tried.index(default)] > SATURATED else tried[int(np.argmax(means))]


def _few(split: TrainingSplit, pool: Int64) -> Int64:
    """Return the first documents of a pool whose sentences and images make a matrix that memory holds; two at least."""
    n, m = (np.cumsum(each.counts[pool]) for each in (split.index.sentences, split.index.images))
    return pool[: max(2, int(np.searchsorted(n * m, PAIRS_AT_ONCE, side="right")))]


def _evenly(count: int, wanted: int) -> Int64:
    """Return the places of at most so many of `count` things, evenly apart."""
    return np.arange(min(count, wanted)) * count // min(count, wanted)
