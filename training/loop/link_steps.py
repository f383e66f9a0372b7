"""What the steps at link time need of the data, once training is over: banks, and weights by the rank of own images.

The first worker does it alone, for the model that is kept.
"""

from collections.abc import Iterable, Sequence
from itertools import product

import numpy as np
import torch

from training.closed_form.plans import BINS, FOLDS, SHARPNESS, Order, bins_of, masses, pair_weights, relative_places
from training.data.documents import DocumentSet
from training.data.loading import TrainingData
from training.data.ragged import Float64, Int64
from training.data.split import TrainingSplit
from training.link_steps import LinkSteps
from training.loop.epoch import RETRIEVAL_POOL, can_rank, own_set_ranks, rank_similarity, sharing
from training.model import LinkModel
from training.parts import LinkStep

NAMES_WEIGHTS = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6)
UNJUDGED = 0.2  # weight of class names where no rank can judge it
SATURATED = 0.97  # share of other documents behind the own ones, from which on their rank cannot judge
SAMPLED, ORDERED, POOLS = 1000, 5000, 10
PAIRS_AT_ONCE = 1 << 25  # of the sentences and images of a pool
Weights = tuple[float, ...]


def settle_steps(model: LinkModel, data: TrainingData) -> None:
    """Fill the banks of a model's steps from training documents, and choose their weights on validation documents.

    What is kept lies evenly over the split. Of weights that rank own images alike, the smallest are taken. Where the
    rank cannot judge, class names count a little, and `csls` is done beside them alone: by itself it may lose links
    where training documents are few.
    """
    steps = model.steps
    if steps is None:
        return
    if (order := order_of(model, data)) is not None:
        usable = data.training.index.usable
        evenly = usable[_evenly(len(usable), ORDERED)]
        learn_order(model, (data.training.documents(each) for each in evenly[:, None]), order)
    if not set(steps.settings.steps) - {LinkStep.HALF_SINKHORN}:
        return
    unit = _fill(model, steps, data.training)
    wanted = steps.settings.names
    names = (0.0,) if not unit else NAMES_WEIGHTS if wanted == "auto" else (wanted,)
    csls = (0.0, 1.0) if len(steps.texts) else (0.0,)
    tried = [(hubs, unit * weight) for hubs, weight in product(csls, names)]
    weight = unit * (UNJUDGED if wanted == "auto" else wanted)
    chosen: Weights = (csls[-1] if weight else 0.0, weight)
    if data.validation is not None and can_rank(data.validation):
        chosen = _judged(model, steps, data.validation, tried, chosen)
    steps.weights.copy_(torch.tensor(chosen))


def order_of(model: LinkModel, data: TrainingData) -> Order | None:
    """Return the order that a model keeps; None where it does not count (`link.order`)."""
    if model.steps is None or model.steps.order is None:
        return None
    is_tested = model.card.config.link.order == "auto"
    return None if is_tested and data.knows_links else Order(log_weights=model.steps.order, is_tested=is_tested)


def learn_order(model: LinkModel, each_document: Iterable[DocumentSet], order: Order) -> None:
    """Learn an order from plans of a model's cosines alone, of sets of one document each."""
    total = torch.zeros(FOLDS, 2, BINS, dtype=torch.float64)
    for number, document in enumerate(each_document):
        texts, images = (rows.cpu() for rows in model.encode(document))
        cosines_1nm = (texts @ images[document.image_rows].T)[None]
        weights_1nm = pair_weights(cosines_1nm, document.sentences, document.images, SHARPNESS)
        text_places, image_places = (torch.from_numpy(each)[None] for each in relative_places(document))
        bins_1nm, fold = bins_of(text_places, image_places), torch.tensor([number % FOLDS])
        total += masses(weights_1nm, bins_1nm, document.sentences, document.images, fold)
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
    pools = np.array_split(split.index.usable, -(-len(split.index.usable) // RETRIEVAL_POOL))
    sizes = [each.counts for each in (split.index.sentences, split.index.images)]
    pools = [pool[: few_enough(*(counts[pool] for counts in sizes))] for pool in pools]
    evenly = (split.documents(pools[number]) for number in _evenly(len(pools), POOLS))
    means = [float(each.mean()) if len(each) else 1.0 for each in shares_behind(model, steps, evenly, tried)]
    return default if means[tried.index(default)] > SATURATED else tried[int(np.argmax(means))]


def shares_behind(
    model: LinkModel, steps: LinkSteps, pools: Iterable[DocumentSet], tried: Sequence[Weights]
) -> list[Float64]:
    """Return for each of some weights, a document: the share of others in its pool that are behind its own images.

    Others are those that share no image and no sentence with it; a document without one is left out.
    """
    kind, shares = rank_similarity(model.card.config), list[list[Float64]]([] for _ in tried)
    for documents in pools:
        texts, images = (rows.cpu().numpy() for rows in model.encode(documents))
        images = images[documents.image_rows]
        names = steps.namer(documents)(np.arange(len(texts)), documents.image_rows)
        allowed = torch.from_numpy(~sharing(documents))
        for weights, found in zip(tried, shares, strict=True):
            matrix = torch.from_numpy(steps.weighted(texts, images, names, weights))
            ahead = own_set_ranks(kind.blocks(matrix, documents.sentences, documents.images), allowed) - 1
            found.append((1 - ahead / allowed.sum(dim=1))[allowed.any(dim=1)].double().numpy())
    return [np.concatenate([np.zeros(0), *each]) for each in shares]


def few_enough(n: Int64, m: Int64) -> int:
    """Return how many of some documents, at least two, have sentences and images whose matrix memory holds."""
    return max(2, int(np.searchsorted(np.cumsum(n) * np.cumsum(m), PAIRS_AT_ONCE, side="right")))


def _evenly(count: int, wanted: int) -> Int64:
    """Return the places of at most so many of `count` things, evenly apart."""
    return np.arange(min(count, wanted)) * count // min(count, wanted)
