"""Leaks: what documents of different splits share, found, counted, and which documents would go.

    trace of a document --> clues: its images, sentences, whole text --> clues that occur in several splits --> leaks
                                   |
                                   `--> fingerprints --> near pairs across splits --> leaks

Plain functions; a Beam path can group clues by what they show and end in the same `leaks_of_group`.

Memory: traces are read again rather than copied. The first reading keeps a 16-byte digest and an integer for each
distinct image, sentence and text (some 150 bytes each), the second only the documents that leak. Near images need each
distinct fingerprint once, and `near_pairs` holds the pairs among them, those inside a split too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from pipelines.dedupe.columns import from_hex, words_of
from pipelines.dedupe.hamming import near_pairs
from pipelines.settings import SharedThing, SplitsConfig
from pipelines.splits.traces import MIN_TOKENS, Clue, Trace, clues_of
from schemas.documents import Split
from schemas.errors import BuildError
from schemas.leaks import Leak, LeakKind

_THINGS = {
    LeakKind.EXACT_IMAGE: SharedThing.EXACT_IMAGES,
    LeakKind.NEAR_IMAGE: SharedThing.NEAR_IMAGES,
    LeakKind.SENTENCE: SharedThing.TEXTS,
    LeakKind.DOCUMENT_TEXT: SharedThing.TEXTS,
}
_STRENGTH = {Split.TRAIN: 0, Split.VAL: 1, Split.TEST: 2}


@dataclass(frozen=True, slots=True, order=True)
class LeakCount:
    """How much of one split is in another: distinct images or texts, and the documents that show them."""

    kind: LeakKind
    split: Split
    other_split: Split
    keys: int
    documents: int


@dataclass(frozen=True, slots=True, order=True)
class _Sight:
    """The image nearest to a look in some split: sorted, the best comes first."""

    distance: int
    image: str
    document: str


_Looks = Mapping[str, Mapping[Split, list[_Sight]]]


def leaks_of_group(clues: Collection[Clue]) -> Iterator[Leak]:
    """Yield the leaks among clues of one thing: for each document, one row per other split that shows it.

    The clues are read twice, in any order.
    """
    first: dict[Split, str] = {}
    for clue in clues:
        first[clue.split] = min(first.get(clue.split, clue.document), clue.document)
    for clue in clues:
        for other, document in sorted(first.items()):
            if other is not clue.split:
                ends = (clue.split, other, clue.key, clue.document, document, clue.key)
                yield Leak(clue.kind, *ends, tokens=clue.tokens)


def find_leaks(traces: Collection[Trace], *, radius: int, min_tokens: int = MIN_TOKENS) -> list[Leak]:
    """Return every leak between splits, sorted.

    Args:
        traces: of every document; read four times, from disk each time where a collection does so.
        radius: largest distance of near images' fingerprints, in bits.
        min_tokens: words of the shortest text that counts.
    """
    seen: dict[tuple[LeakKind, bytes], int] = defaultdict(int)
    for trace in traces:
        for clue in clues_of(trace, min_tokens=min_tokens):
            seen[clue.kind, clue.digest] |= 1 << _STRENGTH[clue.split]
    shared = {thing for thing, splits in seen.items() if splits.bit_count() > 1}
    del seen
    groups: dict[tuple[LeakKind, bytes], list[Clue]] = defaultdict(list)
    for trace in traces:
        for clue in clues_of(trace, min_tokens=min_tokens):
            if (clue.kind, clue.digest) in shared:
                groups[clue.kind, clue.digest].append(clue)
    leaks = {leak for clues in groups.values() for leak in leaks_of_group(clues)}
    return sorted(leaks | set(near_image_leaks(traces, radius=radius)))


def near_image_leaks(traces: Collection[Trace], *, radius: int) -> Iterator[Leak]:
    """Yield for each image of a document the closest other image of each other split, where it is within `radius`.

    Images of equal bytes are no near images: they are exact ones.
    """
    nearest = _nearest(_survey_looks(traces), radius)
    for trace in traces:
        for image in trace.images:
            for other, sights in nearest.get(image.fingerprint or "", {}).items():
                best = next((sight for sight in sights if sight.image != image.hash), None)
                if other is not trace.split and best is not None:
                    ends = (trace.split, other, image.hash, trace.document, best.document, best.image)
                    yield Leak(LeakKind.NEAR_IMAGE, *ends, best.distance)


def count_leaks(leaks: Iterable[Leak]) -> list[LeakCount]:
    """Return what each split has of each other one, by kind, sorted."""
    keys: dict[tuple[LeakKind, Split, Split], set[str]] = defaultdict(set)
    documents: dict[tuple[LeakKind, Split, Split], set[str]] = defaultdict(set)
    for leak in leaks:
        place = (leak.kind, leak.split, leak.other_split)
        keys[place].add(leak.key)
        documents[place].add(leak.document)
    return sorted(LeakCount(*place, len(keys[place]), len(documents[place])) for place in keys)


def documents_to_drop(leaks: Iterable[Leak], config: SplitsConfig) -> frozenset[str]:
    """Return the ids of the weaker ends (`is_weaker_end`) of leaks that count (`is_heeded`).

    The test split stays whole. A training document goes even where the validation document it leaks with goes too.
    """
    return frozenset(leak.document for leak in leaks if is_heeded(leak, config) and is_weaker_end(leak))


def is_heeded(leak: Leak, config: SplitsConfig) -> bool:
    """Return whether a leak is one to drop documents for, or to fail a build: by its kind, and a text by its length."""
    thing = _THINGS[leak.kind]
    return thing in config.leak_kinds and (thing is not SharedThing.TEXTS or leak.tokens >= config.leak_min_tokens)


def is_weaker_end(leak: Leak) -> bool:
    """Return whether the leak's document is the one to go: train yields to val and test, val to test."""
    return _STRENGTH[leak.split] < _STRENGTH[leak.other_split]


def count_lines(counts: Iterable[LeakCount]) -> list[str]:
    """Return counts in words, the weaker split's view left out: it is the same leak."""
    return [
        f"{count.kind}: {count.keys} of {count.split} ({count.documents} documents) are in {count.other_split}"
        for count in counts
        if _STRENGTH[count.split] > _STRENGTH[count.other_split]
    ]


def refuse_leaks(counts: Iterable[LeakCount]) -> None:
    """Raise a `BuildError` that tells what leaks, where anything does."""
    lines = count_lines(counts)
    if lines:
        remedy = "drop them (--set splits.on_leak=drop), keep them (report), or heed less (splits.leak_kinds)"
        raise BuildError(f"splits share content: {'; '.join(lines)}; {remedy}")


def _survey_looks(traces: Iterable[Trace]) -> _Looks:
    """Return for each fingerprint and split its two smallest images: whichever is asked about, another is there."""
    looks: dict[str, dict[Split, list[_Sight]]] = defaultdict(dict)
    for trace in traces:
        for image in trace.images:
            if image.fingerprint is not None:
                sights = looks[image.fingerprint].get(trace.split, [])
                looks[image.fingerprint][trace.split] = _best([*sights, _Sight(0, image.hash, trace.document)])
    return looks


def _nearest(looks: _Looks, radius: int) -> dict[str, dict[Split, list[_Sight]]]:
    """Return for each fingerprint and split the two closest images within the radius."""
    nearest = {look: dict(places) for look, places in looks.items()}
    names = list(looks)
    pairs, distances = near_pairs(words_of(from_hex(names)), radius)
    splits = np.array([sum(1 << _STRENGTH[split] for split in looks[name]) for name in names], np.uint8)
    is_across = np.bitwise_count(splits[pairs[0]] | splits[pairs[1]]) > 1
    for one, two, distance in zip(*pairs[:, is_across].tolist(), distances[is_across].tolist(), strict=True):
        for here, there in ((names[one], names[two]), (names[two], names[one])):
            for split, sights in looks[there].items():
                found = [_Sight(distance, sight.image, sight.document) for sight in sights]
                nearest[here][split] = _best([*nearest[here].get(split, []), *found])
    return nearest


def _best(sights: Iterable[_Sight]) -> list[_Sight]:
    """Return the two best sights of different images."""
    by_image: dict[str, _Sight] = {}
    for sight in sorted(sights):
        by_image.setdefault(sight.image, sight)
    return list(by_image.values())[:2]
