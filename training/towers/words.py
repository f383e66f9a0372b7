"""What the text towers over words share: a vocabulary, its word vectors and where they start, words as numbers.

Of the towers over words with their n-grams (Liu 2020, 4.3.1), a word's vector is the mean of its own and its n-grams'.
It is computed once for each different word of a batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import numpy.typing as npt
import torch
from msgspec import Meta
from torch import Tensor, nn

from schemas.configs import PositiveInt, require
from schemas.messages import ConfigError, UsageError
from training.data.documents import DocumentSet
from training.data.ragged import Float32, Int64, Ragged, to_device
from training.parts import TRAINED, Needs
from training.text.vocabulary import (
    UNKNOWN_NUMBER,
    Subwords,
    Vocabulary,
    WordVector,
    in_language,
    initial_vectors,
    is_fasttext,
    open_binary,
    own_row,
    read_aligned,
    read_vectors,
    tokenize,
    train_word2vec,
    uniform_vectors,
    vector_file,
)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SubwordsSettings(WordsSettings):
    """Settings of the text towers that read words with their n-grams.

    Attributes:
        subwords: whether n-grams are read in addition to words (ablation N table 1).
        ngrams: shortest and longest n-gram, in characters (N: 3 and 5).
        buckets: rows of the hashed n-gram table (fastText: 2,000,000).
    """

    subwords: bool = True
    ngrams: tuple[int, ...] = (3, 5)
    buckets: PositiveInt = 200_000

    def __post_init__(self) -> None:
        WordsSettings.__post_init__(self)
        is_range = len(self.ngrams) == 2 and 1 <= self.ngrams[0] <= self.ngrams[1]
        require(is_range, field="text.ngrams", value=self.ngrams, rule="expected shortest,longest such as 3,5")

    @property
    def shares_words(self) -> bool:
        """Return whether the image tower can read its word vectors: a table of words and n-grams is none of words."""
        return False


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
        return replace(self, words=self.words[self.sentences.positions(rows)], sentences=self.sentences.take(rows))

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


class SubwordEmbedding(nn.Module):
    """Different words -> their vectors: the mean of the word's row and its n-grams' rows in one table.

    The table holds the vocabulary's words first, then `subwords.buckets` hashed n-grams.
    """

    def __init__(self, config: SubwordsSettings, sizes: Sizes, vocabulary: Vocabulary | None) -> None:
        super().__init__()
        self.config = config
        self.max_words = config.max_words
        self.vocabulary = required(vocabulary, tower=f"text.name = '{config.name}'", what="a vocabulary")
        shortest, longest = config.ngrams
        subwords = Subwords(shortest=shortest, longest=longest, buckets=config.buckets)
        self.subwords = subwords if config.subwords else None
        rows = len(self.vocabulary) + (config.buckets if config.subwords else 0)
        self.table = nn.EmbeddingBag(rows, config.word_dimensions, mode="mean")

    def prepare(self, inputs: TextInput, max_words: int = 0) -> SubwordRows:
        """Return sentences as numbers of different words, and those words' rows of the table.

        Of each sentence `max_words` are read, the tower's own number unless given.
        """
        languages, max_words = languages_of(inputs, self.config), max_words or self.max_words
        return SubwordRows.of(inputs.texts, self.vocabulary, self.subwords, max_words=max_words, languages=languages)

    def initialise(self, documents: Iterable[DocumentSet], workers: Workers, seed: int) -> None:
        """Set words and n-grams; of a fastText model, a word's own row, not its mean with its n-grams."""
        config = self.config
        source, size = config.word_vectors, config.word_dimensions
        if self.subwords is not None and source.endswith(".bin") and is_fasttext(vector_file(source)):
            model = open_binary(vector_file(source))
            subwords = Subwords(shortest=model.min_n, longest=model.max_n, buckets=model.bucket)
            self._check_fits(subwords, dimensions=model.vector_size)
            rows = ((word, own_row(model, word)) for word in self.vocabulary.words)
            words = initial_vectors(
                self.vocabulary,
                dimensions=size,
                seed=seed,
                known=((word, row) for word, row in rows if row is not None),
            )
            ngrams = np.asarray(model.vectors_ngrams, np.float32)
        else:
            words = starting_vectors(config, self.vocabulary, documents, workers, seed)
            ngrams = uniform_vectors(len(self.table.weight) - len(words), size, seed, "n-gram vectors")
        with torch.no_grad():
            self.table.weight.copy_(torch.from_numpy(np.concatenate([words, ngrams])))

    def _check_fits(self, subwords: Subwords, *, dimensions: int) -> None:
        """Raise a `ConfigError` unless the n-grams and the size of a fastText model are those of the settings."""
        config = self.config
        is_inside = subwords.shortest <= config.ngrams[0] and config.ngrams[1] <= subwords.longest
        if subwords.buckets != config.buckets or not is_inside or dimensions != config.word_dimensions:
            raise ConfigError(
                f"{config.word_vectors}: {subwords.buckets} buckets, {subwords.shortest}- to {subwords.longest}-grams, "
                f"vectors of {dimensions} numbers; set text.buckets={subwords.buckets}, text.ngrams within that range "
                f"and text.word_dimensions={dimensions}"
            )

    def forward(self, rows: SubwordRows, positions: Int64) -> Tensor:
        """Return T x word_dimensions vectors of the words at some positions."""
        device = self.table.weight.device
        words, indexes = np.unique(rows.words[positions], return_inverse=True)
        entries, different = rows.entries_of(words)
        vectors: Tensor = self.table(to_device(entries, device), to_device(different.offsets[:-1], device))
        return vectors.index_select(0, to_device(indexes, device))


class SubwordTower(Tower):
    """A text tower that starts from one vector a word and one an n-gram."""

    word_tables = ("embedding.table.weight",)

    def __init__(self, config: SubwordsSettings, sizes: Sizes, vocabulary: Vocabulary | None) -> None:
        super().__init__()
        self.embedding = SubwordEmbedding(config, sizes, vocabulary)

    def prepare(self, inputs: TextInput) -> SubwordRows:
        """Return the sentences' words with their n-grams."""
        return self.embedding.prepare(inputs)

    def initialise(self, documents: Iterable[DocumentSet], workers: Workers, seed: int) -> None:
        self.embedding.initialise(documents, workers, seed)


def _table_rows(token: str, key: str, vocabulary: Vocabulary, subwords: Subwords | None) -> list[int]:
    """Return a word's rows of the table: its own where it is known, then its n-grams'."""
    word_row = [vocabulary.numbers[key]] if key in vocabulary.numbers else []
    ngrams = [len(vocabulary) + bucket for bucket in subwords.of(token)] if subwords else []
    return [*word_row, *ngrams] or [UNKNOWN_NUMBER]
