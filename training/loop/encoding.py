"""A batch from the split to the joint space: its documents read and chosen from, then encoded.

Preparing is numpy's and can be done ahead, in another thread; encoding is the device's. Where a group of workers shares
a batch, each prepares all of its documents, and encodes some.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from schemas.errors import UsageError
from training.config import Precision
from training.data.documents import DocumentSet
from training.data.ragged import Bool, Float32, Int64, Ragged, to_device
from training.data.sampling import Choice, choose_all, sample_rows
from training.data.split import TrainingSplit
from training.data.streams import seed_of
from training.loop.context import Context
from training.model import LinkModel
from training.objectives import batch as objectives
from training.objectives.batch import DrawKey, EncodedBatch, Relations
from training.relations import label_matrix
from training.similarity.assignment import Problems, assign, solved_by
from training.towers.dropout import drawing
from training.towers.inputs import Rows, TrainingPass, image_input, text_input


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedBatch:
    """A batch of B documents, and the rows that its towers read on this worker.

    Attributes:
        draw_key: of the batch.
        documents: the sentences and images of all its documents that take part.
        own: which of the documents this worker encodes.
        sentences: their rows for the text tower.
        images: their rows for the image tower, one an image place.
        sentence_keys: numbers of those sentences in the split, the keys of their dropout.
        image_keys: numbers of those image places in the split.
        allowed: B x B, whether a document may be another's negative: never itself, nor one with the same image set.
        labels: B x R relations (1, 0, NaN unknown), where the model predicts relations and the split's were read.
        links: of all documents, where they are shown.
    """

    draw_key: DrawKey
    documents: DocumentSet
    own: range
    sentences: Rows
    images: Rows
    sentence_keys: Int64
    image_keys: Int64
    allowed: Bool
    labels: Float32 | None = None
    links: tuple[Int64 | None, ...] | None = None

    def __len__(self) -> int:
        return len(self.documents)


def prepare_batch(
    model: LinkModel, split: TrainingSplit, positions: Int64, draw_key: DrawKey, group: Context
) -> PreparedBatch:
    """Return the documents at some positions of a split as a batch."""
    index, whole = split.index, split.documents(positions)
    choice = _choose(model, whole, draw_key)
    documents = whole.take(choice, np.arange(len(whole)))
    shares = np.array_split(np.arange(len(documents)), group.world_size)
    own = shares[group.rank]
    sentence_rows, image_rows = documents.sentences.positions(own), documents.images.positions(own)
    mine = documents if group.world_size == 1 else documents.take_documents(own)
    labels = None
    if model.relations is not None and documents.relations is not None:
        labels = label_matrix(documents.relations, model.card.relations)
    return PreparedBatch(
        draw_key=draw_key,
        documents=documents,
        own=range(int(own[0]), int(own[-1]) + 1) if len(own) else range(0),
        sentences=model.text.prepare(text_input(mine)),
        images=model.image.prepare(image_input(mine)).take(mine.image_rows),
        sentence_keys=index.sentences.positions(positions)[choice.sentence_rows[sentence_rows]],
        image_keys=index.images.positions(positions)[choice.image_rows[image_rows]],
        allowed=~index.same_image_set(positions),
        labels=labels,
        links=split.links_shown(whole),
    )


def encode_batch(model: LinkModel, batch: PreparedBatch, group: Context) -> EncodedBatch:
    """Return a batch encoded, equal on every worker of a group but for whose rows carry a gradient."""
    draw_key, documents, device = batch.draw_key, batch.documents, group.device
    draw = seed_of("dropout", draw_key.seed, draw_key.split, draw_key.epoch, draw_key.step)
    training_pass = TrainingPass(seed=draw_key.seed, epoch=draw_key.epoch, step=draw_key.step, gather=group.gather)
    with autocast(model, device):
        with drawing(draw, batch.sentence_keys, device):
            text_ND = model.text(batch.sentences, training_pass)
        with drawing(draw, batch.image_keys, device):
            image_MD = model.image(batch.images, training_pass)
    logits = _logits(model, batch, text_ND, image_MD)
    relations = None
    if model.relations is not None and logits is not None and batch.labels is not None:
        whole = _whole(logits, Ragged.of([1] * len(batch)), batch, group)
        relations = Relations(logits=whole, labels=to_device(batch.labels, device), weights=model.relations.weights)
    return EncodedBatch(
        ids=documents.ids,
        sentences=documents.sentences,
        images=documents.images,
        text_vectors=_whole(text_ND, documents.sentences, batch, group),
        image_vectors=_whole(image_MD, documents.images, batch, group),
        allowed=to_device(batch.allowed, device),
        draw_key=draw_key,
        relations=relations,
        links=batch.links,
    )


def batch_losses(model: LinkModel, batch: EncodedBatch, group: Context) -> Tensor:
    """Return the B losses of a batch; the workers of a group divide its assignment problems among them."""
    with _assignments_shared(group):
        return objectives.losses(model.card.config.objective, batch)


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


def _choose(model: LinkModel, documents: DocumentSet, draw_key: DrawKey) -> Choice:
    """Return the objective's choice of rows, out of at most `max_rows` sentences and images of each document."""
    terms, max_rows = model.card.config.objective, model.card.config.training.max_rows
    everyone = np.arange(len(documents))
    if not max_rows:
        return objectives.choose(terms, documents, everyone, draw_key)
    sample = sample_rows(
        documents, everyone, max_rows=max_rows, seed=draw_key.seed, epoch=draw_key.epoch, step=draw_key.step
    )
    choice = objectives.choose(terms, sample, everyone, draw_key)
    return Choice(
        ids=choice.ids,
        sentences=choice.sentences,
        images=choice.images,
        sentence_rows=sample.sentence_rows[choice.sentence_rows],
        image_rows=sample.image_rows[choice.image_rows],
    )


def _logits(model: LinkModel, batch: PreparedBatch, text_ND: Tensor, image_ND: Tensor) -> Tensor | None:
    """Return the logits of the relations of this worker's pairs."""
    if model.relations is None or batch.labels is None:
        return None
    if len(text_ND) != len(batch.own) or len(image_ND) != len(batch.own):
        raise UsageError("objective 'coherence': expected documents of one text and one image")
    logits: Tensor = model.relations(text_ND, image_ND)
    return logits


def _whole(rows: Tensor, sets: Ragged, batch: PreparedBatch, group: Context) -> Tensor:
    """Return the rows of all documents of a batch: this worker's as they are, the others' as constants."""
    if group.world_size == 1:
        return rows
    shares = np.array_split(sets.counts, group.world_size)
    parts = group.gather(rows, [int(share.sum()) for share in shares])
    parts[group.rank] = rows
    return torch.cat(parts)


@contextmanager
def _assignments_shared(group: Context) -> Iterator[None]:
    """Let each worker of a group solve a share of the assignment problems inside, and take the others' solutions."""

    def solve(gains: Float32, problems: Problems) -> Int64:
        rows = problems.rows
        ends = np.searchsorted(rows.offsets, np.arange(1, group.world_size) * rows.total / group.world_size)
        shares = np.split(np.arange(len(problems)), ends)
        own = assign(gains, problems.take(shares[group.rank]))
        counts = [int(rows.sizes(share).sum()) for share in shares]
        parts = group.gather(to_device(own, group.device), counts)
        return torch.cat(parts).cpu().numpy()

    if group.world_size == 1:
        yield
    else:
        with solved_by(solve):
            yield
