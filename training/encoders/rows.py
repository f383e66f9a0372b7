"""What a tower reads: rows prepared once per data set on the CPU, from which each batch takes some.

A tower's `prepare` makes them and its `forward` turns them into tensors on its device. A tower with another kind of
input (regions, roles) adds its own class with the same three operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from schemas.errors import UsageError
from training.data.documents import RegionBank
from training.data.ragged import Int64, Ragged
from training.host_arrays import to_device
from training.text.subwords import Subwords
from training.text.tokens import tokenize
from training.text.vocabulary import UNKNOWN_NUMBER, Vocabulary, in_language

MAX_LABEL_WORDS = 8


class Rows(Protocol):
    """Prepared inputs of a tower, one a sentence or image."""

    def __len__(self) -> int: ...

    def take(self, rows: Int64) -> Self:
        """Return the given rows, in the given order."""
        ...


@dataclass(frozen=True, slots=True)
class VectorRows:
    """Fixed vectors, N x dimensions, float16 or float32."""

    vectors: npt.NDArray[np.floating[Any]]

    @classmethod
    def checked(cls, vectors: npt.NDArray[np.floating[Any]], features: int) -> VectorRows:
        """Return the rows of N x `features` vectors (an empty array may have any width).

        Raises:
            UsageError: the vectors have another size.
        """
        if vectors.ndim != 2 or (len(vectors) and vectors.shape[1] != features):
            raise UsageError(f"expected feature vectors of {features} numbers, found shape {vectors.shape}")
        return cls(vectors if len(vectors) else np.zeros((0, features), np.float32))

    def __len__(self) -> int:
        return len(self.vectors)

    def take(self, rows: Int64) -> VectorRows:
        return VectorRows(self.vectors[rows])

    def tensor(self, device: torch.device) -> Tensor:
        """Return N x dimensions, float32."""
        return to_device(np.array(self.vectors, dtype=np.float32), device)


@dataclass(frozen=True, slots=True)
class WordRows:
    """Numbers of the words of N sentences, at least one a sentence."""

    words: npt.NDArray[np.int32]
    sentences: Ragged

    def __len__(self) -> int:
        return len(self.sentences)

    def take(self, rows: Int64) -> WordRows:
        return WordRows(self.words[self.sentences.positions(rows)], self.sentences.take(rows))


@dataclass(frozen=True, slots=True)
class SubwordRows:
    """N sentences as numbers of different words; each of those is some rows of a table of words and n-grams.

    Attributes:
        words: T numbers of different words, sentence by sentence; number 0 is the unknown word.
        sentences: which words are of which sentence, each of at least one.
        entries: rows of the table, word by word.
        different: which entries are of which different word.
    """

    words: npt.NDArray[np.int32]
    sentences: Ragged
    entries: Int64
    different: Ragged

    @classmethod
    def of(
        cls,
        texts: Sequence[str],
        vocabulary: Vocabulary,
        subwords: Subwords | None,
        *,
        max_words: int,
        languages: Sequence[str] | None = None,
    ) -> SubwordRows:
        """Return the rows of texts; a text with no token is one unknown word."""
        known: dict[str, int] = {"": 0}
        entries: list[list[int]] = [[UNKNOWN_NUMBER]]
        words: list[int] = []
        counts: list[int] = []
        for place, text in enumerate(texts):
            tokens = tokenize(text)[:max_words] or [""]
            for token in tokens:
                key = token if languages is None or not token else in_language(token, languages[place])
                if key not in known:
                    known[key] = len(known)
                    entries.append(_table_rows(token, key, vocabulary, subwords))
                words.append(known[key])
            counts.append(len(tokens))
        return cls(
            np.array(words, np.int32),
            Ragged.of(counts),
            np.array([row for word in entries for row in word], np.int64),
            Ragged.of([len(word) for word in entries]),
        )

    def __len__(self) -> int:
        return len(self.sentences)

    def take(self, rows: Int64) -> SubwordRows:
        words = self.words[self.sentences.positions(rows)]
        return replace(self, words=words, sentences=self.sentences.take(rows))

    def entries_of(self, words: npt.NDArray[np.int32]) -> tuple[Int64, Ragged]:
        """Return the table rows of some different words, and which are of which word."""
        chosen = words.astype(np.int64)
        return self.entries[self.different.positions(chosen)], self.different.take(chosen)

    def blanked(self, is_blank: npt.NDArray[np.bool_]) -> SubwordRows:
        """Return the rows with some of them (N booleans) replaced by an empty text."""
        if not is_blank.any():
            return self
        sentences = Ragged.of(np.where(is_blank, 1, self.sentences.counts))
        starts = np.where(is_blank, len(self.words), self.sentences.offsets[:-1])
        positions = starts[sentences.owners] + sentences.numbers
        return replace(self, words=np.append(self.words, np.int32(0))[positions], sentences=sentences)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRows:
    """N documents with a text for each of S sources.

    Attributes:
        sources: rows of each source, N each.
        is_present: N x S, whether the document has a text of that source.
        keys: N keys of random draws; () where none is made.
    """

    sources: tuple[SubwordRows, ...]
    is_present: npt.NDArray[np.bool_]
    keys: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.is_present)

    def take(self, rows: Int64) -> SourceRows:
        return SourceRows(
            sources=tuple(source.take(rows) for source in self.sources),
            is_present=self.is_present[rows],
            keys=tuple(self.keys[row] for row in rows) if self.keys else (),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionRows:
    """Regions of N images with their labels.

    Attributes:
        vectors: R x f bank of region vectors.
        labels: R numbers of different labels; 0 is the label of the blank region.
        label_words: word numbers, label by label.
        different: which of the label words are of which different label.
        regions: rows of the bank, image by image; -1 is the blank region (a zero vector).
        images: which of the regions are of which image, each of at least one.
    """

    vectors: npt.NDArray[np.floating[Any]]
    labels: npt.NDArray[np.int32]
    label_words: npt.NDArray[np.int32]
    different: Ragged
    regions: Int64
    images: Ragged

    @classmethod
    def of(cls, bank: RegionBank, vocabulary: Vocabulary | None, *, features: int, most: int) -> RegionRows:
        """Return the `most` most certain regions of each image (of equals, the earlier); without any, a blank one.

        Without a vocabulary labels are not read.

        Raises:
            UsageError: the regions' vectors have another size than `features`.
        """
        if len(bank.vectors) and bank.vectors.shape[1] != features:
            raise UsageError(f"expected region vectors of {features} numbers, found {bank.vectors.shape[1]}")
        numbers: dict[str, int] = {"": 0}
        labels = np.zeros(len(bank.labels), np.int32)
        if vocabulary is not None:
            labels = np.array([numbers.setdefault(label, len(numbers)) for label in bank.labels], np.int32)
        words, different = np.zeros(0, np.int32), Ragged.of([0] * len(numbers))
        if vocabulary is not None:
            words, different = vocabulary.encode(list(numbers), max_words=MAX_LABEL_WORDS)
        chosen = [_most_certain(bank, image, most) for image in range(len(bank.images))]
        return cls(
            vectors=bank.vectors if len(bank.vectors) else np.zeros((0, features), np.float16),
            labels=labels,
            label_words=words,
            different=different,
            regions=np.concatenate([np.zeros(0, np.int64), *chosen]),
            images=Ragged.of([len(part) for part in chosen]),
        )

    def __len__(self) -> int:
        return len(self.images)

    def take(self, rows: Int64) -> RegionRows:
        return replace(self, regions=self.regions[self.images.positions(rows)], images=self.images.take(rows))

    def vectors_of(self, positions: Int64) -> npt.NDArray[np.float32]:
        """Return T x f vectors, float32, of the regions at some positions of `regions`."""
        places = self.regions[positions]
        found = np.zeros((len(places), self.vectors.shape[1]), np.float32)
        found[places >= 0] = self.vectors[places[places >= 0]]
        return found

    def labels_of(self, positions: Int64) -> Int64:
        """Return T label numbers of the regions at some positions of `regions`."""
        places = self.regions[positions]
        found = np.zeros(len(places), np.int64)
        found[places >= 0] = self.labels[places[places >= 0]]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureRows:
    """N pictures: rows of a bank of JPEG files, and keys of random draws (() where none is made)."""

    jpegs: Sequence[bytes]
    rows: Int64
    keys: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, rows: Int64) -> PictureRows:
        keys = tuple(self.keys[row] for row in rows) if self.keys else ()
        return PictureRows(jpegs=self.jpegs, rows=self.rows[rows], keys=keys)


def _table_rows(token: str, key: str, vocabulary: Vocabulary, subwords: Subwords | None) -> list[int]:
    """Return a word's rows of the table: its own where it is known, then its n-grams'."""
    own = [vocabulary.numbers[key]] if key in vocabulary.numbers else []
    ngrams = [len(vocabulary) + bucket for bucket in subwords.of(token)] if subwords else []
    return [*own, *ngrams] or [UNKNOWN_NUMBER]


def _most_certain(bank: RegionBank, image: int, most: int) -> Int64:
    rows = bank.images.rows(image)
    if rows.start == rows.stop:
        return np.array([-1], np.int64)
    order = np.argsort(-bank.scores[rows], kind="stable")[:most]
    kept: Int64 = np.sort(order).astype(np.int64) + rows.start
    return kept
