"""Tokens of a sentence, and the vocabulary of a training split: which words are known, and their numbers.

Tokens are lower-cased and tweet-style (Hessel 2019, supplement): addresses, mentions, hashtags and emoticons stay
whole. One regular expression, alternatives tried in order; a character that none matches (a lone symbol, an emoji) is
a token of its own. Whitespace is never in a token.

Number 0 is `<pad>`, 1 is `<unk>`; words follow by falling count, then alphabetically, so that the same counts give the
same numbers however they were gathered.

A word's n-grams are numbered as fastText numbers them: the word is put between `<` and `>`, and runs of its Unicode
characters are hashed as UTF-8 bytes by 32-bit FNV-1a in which bytes are signed, as in `dictionary.cc` (`hash`,
`computeSubwords`), into a fixed number of buckets. A single character at either end is none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from schemas.errors import IntegrityError
from training.data.ragged import Ragged

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
