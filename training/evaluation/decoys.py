"""An estimate of how many predicted links are false, where no true link is known: linked pairs in other documents.

A linked sentence and image take the places of a linked pair of another document, and that document is linked again. As
many sentences and images compete there as before, and all others are wrong for the pair. The estimate is the share of
pairs whose shorter side (an image, where the document has more sentences) is then linked to something else. It is no
bound:

- Where sentences and images of one document resemble each other more than those of others, it is too low: a right link
  is broken less often elsewhere, and a model that is sure of a wrong sentence is sure of it there as well.
- Where a motif comes back in other documents and never twice in one, as in many blogs, it is too high.

Documents are the independent units of its interval. The idea of false candidates that are known to be false is that of
target-decoy searches (Elias and Gygi 2007).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from schemas.lake import Folder
from schemas.manifest import Manifest
from schemas.parts import split_parts
from training.data.documents import DocumentSet
from training.data.loading import read_for_model
from training.data.ragged import Int64
from training.link_steps import LinkSteps
from training.metrics.intervals import Interval, mean_interval
from training.model import EmbeddedDocument, LinkModel
from training.shards import filled_splits
from training.similarity.similarity import predicted_pairs

ENOUGH = 500  # documents of a split
FEWEST = 100  # pairs that something is said by
Choose = Callable[[EmbeddedDocument], tuple[Int64, Int64]]
Place = tuple[int, int, int]  # document, sentence, image


@dataclass(frozen=True, slots=True)
class Decoys:
    """Linked pairs that were put into other documents, and how many of them were linked otherwise there.

    Attributes:
        pairs_of: pairs that were put into each document.
        broken_of: those of them that were linked otherwise.
    """

    pairs_of: tuple[int, ...] = ()
    broken_of: tuple[int, ...] = ()

    def __add__(self, other: Decoys) -> Decoys:
        """Return those of both."""
        return Decoys(self.pairs_of + other.pairs_of, self.broken_of + other.broken_of)

    @property
    def pairs(self) -> int:
        return sum(self.pairs_of)

    @property
    def broken(self) -> int:
        return sum(self.broken_of)

    @property
    def false_percent(self) -> Interval | None:
        """Return the estimated share of false links, 0 to 100, with its interval; None of fewer than FEWEST pairs."""
        if self.pairs < FEWEST:
            return None
        counts = zip(self.pairs_of, self.broken_of, strict=True)
        of_pair = [[100.0] * broken + [0.0] * (pairs - broken) for pairs, broken in counts]
        return mean_interval(np.concatenate(of_pair), np.repeat(np.arange(len(self.pairs_of)), self.pairs_of))

    def line(self) -> str:
        """Return the estimate in words."""
        estimate = self.false_percent
        if estimate is None:
            return f"{self.pairs} linked pairs could be put into other documents: too few to estimate false links by"
        return f"about {estimate.mean:.0f}% of the links are false ({words_of(estimate, self.pairs)})"


def words_of(estimate: Interval, pairs: int) -> str:
    """Return what an estimate rests on, and when it is wrong."""
    return (
        f"an estimate from {pairs} swapped pairs, 95% interval {estimate.low:.0f} to {estimate.high:.0f}; too high "
        "where motifs come back in other documents, too low where a model is sure of wrong sentences"
    )


def best_pairs(document: EmbeddedDocument) -> tuple[Int64, Int64]:
    """Return the predicted links of a document."""
    return predicted_pairs(document.similarities())


def count_decoys(
    model: LinkModel,
    manifest: Manifest,
    folder: Folder,
    splits: Sequence[str] = (),
    *,
    steps: LinkSteps | None = None,
    choose: Choose = best_pairs,
) -> Decoys:
    """Return the broken pairs of the first documents of some splits of a version, all where none is named.

    `steps` take the place of the model's. Documents that cannot be read, or are not finite, are left out.

    Raises:
        UsageError: the data set version has no such vectors as the model reads.
    """
    decoys, card = Decoys(), model.card
    for split in splits or filled_splits(manifest):
        left = ENOUGH
        for shard in split_parts(manifest, split):
            if left <= 0:
                break
            documents = read_for_model(
                card.config.reading, card.data, manifest, folder, split, with_truth=True, shards=[shard], unreadable=[]
            )
            documents = documents.take_documents(np.flatnonzero(documents.are_finite)[:left])
            decoys += broken_pairs(documents, model.embed(documents, steps), choose=choose)
            left -= len(documents)
    return decoys


def broken_pairs(
    documents: DocumentSet, embedded: Sequence[EmbeddedDocument], *, choose: Choose = best_pairs
) -> Decoys:
    """Return how many linked pairs of some documents are linked otherwise in others of them.

    Args:
        documents: with what the steps of the model read.
        embedded: vectors of the first of them.
        choose: gives the links of a document.
    """
    pairs_of_all: list[Place] = []
    for number, each in enumerate(embedded):
        pairs_of_all += [(number, int(row), int(column)) for row, column in zip(*choose(each), strict=True)]
    pairs, broken = ([0] * len(embedded) for _ in range(2))
    for number, mixed, row, column in _mixed(documents, embedded, pairs_of_all):
        rows, columns = choose(mixed)
        n, m = len(mixed.texts), len(mixed.images)
        partner = columns[rows == row] if n <= m else rows[columns == column]
        pairs[number] += len(partner)
        broken[number] += int((partner != (column if n <= m else row)).sum())
    return Decoys(tuple(pairs), tuple(broken))


def _mixed(
    documents: DocumentSet, embedded: Sequence[EmbeddedDocument], places: Sequence[Place]
) -> Iterator[tuple[int, EmbeddedDocument, int, int]]:
    """Yield a document with a linked pair of another in the place of one of its own: its number, the row, the column.

    The other pair is that half of all links away. A document that has the same sentence or image is left out: a link
    to it could be right.
    """
    half = len(places) // 2
    for (number, row, column), (other, text, image) in zip(places, [*places[half:], *places[:half]], strict=True):
        document, donor = embedded[number], embedded[other]
        texts, images = document.texts.copy(), document.images.copy()
        texts[row], images[column] = donor.texts[text], donor.images[image]
        rows = np.arange(len(documents.texts))[documents.sentences.rows(number)]
        shown = documents.image_rows[documents.images.rows(number)].copy()
        new_row = int(documents.sentences.offsets[other]) + text
        new_image = int(documents.image_rows[int(documents.images.offsets[other]) + image])
        texts_there = {documents.texts[each] for each in rows}
        if number == other or documents.texts[new_row] in texts_there or new_image in shown:
            continue
        rows[row], shown[column] = new_row, new_image
        names = None if document.steps is None else document.steps.namer(documents)(rows, shown)
        yield number, replace(document, texts=texts, images=images, names=names), row, column
