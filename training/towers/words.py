"""What the text towers over words share: a vocabulary, its word vectors and where they start, words as numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from schemas.errors import UsageError
from training.config import TRAINED, WordsConfig
from training.data.documents import HeldSplit
from training.data.ragged import Float32, Int64, Ragged, to_device
from training.text.vocabulary import Vocabulary, tokenize
from training.text.word_vectors import WordVector, initial_vectors, read_aligned, read_vectors, train_word2vec
from training.towers.inputs import Sizes, TextInput, Tower, TrainingPass, Workers, gather_json, required


@dataclass(frozen=True, slots=True)
class WordRows:
    """Numbers of the words of N sentences, at least one a sentence."""

    words: npt.NDArray[np.int32]
    sentences: Ragged

    def __len__(self) -> int:
        return len(self.sentences)

    def take(self, rows: Int64) -> WordRows:
        return WordRows(self.words[self.sentences.positions(rows)], self.sentences.take(rows))


class WordTower(Tower):
    """A text tower that starts from one vector a word.

    Raises:
        ConfigError: there is no vocabulary.
    """

    def __init__(self, config: WordsConfig, sizes: Sizes, vocabulary: Vocabulary | None) -> None:
        super().__init__()
        self.config = config
        self.vocabulary = required(vocabulary, tower=f"text.name = '{config.name}'", what="a vocabulary")
        self.max_words = config.max_words or sizes.max_words
        self.embedding = nn.Embedding(len(self.vocabulary), config.word_dimensions)

    def prepare(self, given: TextInput) -> WordRows:
        """Return the word numbers of sentences.

        Raises:
            UsageError: a multilingual tower is not told the sentences' languages.
        """
        languages = languages_of(given, self.config)
        return WordRows(*self.vocabulary.encode(given.texts, max_words=self.max_words, languages=languages))

    def initialise(self, split: HeldSplit, workers: Workers, seed: int) -> None:
        vectors = starting_vectors(self.config, self.vocabulary, split, workers, seed)
        with torch.no_grad():
            self.embedding.weight.copy_(torch.from_numpy(vectors))

    def attended(self, given: TextInput) -> dict[str, list[tuple[str, ...]]]:
        return {"words": words_of(given.texts, self.max_words)}

    def vectors_at(self, rows: WordRows, positions: Int64) -> Tensor:
        """Return T x w vectors of the words at some positions."""
        device = self.embedding.weight.device
        vectors: Tensor = self.embedding(to_device(rows.words[positions].astype(np.int64), device))
        return vectors

    def forward(self, rows: WordRows, training_pass: TrainingPass | None = None) -> Tensor:
        """Return N x d unit vectors."""
        raise NotImplementedError


def words_of(texts: Sequence[str], max_words: int) -> list[tuple[str, ...]]:
    """Return the words of each text that are read; one "" where there is none."""
    return [tuple(tokenize(text)[:max_words]) or ("",) for text in texts]


def languages_of(given: TextInput, config: WordsConfig) -> tuple[str, ...] | None:
    """Return the sentences' languages for a tower of several languages (N 5.2.2), None for another.

    Raises:
        UsageError: they are wanted and not known.
    """
    if not config.aligned_vectors:
        return None
    if given.languages is None:
        raise UsageError("this model reads several languages: expected the language of each document, found none")
    return tuple(given.languages)


def starting_vectors(
    config: WordsConfig, vocabulary: Vocabulary, split: HeldSplit, workers: Workers, seed: int
) -> Float32:
    """Return V x w starting vectors, as `text.word_vectors` or `text.aligned_vectors` names them."""
    known: Iterable[WordVector] = ()
    if config.aligned_vectors:
        known = read_aligned(config.aligned_vectors, vocabulary.numbers, dimensions=config.word_dimensions)
    elif config.word_vectors == TRAINED:
        known = train_word2vec(_whole_split(split, workers), dimensions=config.word_dimensions, seed=seed)
    elif config.word_vectors:
        known = read_vectors(config.word_vectors, vocabulary.numbers, dimensions=config.word_dimensions)
    return initial_vectors(vocabulary, dimensions=config.word_dimensions, seed=seed, known=known)


def _whole_split(split: HeldSplit, workers: Workers) -> list[str]:
    """Return all workers' sentences, in the order of the split's index."""
    own = [
        [place, list(split.documents.texts[split.documents.sentences.rows(row)])]
        for place, row in enumerate(split.local.tolist())
        if row >= 0
    ]
    documents: dict[int, Sequence[str]] = {}
    for part in gather_json(own, workers):
        documents.update((place, texts) for place, texts in part)
    return [text for place in sorted(documents) for text in documents[place]]
