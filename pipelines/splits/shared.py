"""What documents of several splits share: sentences and whole texts of the same words, and images, the same or near.

A text is compared by its words alone, so that capitals, punctuation and spacing hide nothing. Images that are near are
in one cluster of near-duplicates; flat images, which all look alike, are in none. Plain functions on arrays;
`transforms` runs them on partitions of the digests of texts and of the clusters. Which leaks count, and which documents
go for them, is said at the end.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pipelines.documents.rules import SettledDocument
from pipelines.partitions.columns import Bytes, Columns, Numbers, Texts, from_hex, starts_of_runs, to_hex
from pipelines.settings import SharedThing, SplitsConfig
from schemas.documents import Document, Split
from schemas.duplicates import Duplicate, Leak, LeakKind

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


def texts_of(sentences: Iterable[str]) -> Iterator[tuple[LeakKind, str, int]]:
    """Yield kind, words and number of words of the sentences of a document, each once, and of its whole text.

    The whole text is its sentences whatever their order. What has few words is left out.
    """
    texts = sorted(filter(None, map(normalise, sentences)))
    things = [(LeakKind.SENTENCE, text) for text in sorted(set(texts))]
    for kind, text in (*things, (LeakKind.DOCUMENT_TEXT, "\n".join(texts))):
        if (tokens := len(text.split())) >= MIN_TOKENS:
            yield kind, text, tokens


def _texts_of(document: Document) -> Iterator[tuple[str, int, int, str, str, int]]:
    """Yield the rows of `Items`, digests in hexadecimal, of a document's sentences and its whole text."""
    for kind, text, tokens in texts_of(sentence.text for sentence in document.sentences):
        numbers = KINDS.index(kind), SPLITS.index(document.split)
        yield _digest(f"{kind} {text}"), *numbers, document.id, _shown(text), tokens


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _shown(text: str) -> str:
    """Return a text for a row: as it is, or its beginning and its digest, so that two long ones stay two."""
    line = text.replace("\n", " ")
    return line if len(line) <= SHOWN_CHARACTERS else f"{line[:SHOWN_CHARACTERS]}... {_digest(text)}"


@dataclass(frozen=True, slots=True)
class ShownImages(Columns):
    """Images of documents that have splits (numbers of `SPLITS`)."""

    images: Bytes
    clusters: Bytes
    documents: Texts
    splits: Numbers


@dataclass(frozen=True, slots=True)
class ClusterOfImage(Columns):
    """Images that have a duplicate, and their clusters."""

    images: Bytes
    clusters: Bytes


def pack_shown(documents: Sequence[SettledDocument]) -> Iterator[ShownImages]:
    """Yield the images of some documents; each is a cluster of its own until it meets its cluster."""
    shown = [
        (found.image.hash, settled.document.id, SPLITS.index(settled.document.split))
        for settled in documents
        for found in settled.images
        if not found.image.is_flat
    ]
    if shown:
        hashes, ids, splits = zip(*shown, strict=True)
        images = from_hex(hashes)
        yield ShownImages(images, images, np.array(ids, object), np.array(splits))


def pack_clusters(duplicates: Sequence[Duplicate]) -> Iterator[ClusterOfImage]:
    """Yield the cluster of each image of some duplicates."""
    clusters = {duplicate.image: duplicate.cluster for duplicate in duplicates}
    yield ClusterOfImage(from_hex(list(clusters)), from_hex(list(clusters.values())))


def meet_clusters(shown: Iterable[ShownImages], clusters: Iterable[ClusterOfImage]) -> ShownImages:
    """Return the images that are in a cluster, with it."""
    pictures, known = ShownImages.concatenate(shown), ClusterOfImage.concatenate(clusters)
    images, rows = np.unique(known.images, return_index=True)
    pictures = pictures.take(np.isin(pictures.images, images))
    return replace(pictures, clusters=known.clusters[rows[np.searchsorted(images, pictures.images)]])


def leaks_of_images(pictures: ShownImages) -> Iterator[Leak]:
    """Yield the leaks among the images of some clusters: of equal bytes, and of other bytes."""
    _, document = np.unique(pictures.documents, return_inverse=True)
    order = np.lexsort((pictures.images, document))
    pictures = pictures.take(order[starts_of_runs(document[order], pictures.images[order])])  # an image once a document
    kinds = np.full(len(pictures), KINDS.index(LeakKind.EXACT_IMAGE))
    keys = np.array(to_hex(pictures.images), object)
    yield from leaks_of_items(
        Items(pictures.images, kinds, pictures.splits, pictures.documents, keys, np.zeros_like(kinds))
    )
    yield from _near_leaks(pictures)


def _near_leaks(pictures: ShownImages) -> Iterator[Leak]:
    """Yield for each image of a document the first other image of its cluster in each other split.

    Args:
        pictures: in the order of documents, then images.
    """
    columns = (to_hex(pictures.clusters), pictures.splits, to_hex(pictures.images), pictures.documents)
    rows = [(cluster, SPLITS[split], image, key) for cluster, split, image, key in zip(*columns, strict=True)]
    first: dict[tuple[str, Split], dict[str, str]] = {}  # of each cluster and split two images, and their documents
    for cluster, split, image, document in rows:
        two = first.setdefault((cluster, split), {})
        if len(two) < 2:
            two.setdefault(image, document)
    for cluster, split, image, document in rows:
        for other in SPLITS:
            there = first.get((cluster, other), {}) if other is not split else {}
            for other_image in [each for each in there if each != image][:1]:
                yield Leak(LeakKind.NEAR_IMAGE, split, other, image, document, there[other_image], other_image)


_THINGS: dict[LeakKind, SharedThing] = {
    LeakKind.EXACT_IMAGE: "images-exact",
    LeakKind.NEAR_IMAGE: "images-near",
    LeakKind.SENTENCE: "texts",
    LeakKind.DOCUMENT_TEXT: "texts",
}
_STRENGTH = {Split.TRAIN: 0, Split.VAL: 1, Split.TEST: 2}


def leak_counts(counted: Iterable[tuple[tuple[tuple[str, str, str], str], int]]) -> list[dict[str, Any]]:
    """Return how much of one split is in another, sorted: distinct images or texts, and the documents that show them.

    Args:
        counted: the number of keys, and that of documents, of each kind and two splits.
    """
    numbers = dict(counted)
    return [
        {
            "kind": kind,
            "split": split,
            "other_split": other,
            "keys": numbers[(kind, split, other), "key"],
            "documents": numbers[(kind, split, other), "document"],
        }
        for kind, split, other in sorted({ends for ends, _ in numbers})
    ]


def is_heeded(leak: Leak, config: SplitsConfig) -> bool:
    """Return whether a leak is one to drop documents for: by its kind, and a text by its length."""
    thing = _THINGS[leak.kind]
    return thing in config.leak_kinds and (thing != "texts" or leak.tokens >= config.leak_min_tokens)


def is_weaker_end(leak: Leak) -> bool:
    """Return whether the leak's document is the one to go: train yields to val and test, val to test.

    The test split stays whole. A training document goes even where the validation document it leaks with goes too.
    """
    return _STRENGTH[leak.split] < _STRENGTH[leak.other_split]
