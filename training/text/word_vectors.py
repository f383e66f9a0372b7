"""Pretrained word vectors for a vocabulary, from the files people have: word2vec binary, and the text formats.

The text formats of GloVe, fastText and word2vec are a word and its numbers a line, with or without a first line that
holds count and size. Files are read as a stream: only the vocabulary's words are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from schemas.errors import ConfigError
from training.data.streams import stream
from training.text.vocabulary import Vocabulary

Float32 = npt.NDArray[np.float32]
UNIFORM_BOUND = 0.2
BINARY_SUFFIX = ".bin"


def initial_vectors(vocabulary: Vocabulary, *, dimensions: int, path: str, seed: int) -> Float32:
    """Return V x dimensions starting vectors: pretrained where the file has the word, else uniform in +-0.2.

    The row of `<pad>` is zero. An empty path means no file (Hessel 2019, supplement).

    Raises:
        ConfigError: the file is not there, or its vectors have another size.
    """
    numbers = stream("word vectors", seed)
    vectors = numbers.uniform(-UNIFORM_BOUND, UNIFORM_BOUND, (len(vocabulary), dimensions)).astype(np.float32)
    vectors[0] = 0
    if path:
        for word, vector in read_vectors(Path(path), vocabulary.numbers, dimensions=dimensions):
            vectors[vocabulary.numbers[word]] = vector
    return vectors


def read_vectors(path: Path, wanted: Mapping[str, int], *, dimensions: int) -> Iterator[tuple[str, Float32]]:
    """Yield the wanted words of a vector file with their vectors, in file order.

    Raises:
        ConfigError: the file is not there, or its vectors have another size than `dimensions`.
    """
    if not path.is_file():
        raise ConfigError(f"encoder.word_vectors = '{path}': no such file")
    with path.open("rb") as file:
        lines = _read_binary if path.suffix == BINARY_SUFFIX else _read_text
        for word, vector in lines(file, path, dimensions):
            if word in wanted:
                yield word, vector


def _read_text(file: BinaryIO, path: Path, dimensions: int) -> Iterator[tuple[str, Float32]]:
    for number, line in enumerate(file):
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
            raise ConfigError(f"{path}: vectors are longer than encoder.word_dimensions = {dimensions}")
        yield parts[0], vector


def _read_binary(file: BinaryIO, path: Path, dimensions: int) -> Iterator[tuple[str, Float32]]:
    count, size = (int(part) for part in file.readline().split())
    _check_size(path, size, dimensions)
    for _ in range(count):
        word = bytearray()
        while (byte := file.read(1)) not in (b" ", b""):
            word += byte
        raw = file.read(4 * dimensions)
        if len(raw) != 4 * dimensions:
            raise ConfigError(f"{path}: ends before its {count} words are read")
        yield word.lstrip(b"\n").decode("utf-8", errors="replace"), np.frombuffer(raw, dtype="<f4")


def _check_size(path: Path, found: int, dimensions: int) -> None:
    if found != dimensions:
        raise ConfigError(f"{path}: vectors of {found} numbers; encoder.word_dimensions = {dimensions}")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
