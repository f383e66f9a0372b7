"""N-grams of words, numbered as fastText numbers them.

A word is put between `<` and `>`; its n-grams are runs of Unicode characters, hashed as UTF-8 bytes by 32-bit FNV-1a
in which bytes are signed, as in fastText's `dictionary.cc` (`hash`, `computeSubwords`), into a fixed number of
buckets. A single character at either end is none.
"""

from dataclasses import dataclass

BEGIN, END = "<", ">"
_OFFSET_BASIS, _PRIME, _MASK = 2166136261, 16777619, 0xFFFFFFFF


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
