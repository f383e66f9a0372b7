"""A batch from the split to its losses: documents read, rows chosen, both encoded, the terms of the objective summed.

Preparing is numpy's and can be done ahead, in another thread; encoding is the device's.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from training.config import Precision
from training.data.documents import DocumentSet
from training.data.ragged import Bool, Choice, Documents, Float32, Int64, choose_all, sample_rows, to_device
from training.data.split import TrainingSplit
from training.model import LinkModel, label_matrix
from training.objectives.batch import DrawKey, EncodedBatch, Relations
from training.objectives.term import Term
from training.towers.inputs import Rows, image_input, text_input


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedBatch:
    """A batch of B documents, and the rows that its towers read.

    Attributes:
        draw_key: of the batch.
        documents: the sentences and images of the documents that take part.
        sentences: their rows for the text tower.
        images: their rows for the image tower; an image of two documents has two.
        allowed: B x B, whether a document may be another's negative: never itself, nor one with the same image set.
        labels: B x R relations (1, 0, NaN unknown), where the model predicts relations and the split's were read.
        links: of all documents, where they are shown.
    """

    draw_key: DrawKey
    documents: DocumentSet
    sentences: Rows
    images: Rows
    allowed: Bool
    labels: Float32 | None = None
    links: tuple[Int64 | None, ...] | None = None

    def __len__(self) -> int:
        return len(self.documents)


def prepare_batch(model: LinkModel, split: TrainingSplit, positions: Int64, draw_key: DrawKey) -> PreparedBatch:
    """Return the documents at some positions of a split as a batch."""
    whole = split.documents(positions)
    documents = whole.take(_choose(model, whole, draw_key), np.arange(len(whole)))
    labels = None
    if model.relations is not None and documents.relations is not None:
        labels = label_matrix(documents.relations, model.card.relations)
    return PreparedBatch(
        draw_key=draw_key,
        documents=documents,
        sentences=model.text.prepare(text_input(documents)),
        images=model.image.prepare(image_input(documents)).take(documents.image_rows),
        allowed=~split.index.same_image_set(positions),
        labels=labels,
        links=split.links_shown(whole),
    )


def encode_batch(model: LinkModel, batch: PreparedBatch, device: torch.device) -> EncodedBatch:
    """Return a batch encoded by a model on its device; dropout, in training mode, is drawn by torch's generators."""
    with autocast(model, device):
        text_ND, image_MD = model.text(batch.sentences), model.image(batch.images)
    relations = None
    if model.relations is not None and batch.labels is not None:
        logits_BR = model.relations(text_ND, image_MD)
        labels_BR = to_device(batch.labels, device)
        relations = Relations(logits=logits_BR, labels=labels_BR, weights=model.relations.weights)
    return EncodedBatch(
        ids=batch.documents.ids,
        sentences=batch.documents.sentences,
        images=batch.documents.images,
        text_vectors=text_ND,
        image_vectors=image_MD,
        allowed=to_device(batch.allowed, device),
        draw_key=batch.draw_key,
        relations=relations,
        links=batch.links,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedDocuments:
    """Documents without dropout or gradient, from which batches are chosen to judge a model by.

    Attributes:
        documents: D of them.
        text_vectors: N x d, of their sentences.
        image_vectors: M x d, of their image places.
        links: that are shown to the objective.
    """

    documents: DocumentSet
    text_vectors: Tensor
    image_vectors: Tensor
    links: tuple[Int64 | None, ...] | None = None

    def batch(self, rows: Int64, draw_key: DrawKey, choice: Choice | None = None) -> EncodedBatch:
        """Return the batch of some of the documents, or of what is chosen of them."""
        device, documents = self.text_vectors.device, self.documents
        chosen = choose_all(documents, rows) if choice is None else choice
        image_sets = documents.image_sets[rows]
        return EncodedBatch(
            ids=chosen.ids,
            sentences=chosen.sentences,
            images=chosen.images,
            text_vectors=self.text_vectors.index_select(0, to_device(chosen.sentence_rows, device)),
            image_vectors=self.image_vectors.index_select(0, to_device(chosen.image_rows, device)),
            allowed=to_device(image_sets[:, None] != image_sets[None, :], device),
            draw_key=draw_key,
            links=None if self.links is None else tuple(self.links[row] for row in rows),
        )


def encode_documents(model: LinkModel, split: TrainingSplit, positions: Int64) -> EncodedDocuments:
    """Return the documents at some positions of a split, each different image of them encoded once."""
    documents = split.documents(positions)
    with autocast(model, model.device):
        text_ND, image_UD = model.encode(documents)
    return EncodedDocuments(
        documents=documents,
        text_vectors=text_ND,
        image_vectors=image_UD.index_select(0, to_device(documents.image_rows, image_UD.device)),
        links=split.links_shown(documents),
    )


def autocast(model: LinkModel, device: torch.device) -> torch.autocast:
    """Return the region in which matrix products run at the configured precision."""
    enabled = model.card.config.training.precision is Precision.BFLOAT16
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled)


def choose(terms: Sequence[Term], documents: Documents, chosen: Int64, draw_key: DrawKey) -> Choice:
    """Return which rows of some documents an objective needs encoded: of several terms, all."""
    choice = terms[0].choose(documents, chosen, draw_key) if len(terms) == 1 else None
    return choose_all(documents, chosen) if choice is None else choice


def losses(terms: Sequence[Term], batch: EncodedBatch) -> Tensor:
    """Return the B losses of an objective: the sums of its terms' (Li 2022, eq. 5; Alikhani 2022, eq. 3)."""
    return torch.stack([each.losses(batch) for each in terms]).sum(dim=0)


def _choose(model: LinkModel, documents: DocumentSet, draw_key: DrawKey) -> Choice:
    """Return the objective's choice of rows, out of at most `max_rows` sentences and images of each document."""
    terms, max_rows = model.card.config.objective, model.card.config.training.max_rows
    everyone = np.arange(len(documents))
    if not max_rows:
        return choose(terms, documents, everyone, draw_key)
    sample = sample_rows(
        documents, everyone, max_rows=max_rows, seed=draw_key.seed, epoch=draw_key.epoch, step=draw_key.step
    )
    choice = choose(terms, sample, everyone, draw_key)
    return Choice(
        ids=choice.ids,
        sentences=choice.sentences,
        images=choice.images,
        sentence_rows=sample.sentence_rows[choice.sentence_rows],
        image_rows=sample.image_rows[choice.image_rows],
    )
