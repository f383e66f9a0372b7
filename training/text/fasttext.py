"""fastText's binary models (`.bin`): word and n-gram vectors, memory-mapped.

Layout, little-endian (fastText 0.9, `fasttext.cc`, `dictionary.cc`, `densematrix.cc`):

    int32 magic, version
    int32 dim, ws, epoch, minCount, neg, wordNgrams, loss, model, bucket, minn, maxn, lrUpdateRate; float64 t
    int32 entries, words, labels; int64 tokens, pruned (-1: not pruned)
    entries x (text, 0 byte, int64 count, int8 kind)
    bool quantised; int64 rows, columns; rows x columns float32      the input matrix: words, then buckets

A word's vector is the mean of its own row and its n-grams' rows; a word that is not in the dictionary has n-grams
alone.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from schemas.errors import ConfigError
from training.text.subwords import Subwords

Float32 = npt.NDArray[np.float32]
MAGIC, VERSION = 793712314, 12
_HEAD, _ARGUMENTS, _DICTIONARY = struct.Struct("<2i"), struct.Struct("<12id"), struct.Struct("<3i2q")
_ENTRY, _MATRIX = struct.Struct("<qb"), struct.Struct("<?2q")


@dataclass(frozen=True, slots=True, kw_only=True)
class FastText:
    """An open model.

    Attributes:
        words: word -> row.
        rows: (words + buckets) x dimensions, float32, memory-mapped.
        subwords: which n-grams it knows; they follow the words.
    """

    words: Mapping[str, int]
    rows: Float32
    subwords: Subwords

    @property
    def dimensions(self) -> int:
        return int(self.rows.shape[1])

    @property
    def ngram_rows(self) -> Float32:
        """Return buckets x dimensions vectors of n-grams."""
        return self.rows[len(self.words) :]

    def own_row(self, word: str) -> Float32 | None:
        """Return a word's own row; of an unknown word the mean of its n-grams', which leaves its vector what it was."""
        return self.rows[self.words[word]] if word in self.words else self.vector(word)

    def vector(self, word: str) -> Float32 | None:
        """Return the vector fastText gives a word (`getWordVector`), or None: unknown and without an n-gram."""
        own = [self.words[word]] if word in self.words else []
        rows = own + [len(self.words) + bucket for bucket in self.subwords.of(word)]
        return None if not rows else self.rows[rows].mean(axis=0, dtype=np.float32)


def is_fasttext(path: Path) -> bool:
    """Return whether a file starts as fastText's binary models do."""
    with path.open("rb") as file:
        return file.read(4) == struct.pack("<i", MAGIC)


def open_fasttext(path: Path) -> FastText:
    """Return an open model; its vectors stay on disk until they are read.

    Raises:
        ConfigError: the file is quantised, pruned, cut off, or of another version.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            return _open(path, data)
        except (struct.error, ValueError) as problem:
            raise ConfigError(f"{path}: a fastText model that is cut off or broken ({problem})") from problem


def _open(path: Path, data: mmap.mmap) -> FastText:
    _, version = _HEAD.unpack_from(data, 0)
    if version != VERSION:
        raise ConfigError(f"{path}: fastText model of version {version}, expected {VERSION}")
    dimensions, _, _, _, _, _, _, _, buckets, shortest, longest, _, _ = _ARGUMENTS.unpack_from(data, _HEAD.size)
    place = _HEAD.size + _ARGUMENTS.size
    entries, count, labels, _, pruned = _DICTIONARY.unpack_from(data, place)
    if pruned >= 0 or labels:
        raise ConfigError(f"{path}: a pruned or supervised fastText model; expected one of word vectors")
    words, place = _dictionary(data, place + _DICTIONARY.size, entries)
    is_quantised, rows, columns = _MATRIX.unpack_from(data, place)
    if is_quantised:
        raise ConfigError(f"{path}: a quantised fastText model (.ftz); expected .bin or .vec")
    if (rows, columns) != (count + buckets, dimensions) or len(words) != count:
        raise ValueError(f"{rows} x {columns} vectors for {count} words and {buckets} buckets")
    matrix: Float32 = np.memmap(path, dtype="<f4", mode="r", offset=place + _MATRIX.size, shape=(rows, columns))
    return FastText(words=words, rows=matrix, subwords=Subwords(shortest=shortest, longest=longest, buckets=buckets))


def _dictionary(data: mmap.mmap, place: int, entries: int) -> tuple[dict[str, int], int]:
    """Return word -> row, and where the dictionary ends."""
    words: dict[str, int] = {}
    for row in range(entries):
        end = data.find(b"\0", place)
        if end < 0:
            raise ValueError(f"word {row} has no end")
        words[data[place:end].decode("utf-8", errors="replace")] = row
        place = end + 1 + _ENTRY.size
    return words, place
