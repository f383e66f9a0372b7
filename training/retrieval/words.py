"""Ranks pictures by the words that a text shares with them: BM25, by the library bm25s.

What each word adds to the score of each picture that has it is computed when the index is made, and mapped into memory
when it is opened: a text of a hundred words is a hundred sums over the pictures that have them. The form is that of
Lucene (Robertson and Zaragoza 2009; k1 = 1.2, b = 0.75). Words are compared without capitals and accents.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from schemas.errors import ConfigError
from training.data.ragged import Int64
from training.retrieval.vectors import Ranked, first_of

LEXICAL_WORDS = 64  # of a text, the rarest
COMMON_SHARE = 0.2  # a word in more pictures is not selective: its weight in BM25 is next to nothing
K1, B = 1.2, 0.75
_WORD = re.compile(r"\w+")


class Words:
    """The words of the texts of N pictures; may be used by several threads."""

    def __init__(self, scorer: Any) -> None:
        self._scorer = scorer
        self.count = int(scorer.scores["num_docs"])

    @classmethod
    def of(cls, texts: Iterable[str]) -> Words:
        """Return the words of texts, one a picture."""
        numbers: dict[str, int] = {"": 0}  # the library averages over words: without any it would divide by zero
        rows = [[numbers.setdefault(word, len(numbers)) for word in words_of(text)] or [0] for text in texts]
        scorer = bm25s().BM25(method="lucene", k1=K1, b=B)
        scorer.index((rows, numbers), create_empty_token=False, show_progress=False)
        return cls(scorer)

    @classmethod
    def open(cls, folder: Path) -> Words:
        """Return the words that `save` wrote, mapped into memory: several processes share them."""
        return cls(bm25s().BM25.load(folder, mmap=True))

    def save(self, folder: Path) -> None:
        """Write the words; the same texts give the same bytes."""
        self._scorer.save(folder)

    def rank(self, text: str, count: int, rows: Int64 | None = None) -> Ranked:
        """Return the pictures whose words a text shares, by BM25; none where it shares no selective word.

        Args:
            text: of any length; its LEXICAL_WORDS rarest words count.
            count: at most so many.
            rows: ascending ones that are searched; None: all.
        """
        words = self._selective(text)
        if not words:
            return Ranked(np.zeros(0, np.int64), np.zeros(0, np.float32))
        scores = self._scorer.get_scores_from_ids(words)
        searched = np.flatnonzero(scores) if rows is None else rows[scores[rows] > 0]
        return first_of(searched, scores[searched], count)

    def _selective(self, text: str) -> list[int]:
        """Return the numbers of the rarest different words of a text, without those that very many pictures have."""
        known: dict[str, int] = self._scorer.vocab_dict
        words = np.array([known[word] for word in dict.fromkeys(words_of(text)) if word in known], np.int64)
        starts = self._scorer.scores["indptr"]
        pictures = starts[words + 1] - starts[words]
        selective = words[pictures <= max(1, COMMON_SHARE * self.count)]
        rarest = np.argsort(starts[selective + 1] - starts[selective], kind="stable")[:LEXICAL_WORDS]
        return [int(number) for number in selective[rarest]]


def words_of(text: str) -> list[str]:
    """Return the words of a text as they are compared: without capitals and accents."""
    return _WORD.findall(plain(text))


def plain(text: str) -> str:
    """Return a text without capitals, accents and superfluous spaces."""
    letters = unicodedata.normalize("NFKD", text.casefold())
    return " ".join("".join(each for each in letters if not unicodedata.combining(each)).split())


def bm25s() -> Any:
    """Return the library that ranks by words.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        import bm25s as library
    except ModuleNotFoundError as problem:
        raise ConfigError("ranking by words needs bm25s: pip install 'multilink-pipeline[retrieval]'") from problem
    logging.getLogger(library.__name__).setLevel(logging.WARNING)  # it logs every step
    return library
