"""Which sentences and images of some documents take part in a step.

A choice is made by an objective; before it, at most some rows of a document can be drawn (Hessel 2019, suppl. 2: ten of
each). A choice looks to an objective like a set of documents that hold the chosen rows alone, so that choices can be
made of choices. The draw's stream is keyed by seed, document id, epoch and step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from training.data.ragged import Int64, Ragged
from training.data.streams import stream


class Documents(Protocol):
    """Documents by id, with the division of their sentences and images among them."""

    @property
    def ids(self) -> tuple[str, ...]: ...

    @property
    def sentences(self) -> Ragged: ...

    @property
    def images(self) -> Ragged: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Some sentences and images of B documents, in the order of those documents.

    Attributes:
        ids: B document ids.
        sentences: which of the chosen sentences are of which document.
        images: which of the chosen images are of which document.
        sentence_rows: the chosen sentences' rows among those that were chosen from.
        image_rows: the chosen images' rows among those that were chosen from.
    """

    ids: tuple[str, ...]
    sentences: Ragged
    images: Ragged
    sentence_rows: Int64
    image_rows: Int64

    @classmethod
    def of(cls, documents: Documents, chosen: Int64, sentences: Sequence[Int64], images: Sequence[Int64]) -> Choice:
        """Return the choice of some rows, given as an array for each of the chosen documents."""
        return cls(
            ids=tuple(documents.ids[document] for document in chosen),
            sentences=Ragged.of([len(part) for part in sentences]),
            images=Ragged.of([len(part) for part in images]),
            sentence_rows=np.concatenate([np.zeros(0, np.int64), *sentences]),
            image_rows=np.concatenate([np.zeros(0, np.int64), *images]),
        )


def choose_all(documents: Documents, chosen: Int64) -> Choice:
    """Return every sentence and every image of some documents."""
    return Choice(
        ids=tuple(documents.ids[document] for document in chosen),
        sentences=documents.sentences.take(chosen),
        images=documents.images.take(chosen),
        sentence_rows=documents.sentences.positions(chosen),
        image_rows=documents.images.positions(chosen),
    )


def sample_rows(documents: Documents, chosen: Int64, *, max_rows: int, seed: int, epoch: int, step: int) -> Choice:
    """Return at most `max_rows` sentences and images of each of some documents, at random; 0: all of them."""
    sentences: list[Int64] = []
    images: list[Int64] = []
    for document in chosen.tolist():
        numbers = stream("rows of a step", seed, documents.ids[document], epoch, step)
        for sets, kept in ((documents.sentences, sentences), (documents.images, images)):
            kept.append(_drawn(sets.rows(document), max_rows, numbers))
    return Choice.of(documents, chosen, sentences, images)


def _drawn(rows: slice, max_rows: int, numbers: np.random.Generator) -> Int64:
    """Return the given rows, or a random `max_rows` of them, rising."""
    count = rows.stop - rows.start
    if not max_rows or count <= max_rows:
        return np.arange(rows.start, rows.stop, dtype=np.int64)
    kept: Int64 = np.sort(numbers.permutation(count)[:max_rows]).astype(np.int64) + rows.start
    return kept
