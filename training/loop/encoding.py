"""Documents to the joint space, over all workers: each encodes those it holds, all get all, in one common order.

The rows of other workers arrive as constants; a worker's own rows stay attached to its parameters (`context.py` says
why that gives the exact gradient).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from schemas.errors import UsageError
from training.config import Precision
from training.data.documents import HeldSplit
from training.data.ragged import Int64, Ragged, to_device
from training.data.sampling import Choice, sample_rows
from training.data.streams import seed_of
from training.loop.context import Context
from training.model import LinkModel
from training.objectives import batch as objectives
from training.objectives.batch import EncodedBatch, Moment, Relations
from training.relations import label_matrix
from training.towers.dropout import drawing
from training.towers.inputs import Rows, TrainingPass, image_input, on_device, text_input

ROWS_AT_ONCE = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedSplit:
    """A held split with the rows its towers read.

    Attributes:
        held: the split.
        sentences: one row a sentence.
        images: one row a bank image.
        sentence_keys: number of each held sentence among those of the whole split, the key of its dropout.
        image_keys: number of each held image place among those of the whole split.
        relations: D_held x R labels (1, 0, NaN unknown), where the model predicts relations and the split's were read.
    """

    held: HeldSplit
    sentences: Rows
    images: Rows
    sentence_keys: Int64
    image_keys: Int64
    relations: Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRows:
    """What one worker encoded: B_own places in the common order, and the rows of those documents.

    Attributes:
        places: places of the worker's documents, int64.
        sentences: which of the N sentences are of which document.
        images: which of the M images are of which document.
        text_vectors: N x d, of the sentences.
        image_vectors: M x d, of the images.
        relations: B_own x 2R, logits and labels of the documents' relations, where there are any.
    """

    places: Int64
    sentences: Ragged
    images: Ragged
    text_vectors: Tensor
    image_vectors: Tensor
    relations: Tensor | None = None


def prepare_split(model: LinkModel, held: HeldSplit) -> PreparedSplit:
    """Return a split with its rows prepared for a model's towers (words looked up once, not at every step)."""
    documents, index = held.documents, held.index
    positions = np.flatnonzero(held.local >= 0)
    labels = None
    if model.relations is not None and documents.relations is not None:
        labels = torch.from_numpy(label_matrix(documents.relations, model.card.relations)).to(model.device)
    return PreparedSplit(
        held=held,
        sentences=on_device(model.text.prepare(text_input(documents)), model.device),
        images=on_device(model.image.prepare(image_input(documents)), model.device),
        sentence_keys=index.sentences.positions(positions),
        image_keys=index.images.positions(positions),
        relations=labels,
    )


def encode_batch(
    model: LinkModel,
    split: PreparedSplit,
    *,
    positions: Int64,
    moment: Moment,
    context: Context,
) -> EncodedBatch:
    """Return a global batch encoded, equal on every worker but for whose rows carry a gradient."""
    held = split.held
    places = held.held(positions)
    own_documents = held.local[positions[places]]
    choice = _choose(model, held, own_documents, moment)
    draw = seed_of("dropout", moment.seed, moment.split, moment.epoch, moment.step)
    training_pass = TrainingPass(seed=moment.seed, epoch=moment.epoch, step=moment.step, gather=context.gather)
    with autocast(model, context):
        with drawing(draw, split.sentence_keys[choice.sentence_rows], context.device):
            text_ND = model.text(split.sentences.take(choice.sentence_rows), training_pass)
        with drawing(draw, split.image_keys[choice.image_rows], context.device):
            image_MD = model.image(split.images.take(held.documents.image_rows[choice.image_rows]), training_pass)
    own = OwnRows(
        places=places,
        sentences=choice.sentences,
        images=choice.images,
        text_vectors=text_ND,
        image_vectors=image_MD,
        relations=_own_relations(model, split, own_documents, text_ND, image_MD),
    )
    whole = share(own, context)
    return EncodedBatch(
        ids=tuple(held.index.ids[position] for position in positions),
        sentences=whole.sentences,
        images=whole.images,
        text_vectors=whole.text_vectors,
        image_vectors=whole.image_vectors,
        allowed=allowed_negatives(held, positions, context.device),
        moment=moment,
        relations=_relations(model, whole),
        links=held.links_at(positions),
    )


def _own_relations(
    model: LinkModel, split: PreparedSplit, documents: Int64, text_ND: Tensor, image_ND: Tensor
) -> Tensor | None:
    """Return logits and labels of this worker's pairs, side by side; each worker predicts for its own alone."""
    if model.relations is None or split.relations is None:
        return None
    if len(text_ND) != len(documents) or len(image_ND) != len(documents):
        raise UsageError("objective 'coherence': expected documents of one text and one image")
    labels = split.relations.index_select(0, to_device(documents, text_ND.device))
    return torch.cat([model.relations(text_ND, image_ND), labels], dim=1)


def _relations(model: LinkModel, whole: OwnRows) -> Relations | None:
    if model.relations is None or whole.relations is None:
        return None
    logits, labels = whole.relations.chunk(2, dim=1)
    return Relations(logits=logits, labels=labels, weights=model.relations.weights)


def encode_documents(model: LinkModel, split: PreparedSplit, context: Context) -> OwnRows:
    """Return every sentence and image of the documents this worker holds, without dropout or gradient."""
    documents = split.held.documents
    model.eval()
    with torch.no_grad(), autocast(model, context):
        text_ND = _in_pieces(model.text, split.sentences, np.arange(len(documents.texts)))
        image_MD = _in_pieces(model.image, split.images, documents.image_rows)
    return OwnRows(
        places=np.flatnonzero(split.held.local >= 0),
        sentences=documents.sentences,
        images=documents.images,
        text_vectors=text_ND,
        image_vectors=image_MD,
    )


def share(own: OwnRows, context: Context) -> OwnRows:
    """Return the rows of all workers, documents in order of their places."""
    header = np.stack([own.places, own.sentences.counts, own.images.counts], axis=1)
    headers = context.gather_table(header)
    mine = torch.cat([own.text_vectors, own.image_vectors])
    rows = context.gather(mine, [int(head[:, 1:].sum()) for head in headers])
    rows[context.rank] = mine
    pieces = [
        torch.split(part, [int(head[:, 1].sum()), int(head[:, 2].sum())])
        for part, head in zip(rows, headers, strict=True)
    ]
    places, *counts = np.concatenate(headers).T
    sentences, images = map(Ragged.of, counts)
    order = np.argsort(places)
    relations = None
    if own.relations is not None:
        parts = context.gather(own.relations, [len(head) for head in headers])
        parts[context.rank] = own.relations
        relations = torch.cat(parts).index_select(0, to_device(order, own.relations.device))
    return OwnRows(
        places=places[order],
        sentences=sentences.take(order),
        images=images.take(order),
        text_vectors=_reorder(torch.cat([piece[0] for piece in pieces]), sentences, order),
        image_vectors=_reorder(torch.cat([piece[1] for piece in pieces]), images, order),
        relations=relations,
    )


def choose_encoded(
    rows: OwnRows,
    choice: Choice,
    allowed_BB: Tensor,
    *,
    moment: Moment,
    links: tuple[Int64 | None, ...] | None = None,
) -> EncodedBatch:
    """Return the batch that a choice among already encoded rows makes."""
    device = rows.text_vectors.device
    return EncodedBatch(
        ids=choice.ids,
        sentences=choice.sentences,
        images=choice.images,
        text_vectors=rows.text_vectors.index_select(0, to_device(choice.sentence_rows, device)),
        image_vectors=rows.image_vectors.index_select(0, to_device(choice.image_rows, device)),
        allowed=allowed_BB,
        moment=moment,
        links=links,
    )


def allowed_negatives(held: HeldSplit, positions: Int64, device: torch.device) -> Tensor:
    """Return B x B: whether a document may be another's negative; never one with the same image set, nor itself."""
    return to_device(~held.index.same_image_set(positions), device)


def autocast(model: LinkModel, context: Context) -> torch.autocast:
    """Return the region in which matrix products run at the configured precision."""
    enabled = model.card.config.training.precision is Precision.BFLOAT16
    return torch.autocast(context.device.type, dtype=torch.bfloat16, enabled=enabled)


def _choose(model: LinkModel, held: HeldSplit, rows: Int64, moment: Moment) -> Choice:
    """Return the objective's choice of rows, out of at most `max_rows` sentences and images of each document."""
    terms, max_rows = model.card.config.objective, model.card.config.training.max_rows
    if not max_rows:
        return objectives.choose(terms, held.documents, rows, moment)
    sample = sample_rows(
        held.documents, rows, max_rows=max_rows, seed=moment.seed, epoch=moment.epoch, step=moment.step
    )
    choice = objectives.choose(terms, sample, np.arange(len(rows)), moment)
    rows_of_choice = sample.sentence_rows[choice.sentence_rows], sample.image_rows[choice.image_rows]
    return replace(choice, sentence_rows=rows_of_choice[0], image_rows=rows_of_choice[1])


def _in_pieces(tower: torch.nn.Module, rows: Rows, chosen: Int64) -> Tensor:
    starts = range(0, max(len(chosen), 1), ROWS_AT_ONCE)
    return torch.cat([tower(rows.take(chosen[start : start + ROWS_AT_ONCE])) for start in starts])


def _reorder(rows: Tensor, documents: Ragged, order: Int64) -> Tensor:
    """Return ragged rows with their documents in another order."""
    return rows.index_select(0, to_device(documents.positions(order), rows.device))
