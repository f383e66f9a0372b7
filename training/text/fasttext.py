"""fastText: n-grams of words, numbered as it numbers them, and its binary models (`.bin`), memory-mapped.

A word is put between `<` and `>`; its n-grams are runs of Unicode characters, hashed as UTF-8 bytes by 32-bit FNV-1a
in which bytes are signed, as in fastText's `dictionary.cc` (`hash`, `computeSubwords`), into a fixed number of
buckets. A single character at either end is none.

Layout of a model, little-endian (fastText 0.9, `fasttext.cc`, `dictionary.cc`, `densematrix.cc`):

    int32 magic, version
    int32 dim, ws, epoch, minCount, neg, wordNgrams, loss, model, bucket, minn, maxn, lrUpdateRate; float64 t
    int32 entries, words, labels; int64 tokens, pruned (-1: not pruned)
    entries x (text, 0 byte, int64 count, int8 kind)
    bool quantised; int64 rows, columns; rows x columns float32      the input matrix: words, then buckets

Version 11 is the same for word vectors. Models written before there was a magic number lack the first line, the
number of pruned words and the flag of quantisation.

A word's vector is the mean of its own row and its n-grams' rows; a word that is not in the dictionary has n-grams
alone.
"""

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from schemas.errors import ConfigError
from training.data.ragged import Float32

MAGIC, VERSIONS = 793712314, (11, 12)
_HEAD, _ARGUMENTS, _DICTIONARY = struct.Struct("<2i"), struct.Struct("<12id"), struct.Struct("<3iq")
_PRUNED, _ENTRY, _QUANTISED, _MATRIX = (
    struct.Struct("<q"),
    struct.Struct("<qb"),
    struct.Struct("<?"),
    struct.Struct("<2q"),
)
_MOST_DIMENSIONS, _WIDEST_WINDOW = 10_000, 1_000  # how a model without a magic number begins; no text does so
BEGIN, END = "<", ">"
_OFFSET_BASIS, _PRIME, _MASK = 2166136261, 16777619, 0xFFFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Subwords:
    """Which n-grams are read and into how many buckets they are hashed."""

    shortest: int
    longest: int
    buckets: int

    def of(self, word: str) -> list[int]:
        """Return the buckets of a word's n-grams, by place and then by length."""
        return [hash_bytes(ngram.encode()) % self.buckets for ngram in ngrams(word, self.shortest, self.longest)]


def ngrams(word: str, shortest: int, longest: int) -> list[str]:
    """Return the n-grams of a word between its marks, by place and then by length."""
    marked = f"{BEGIN}{word}{END}"
    return [
        marked[start : start + size]
        for start in range(len(marked))
        for size in range(shortest, longest + 1)
        if start + size <= len(marked) and not (size == 1 and start in (0, len(marked) - 1))
    ]


def hash_bytes(data: bytes) -> int:
    """Return fastText's hash, 32 bits."""
    value = _OFFSET_BASIS
    for byte in data:
        signed = byte | 0xFFFFFF00 if byte & 0x80 else byte
        value = ((value ^ signed) * _PRIME) & _MASK
    return value


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
        head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return False
    first, second = _HEAD.unpack(head)
    return bool(first == MAGIC or (0 < first <= _MOST_DIMENSIONS and 0 < second <= _WIDEST_WINDOW))


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
    magic, version = _HEAD.unpack_from(data, 0)
    has_magic = magic == MAGIC
    if has_magic and version not in VERSIONS:
        raise ConfigError(f"{path}: fastText model of version {version}, expected one of {VERSIONS}")
    offset = _HEAD.size if has_magic else 0
    dimensions, _, _, _, _, _, _, _, buckets, shortest, longest, _, _ = _ARGUMENTS.unpack_from(data, offset)
    offset += _ARGUMENTS.size
    entries, count, labels, _ = _DICTIONARY.unpack_from(data, offset)
    offset += _DICTIONARY.size
    pruned = -1
    if has_magic:
        (pruned,) = _PRUNED.unpack_from(data, offset)
        offset += _PRUNED.size
    if pruned >= 0 or labels:
        raise ConfigError(f"{path}: a pruned or supervised fastText model; expected one of word vectors")
    words, offset = _dictionary(data, offset, entries)
    if has_magic:
        if _QUANTISED.unpack_from(data, offset)[0]:
            raise ConfigError(f"{path}: a quantised fastText model (.ftz); expected .bin or .vec")
        offset += _QUANTISED.size
    rows, columns = _MATRIX.unpack_from(data, offset)
    if (rows, columns) != (count + buckets, dimensions) or len(words) != count:
        raise ValueError(
            f"found {rows} x {columns} vectors, expected one for each of {count} words and {buckets} buckets"
        )
    matrix: Float32 = np.memmap(path, dtype="<f4", mode="r", offset=offset + _MATRIX.size, shape=(rows, columns))
    return FastText(words=words, rows=matrix, subwords=Subwords(shortest=shortest, longest=longest, buckets=buckets))


def _dictionary(data: mmap.mmap, offset: int, entries: int) -> tuple[dict[str, int], int]:
    """Return word -> row, and where the dictionary ends."""
    words: dict[str, int] = {}
    for row in range(entries):
        end = data.find(b"\0", offset)
        if end < 0:
            raise ValueError(f"word {row} is cut off")
        words[data[offset:end].decode("utf-8", errors="replace")] = row
        offset = end + 1 + _ENTRY.size
    return words, offset
