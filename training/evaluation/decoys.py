"""How many predicted links are false at least, where no true link is known: linked pairs put into other documents.

A linked sentence and image take the places of a linked pair of another document, and that document is linked anew. As
many sentences and images compete there as before, and all others are wrong for the pair. The estimate is the share of
pairs whose shorter side (an image, where the document has more sentences) is then linked to something else:

- A right link is broken no more often by others' sentences and images than by those of its own document, which
  resemble each other more.
- A false link is at least as strong as the right one that it displaced, so it is broken no more often than that was.

So on average the estimate is at most the share of false links (`tests/training/evaluation/test_decoys.py` simulates it
for documents of several shapes). It is no more than that: where a model is sure of the wrong sentence, few are broken.
The idea of false candidates that are known to be false is that of target-decoy searches (Elias and Gygi 2007).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from schemas.lake import Folder
from schemas.manifest import Manifest
from schemas.parts import split_parts
from training.data.documents import DocumentSet
from training.data.ragged import Int64
from training.model import EmbeddedDocument, LinkModel
from training.shards import embed_shard, filled_splits
from training.similarity.assignment import predicted_pairs

ENOUGH = 500  # documents of a split
Choose = Callable[[EmbeddedDocument], tuple[Int64, Int64]]
Place = tuple[int, int, int]  # document, sentence, image


@dataclass(frozen=True, slots=True)
class Decoys:
    """Linked pairs that were put into other documents, and how many of them were linked otherwise there."""

    pairs: int = 0
    broken: int = 0

    @property
    def false_share(self) -> float | None:
        """Return the share of links that is false at least, 0 to 1; None without a pair."""
        return self.broken / self.pairs if self.pairs else None

    def line(self) -> str:
        """Return the estimate in words."""
        if self.false_share is None:
            return "no linked pair could be put into another document: no share of false links is estimated"
        return (
            f"at least {self.false_share:.0%} of the links are false, by {self.pairs} linked pairs that were put into "
            "other documents; this is a lower bound: sentences of one document are easier to confuse, and a low share "
            "promises nothing"
        )


def best_pairs(document: EmbeddedDocument) -> tuple[Int64, Int64]:
    """Return the predicted links of a document."""
    return predicted_pairs(document.similarities())


def count_decoys(
    model: LinkModel, manifest: Manifest, folder: Folder, splits: Sequence[str] = (), *, choose: Choose = best_pairs
) -> Decoys:
    """Return the broken pairs of the first documents of some splits of a version, all where none is named.

    Raises:
        UsageError: the data set version has no such vectors as the model reads.
    """
    pairs = broken = 0
    for split in splits or filled_splits(manifest):
        left = ENOUGH
        for shard in split_parts(manifest, split):
            if left <= 0:
                break
            found = embed_shard(manifest, folder, model, shard)
            counted = broken_pairs(found.documents, found.vectors(model.steps)[:left], choose=choose)
            pairs, broken = pairs + counted.pairs, broken + counted.broken
            left -= len(found.documents)
    return Decoys(pairs, broken)


def broken_pairs(
    documents: DocumentSet, embedded: Sequence[EmbeddedDocument], *, choose: Choose = best_pairs
) -> Decoys:
    """Return how many linked pairs of some documents are linked otherwise in others of them.

    Args:
        documents: with what the steps of the model read.
        embedded: vectors of the first of them.
        choose: gives the links of a document.
    """
    places: list[Place] = []
    for number, each in enumerate(embedded):
        places += [(number, int(row), int(column)) for row, column in zip(*choose(each), strict=True)]
    pairs = broken = 0
    for mixed, row, column in _mixed(documents, embedded, places):
        rows, columns = choose(mixed)
        n, m = len(mixed.texts), len(mixed.images)
        partner = columns[rows == row] if n <= m else rows[columns == column]
        pairs += len(partner)
        broken += int((partner != (column if n <= m else row)).sum())
    return Decoys(pairs, broken)


def _mixed(
    documents: DocumentSet, embedded: Sequence[EmbeddedDocument], places: Sequence[Place]
) -> Iterator[tuple[EmbeddedDocument, int, int]]:
    """Yield documents with a linked pair of another document in the place of one of theirs: row and column.

    The other pair is that half of all links away. A document that has the same sentence or image is left out: a link
    to it could be right.
    """
    half = len(places) // 2
    for (number, row, column), (other, text, image) in zip(places, [*places[half:], *places[:half]], strict=True):
        own, given = embedded[number], embedded[other]
        texts, images = own.texts.copy(), own.images.copy()
        texts[row], images[column] = given.texts[text], given.images[image]
        rows = np.arange(len(documents.texts))[documents.sentences.rows(number)]
        shown = documents.image_rows[documents.images.rows(number)].copy()
        new_row = int(documents.sentences.offsets[other]) + text
        new_image = int(documents.image_rows[int(documents.images.offsets[other]) + image])
        known = {documents.texts[each] for each in rows}
        if number == other or documents.texts[new_row] in known or new_image in shown:
            continue
        rows[row], shown[column] = new_row, new_image
        names = None if own.steps is None else own.steps.namer(documents)(rows, shown)
        yield replace(own, texts=texts, images=images, names=names), row, column
