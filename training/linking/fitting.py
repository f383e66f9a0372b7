"""Steps at link time for the documents that are linked: weights chosen on them anew, without a link.

A model's weight of class names is that of its training data. On pictures of another kind another one may rank own
images better, and the documents may have an order that those of the training did not have. What is chosen is clear of
chance, or stays as it was.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from schemas.errors import IntegrityError, UsageError
from training.closed_form.order import BINS, Order
from training.data.documents import DocumentSet, GivenDocument
from training.data.ragged import Float32
from training.link_steps import LinkSteps
from training.loop.link_steps import NAMES_WEIGHTS, few_enough, learn_order, shares_behind
from training.loop.validation import ENOUGH_TO_RANK, RETRIEVAL_POOL
from training.model import LinkModel
from training.settings import LinkSettings

WEIGHTS = (*NAMES_WEIGHTS, 3.2, 6.4, 12.8)
ERRORS = 2.0  # standard errors by which own images have to rank better


@dataclass(frozen=True, slots=True)
class FittedSteps:
    """Steps that were chosen on the documents that are linked, and what changed, in words."""

    steps: LinkSteps
    words: str


def fit_steps(model: LinkModel, given: Sequence[GivenDocument]) -> FittedSteps | None:
    """Return steps for documents like these; None where the model's own stay: of few documents, or by chance alone.

    Args:
        model: that links.
        given: documents; the first `RETRIEVAL_POOL` are read.
    """
    usable = [each for each in given if _is_usable(each)][:RETRIEVAL_POOL]
    n = np.array([len(each.texts) for each in usable], np.int64)
    m = np.array([len(each.image_vectors) for each in usable], np.int64)
    usable = usable[: few_enough(n, m)]
    if len(usable) < ENOUGH_TO_RANK:
        return None
    try:
        documents = model.read(usable)
        texts, images = (rows.cpu().numpy() for rows in model.encode(documents))
    except (UsageError, IntegrityError):  # what is wrong with a document is a failure of it alone, where it is linked
        return None
    steps = copy.deepcopy(model.steps) or LinkSteps(LinkSettings(), model.card.config.dimensions)
    changes = [_fit_names(model, steps, documents, texts, images)]
    if documents.sources is None:  # else a document is one row, which has no place
        changes.append(_fit_order(model, steps, documents))
    words = "; ".join(filter(None, changes))
    return FittedSteps(steps, words) if words else None


def _is_usable(document: GivenDocument) -> bool:
    vectors = (document.image_vectors, *(() if document.sentence_vectors is None else (document.sentence_vectors,)))
    has_both = len(document.texts) > 0 and len(document.image_vectors) > 0
    return has_both and all(np.isfinite(each).all() for each in vectors)


def _fit_names(model: LinkModel, steps: LinkSteps, documents: DocumentSet, texts: Float32, images: Float32) -> str:
    """Choose the weight of class names by the rank of own images; return what changed, or nothing."""
    names = steps.namer(documents)(slice(None), np.arange(len(images)))
    if names is None or not names.std():
        return ""
    before, level = tuple(steps.weights.tolist()), float(steps.levels[1])
    unit = float((texts @ images.T).std() / names.std())
    tried = [before, *((before[0], unit * weight) for weight in WEIGHTS)]
    steps.levels[1] = float(names.mean())
    own, *others = shares_behind(model, steps, [documents], tried)
    gains = [each - own for each in others]
    best = int(np.argmax([gain.mean() for gain in gains])) if len(own) else 0
    if not len(own) or not gains[best].mean() > ERRORS * gains[best].std(ddof=1) / np.sqrt(len(own)):
        steps.levels[1] = level
        return ""
    steps.weights.copy_(torch.tensor(tried[1 + best]))
    return f"class names of weight {tried[1 + best][1]:.2g} in place of {before[1]:.2g}"


def _fit_order(model: LinkModel, steps: LinkSteps, documents: DocumentSet) -> str:
    """Learn the order of the documents, where they show one; return what it is, or nothing."""
    order = Order(log_weights=torch.zeros(BINS), is_tested=True)
    learn_order(model, (documents.take_documents([number]) for number in range(len(documents))), order)
    if not order.log_weights.any():
        return ""
    steps.order = order.log_weights
    return order.words
