"""How many predicted links are false at least, where no true link is known: sentences of other documents as decoys.

A document gets as many sentences of other documents as it has of its own. Links to these are false for sure, and a link
that is false goes to one of them as easily as to an own sentence (Elias and Gygi 2007). So as many of the own links are
false. It is a lower bound: sentences of one document are nearer to its images than others', and a false link to one of
them is more likely than that. A high share is an alarm; a low one promises nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schemas.lake import Folder
from schemas.manifest import Manifest
from schemas.parts import split_parts
from training.data.documents import DocumentSet
from training.data.loading import read_for_model
from training.model import EmbeddedDocument, LinkModel
from training.shards import filled_splits
from training.similarity.assignment import predicted_pairs

ENOUGH = 500  # documents


@dataclass(frozen=True, slots=True)
class Decoys:
    """Links of documents with decoys: to their own sentences, and to decoys."""

    own: int = 0
    decoys: int = 0

    @property
    def false_share(self) -> float | None:
        """Return the share of own links that is false at least, 0 to 1; None without a link."""
        return min(1.0, self.decoys / self.own) if self.own else None

    def line(self) -> str:
        """Return the estimate in words."""
        if self.false_share is None:
            return "no link was predicted among decoys: nothing to estimate"
        return (
            f"at least {self.false_share:.0%} of the links are false, by decoys (sentences of other documents); "
            "this is a lower bound: sentences of one document are easier to confuse, and a low share promises nothing"
        )


def count_decoys(model: LinkModel, manifest: Manifest, folder: Folder, *, enough: int = ENOUGH) -> Decoys:
    """Return the links of the first documents of each split of a version with decoys, until these are enough.

    Raises:
        UsageError: the data set version has no such vectors as the model reads.
    """
    own = decoys = left = 0
    for split in filled_splits(manifest):
        left = enough
        for shard in split_parts(manifest, split):
            documents = read_for_model(model.card.config, model.card.data, manifest, folder, split, shards=[shard])
            found = _of_shard(model, documents, left)
            own, decoys, left = own + found.own, decoys + found.decoys, left - len(documents)
            if left <= 0:
                break
    return Decoys(own, decoys)


def _of_shard(model: LinkModel, documents: DocumentSet, most: int) -> Decoys:
    """Return the links of at most so many documents; their decoys are the sentences that follow in the shard."""
    texts, images = (rows.cpu().numpy() for rows in model.encode(documents))
    steps, own, decoys = model.steps, 0, 0
    named = None if steps is None else steps.namer(documents)
    for number in range(min(most, len(documents))):
        mine = documents.sentences.positions(np.array([number]))
        if not len(mine) or 2 * len(mine) > len(texts):
            continue
        rows = (mine[0] + np.arange(2 * len(mine))) % len(texts)
        shown = documents.image_rows[documents.images.positions(np.array([number]))]
        names = None if named is None else named(rows, shown)
        sentences, _ = predicted_pairs(EmbeddedDocument(texts[rows], images[shown], steps, names).similarities())
        own += int((sentences < len(mine)).sum())
        decoys += int((sentences >= len(mine)).sum())
    return Decoys(own, decoys)
