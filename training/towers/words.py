"""What the text towers over words share: a vocabulary, its word vectors and where they start, words as numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt
import torch
from msgspec import Meta
from torch import Tensor, nn

from schemas.configs import PositiveInt, require
from schemas.errors import UsageError
from training.data.documents import DocumentSet
from training.data.ragged import Float32, Int64, Ragged, to_device
from training.parts import Needs
from training.settings import TRAINED
from training.text.vocabulary import Vocabulary
from training.text.word_vectors import WordVector, initial_vectors, read_aligned, read_vectors, train_word2vec
from training.towers.inputs import (
    Sizes,
    TextInput,
    Tower,
    Workers,
    gather_json,
    required,
)
from training.towers.settings import TextTowerSettings

RANDOM_WORDS = "random"
LanguageFile = Annotated[str, Meta(pattern="^[^=]+=.+$", description="expected LANGUAGE=FILE, such as de=wiki.de.vec")]


@dataclass(frozen=True, slots=True, kw_only=True)
class WordsSettings(TextTowerSettings):
    """Settings of the text towers that read words.

    Attributes:
        word_dimensions: size of a word vector (H: 300).
        word_vectors: initial word vectors: a file (word2vec binary or text, GloVe, fastText `.vec` or `.bin`, MUSE),
            `glove-6b-50d` (packaged), `word2vec` (trained on the training split, A); empty: random in +-0.2.
        aligned_vectors: one-for-all (N 5.2.2): `LANGUAGE=FILE` of aligned word vectors (MUSE) per language; a word is
            looked up in its document's language. Empty: one language.
        train_words: whether word vectors are trained; with `aligned_vectors` they must not be.
        min_word_count: a word seen fewer times in the training split is unknown (H: 5).
        only_vector_words: whether words without a vector in `text.word_vectors` are unknown, although the vectors are
            trained (N table 4, lines 4.3 and 4.5: the vocabulary of MUSE alone).
        max_words: words of a sentence that are read (H: 50; 20 of sets whose sentences crowd workers wrote: mscoco,
            story-dii, story-sis, dii-stress).
    """

    word_dimensions: PositiveInt = 300
    word_vectors: str = ""
    aligned_vectors: tuple[LanguageFile, ...] = ()
    train_words: bool = True
    min_word_count: PositiveInt = 5
    only_vector_words: bool = False
    max_words: PositiveInt = 50

    def __post_init__(self) -> None:
        TextTowerSettings.__post_init__(self)
        has_vectors = bool(self.word_vectors) or not self.only_vector_words
        rule = "needs text.word_vectors"
        require(has_vectors, field="text.only_vector_words", value=self.only_vector_words, rule=rule)
        rule = "aligned word vectors are frozen, else their languages drift apart; set text.train_words=false"
        is_frozen = not (self.aligned_vectors and self.train_words)
        require(is_frozen, field="text.aligned_vectors", value=self.aligned_vectors, rule=rule)

    @property
    def needs(self) -> Needs:
        """Return what the tower reads of a data set."""
        return Needs(words=True, languages=tuple(item.partition("=")[0] for item in self.aligned_vectors))

    @property
    def words_from(self) -> str:
        """Return what word vectors start from."""
        return ", ".join(self.aligned_vectors) or self.word_vectors or RANDOM_WORDS

    @property
    def trains_words(self) -> bool:
        """Return whether word vectors are trained."""
        return self.train_words

    @property
    def shares_words(self) -> bool:
        """Return whether the image tower can read its word vectors."""
        return True

    def vocabulary(self, counts: Counter[str], labels: Collection[str]) -> Vocabulary:
        """Return the words that are seen often enough, and those of labels.

        Of several languages, only words that have an aligned vector are known: the vectors are frozen (N 6.3); with
        `only_vector_words`, only those that have a vector.
        """
        counts = counts | Counter(dict.fromkeys(labels, self.min_word_count))
        vectors: Iterable[WordVector] | None = None
        if self.aligned_vectors:
            vectors = read_aligned(self.aligned_vectors, counts, dimensions=self.word_dimensions)
        elif self.only_vector_words and self.word_vectors != TRAINED:
            vectors = read_vectors(self.word_vectors, counts, dimensions=self.word_dimensions)
        if vectors is not None:
            counts = Counter({word: counts[word] for word, _ in vectors})
        return Vocabulary.from_counts(counts, min_count=self.min_word_count)


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

    word_tables = ("embedding.weight",)

    def __init__(self, config: WordsSettings, sizes: Sizes, vocabulary: Vocabulary | None) -> None:
        super().__init__()
        self.config = config
        self.vocabulary = required(vocabulary, tower=f"text.name = '{config.name}'", what="a vocabulary")
        self.max_words = config.max_words
        self.embedding = nn.Embedding(len(self.vocabulary), config.word_dimensions)

    def prepare(self, inputs: TextInput) -> WordRows:
        """Return the word numbers of sentences.

        Raises:
            UsageError: a multilingual tower is not given the sentences' languages.
        """
        languages = languages_of(inputs, self.config)
        return WordRows(*self.vocabulary.encode(inputs.texts, max_words=self.max_words, languages=languages))

    def initialise(self, documents: Iterable[DocumentSet], workers: Workers, seed: int) -> None:
        vectors = starting_vectors(self.config, self.vocabulary, documents, workers, seed)
        with torch.no_grad():
            self.embedding.weight.copy_(torch.from_numpy(vectors))

    def vectors_at(self, rows: WordRows, positions: Int64) -> Tensor:
        """Return T x w vectors of the words at some positions."""
        device = self.embedding.weight.device
        vectors: Tensor = self.embedding(to_device(rows.words[positions].astype(np.int64), device))
        return vectors


def languages_of(inputs: TextInput, config: WordsSettings) -> tuple[str, ...] | None:
    """Return the sentences' languages for a tower of several languages (N 5.2.2), None for another.

    Raises:
        UsageError: they are wanted and not known.
    """
    if not config.aligned_vectors:
        return None
    if inputs.languages is None:
        raise UsageError("this model reads several languages: expected the language of each document, found none")
    return tuple(inputs.languages)


def starting_vectors(
    config: WordsSettings, vocabulary: Vocabulary, documents: Iterable[DocumentSet], workers: Workers, seed: int
) -> Float32:
    """Return V x w starting vectors, as `text.word_vectors` or `text.aligned_vectors` names them."""
    pretrained: Iterable[WordVector] = ()
    if config.aligned_vectors:
        pretrained = read_aligned(config.aligned_vectors, vocabulary.numbers, dimensions=config.word_dimensions)
    elif config.word_vectors == TRAINED:
        pretrained = train_word2vec(_all_texts(documents, workers), dimensions=config.word_dimensions, seed=seed)
    elif config.word_vectors:
        pretrained = read_vectors(config.word_vectors, vocabulary.numbers, dimensions=config.word_dimensions)
    return initial_vectors(vocabulary, dimensions=config.word_dimensions, seed=seed, known=pretrained)


def _all_texts(documents: Iterable[DocumentSet], workers: Workers) -> list[str]:
    """Return all workers' texts, of every source, in the order of the workers."""
    texts = [text for part in documents for text in part.row_texts]
    return [text for part in gather_json(texts, workers) for text in part]
