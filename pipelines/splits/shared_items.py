"""What documents of several splits share exactly: sentences, whole texts and images, found by their digests.

A text is compared by its words alone, so that capitals, punctuation and spacing hide nothing. Plain functions on
arrays; `transforms` runs them on partitions of the digests.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from pipelines.dedupe.columns import Bytes, Columns, Numbers, Texts, from_hex
from pipelines.documents.settle import SettledDocument
from schemas.documents import Document, Split
from schemas.duplicates import Leak, LeakKind

KINDS, SPLITS = tuple(LeakKind), tuple(Split)
MIN_TOKENS = 5  # a shorter text ("Finished product.") is shared by chance
SHOWN_CHARACTERS = 120  # of a shared text, in a row
_APOSTROPHES = "'\u2019\u02bc"


@dataclass(frozen=True, slots=True)
class Items(Columns):
    """Things that documents show, each thing once a document.

    Attributes:
        digests: of equal things, of one kind, these are equal.
        kinds: numbers of `KINDS`.
        splits: numbers of `SPLITS`: of the document.
        documents: ids.
        keys: what a row of the leaks table says of the thing.
        tokens: words of a text; 0 of an image.
    """

    digests: Bytes
    kinds: Numbers
    splits: Numbers
    documents: Texts
    keys: Texts
    tokens: Numbers


class _Words(dict[int, str | None]):
    """For `str.translate`: letters, marks and digits stay, apostrophes go, anything else separates."""

    def __missing__(self, code: int) -> str | None:
        character = chr(code)
        if character in _APOSTROPHES:
            self[code] = None
        else:
            self[code] = character if unicodedata.category(character)[0] in "LMN" else " "
        return self[code]


_WORDS = _Words()


def normalise(text: str) -> str:
    """Return the words of a text, without case or compatibility forms, separated by single spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().translate(_WORDS).split())


def pack_texts(documents: Iterable[SettledDocument]) -> Iterator[Items]:
    """Yield the sentences and whole texts of some documents, which have splits; those of few words are left out."""
    rows = [row for settled in documents for row in _texts_of(settled.document)]
    if rows:
        digests, kinds, splits, ids, keys, tokens = zip(*rows, strict=True)
        numbers = (np.array(kinds), np.array(splits), np.array(ids, object))
        yield Items(from_hex(digests), *numbers, np.array(keys, object), np.array(tokens))


def leaks_of_items(items: Items) -> Iterator[Leak]:
    """Yield for each item that several splits show one row per other split, with the first document that shows it."""
    _, group = np.unique(items.digests, return_inverse=True)
    showing = np.zeros(len(items), np.int64)
    np.bitwise_or.at(showing, group, 1 << items.splits)
    rows = np.flatnonzero(np.bitwise_count(showing[group]) > 1)
    shared, things = items.take(rows), group[rows].tolist()
    first: dict[tuple[int, int], str] = {}
    for end in zip(things, shared.splits.tolist(), shared.documents.tolist(), strict=True):
        first[end[:2]] = min(first.get(end[:2], end[2]), end[2])
    columns = (shared.kinds, shared.splits, shared.documents, shared.keys, shared.tokens)
    for thing, *row in zip(things, *(column.tolist() for column in columns), strict=True):
        kind, split, document, key, tokens = row
        for other, name in enumerate(SPLITS):
            if other != split and (thing, other) in first:
                ends = (SPLITS[split], name, key, document, first[thing, other], key)
                yield Leak(KINDS[kind], *ends, tokens=tokens)


def _texts_of(document: Document) -> Iterator[tuple[str, int, int, str, str, int]]:
    """Yield the rows of `Items`, digests in hexadecimal, of a document's sentences and its whole text.

    The whole text is its sentences whatever their order.
    """
    texts = sorted(filter(None, (normalise(sentence.text) for sentence in document.sentences)))
    things = [(LeakKind.SENTENCE, text) for text in sorted(set(texts))]
    for kind, text in (*things, (LeakKind.DOCUMENT_TEXT, "\n".join(texts))):
        if (tokens := len(text.split())) >= MIN_TOKENS:
            numbers = KINDS.index(kind), SPLITS.index(document.split)
            yield _digest(f"{kind} {text}"), *numbers, document.id, _shown(text), tokens


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _shown(text: str) -> str:
    """Return a text for a row: as it is, or its beginning and its digest, so that two long ones stay two."""
    line = text.replace("\n", " ")
    return line if len(line) <= SHOWN_CHARACTERS else f"{line[:SHOWN_CHARACTERS]}... {_digest(text)}"
