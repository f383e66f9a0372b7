"""Steps at link time for the documents that are linked: weights chosen on them again, without a link.

A model's weight of class names is that of its training data. On pictures of another kind another one may rank own
images better, and the documents may have an order that those of the training did not have. What is chosen is clear of
chance, or stays as it was.
"""

import copy
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

import numpy as np
import torch

from schemas.failures import Failure
from schemas.lake import Folder
from schemas.manifest import Manifest
from schemas.messages import IntegrityError, UsageError
from schemas.parts import split_parts
from training.closed_form.plans import BINS, Order
from training.data.documents import DocumentSet, GivenDocument, joined
from training.data.loading import read_for_model
from training.data.ragged import Float32
from training.data.threads import one_thread
from training.link_steps import LinkSteps
from training.linking.links import Linker
from training.loop.link_steps import NAMES_WEIGHTS, few_enough, learn_order, shares_behind
from training.loop.validation import ENOUGH_TO_RANK, RETRIEVAL_POOL
from training.model import LinkModel
from training.parts import LinkSettings
from training.shards import filled_splits

WEIGHTS = (*NAMES_WEIGHTS, 3.2, 6.4, 12.8)
ERRORS = 2.0  # standard errors by which own images have to rank better


@dataclass(frozen=True, slots=True)
class FittedSteps:
    """Steps that were chosen on the documents that are linked, and what changed, in words."""

    steps: LinkSteps
    words: str

    def to_json(self) -> dict[str, Any]:
        """Return the numbers that were chosen, for fingerprints."""
        chosen = {"weights": self.steps.weights, "levels": self.steps.levels, "order": self.steps.order}
        return {name: None if each is None else each.tolist() for name, each in chosen.items()}


def fitted(
    linker: Linker, given: Iterable[GivenDocument | Failure]
) -> tuple[Linker, str, Iterator[GivenDocument | Failure]]:
    """Return a linker for a user's documents, what was chosen on the first `RETRIEVAL_POOL` in words, and all of them.

    Nothing is chosen, and the words are empty, where the linker's options forbid it (`LinkOptions.can_fit`).
    """
    remaining = iter(given)
    first = list(islice(remaining, RETRIEVAL_POOL)) if linker.options.can_fit else []
    usable = [each for each in first if isinstance(each, GivenDocument)]
    chosen = None
    with suppress(UsageError, IntegrityError):  # of a document: a failure of it alone, where it is linked
        chosen = fit_steps(linker.model, linker.model.read(usable)) if usable else None
    if chosen is not None:
        linker = replace(linker, steps=chosen.steps)
    return linker, "" if chosen is None else chosen.words, chain(first, remaining)


def fit_version(model: LinkModel, manifest: Manifest, folder: Folder) -> FittedSteps | None:
    """Return steps for the documents of a data set version, chosen on its first; None where the model's own stay.

    They stay for versions of the data set that the model was trained on: there they were chosen in training.

    Raises:
        UsageError: the version lacks what the model reads.
    """
    card, read = model.card, list[DocumentSet]()
    if manifest.dataset == card.data.dataset:
        return None
    for shard in (each for split in filled_splits(manifest) for each in split_parts(manifest, split)):
        where = (manifest, folder, shard.split)
        read.append(
            read_for_model(card.config.reading, card.data, *where, with_truth=True, shards=[shard], unreadable=[])
        )
        if sum(map(len, read)) >= RETRIEVAL_POOL:
            break
    with one_thread():
        return fit_steps(model, joined(read)) if read else None


def fit_steps(model: LinkModel, documents: DocumentSet) -> FittedSteps | None:
    """Return steps for documents like these; None where the model's own stay: of few documents, or by chance alone.

    Args:
        model: that links.
        documents: as the model reads them; the first `RETRIEVAL_POOL` with sentences, images and finite vectors count.

    Raises:
        UsageError: the documents lack what the model reads.
    """
    n, m = documents.sentences.counts, documents.images.counts
    usable = np.flatnonzero((n > 0) & (m > 0) & documents.are_finite)[:RETRIEVAL_POOL]
    usable = usable[: few_enough(n[usable], m[usable])]
    if len(usable) < ENOUGH_TO_RANK:
        return None
    documents = documents.take_documents(usable)
    texts, images = (rows.cpu().numpy() for rows in model.encode(documents))
    steps = copy.deepcopy(model.steps) or LinkSteps(LinkSettings(), model.card.config.dimensions)
    changes = [_fit_names(model, steps, documents, texts, images)]
    if documents.sources is None:  # else a document is one row, which has no place
        changes.append(_fit_order(model, steps, documents))
    words = "; ".join(filter(None, changes))
    return FittedSteps(steps, words) if words else None


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
