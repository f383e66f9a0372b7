"""What splits share, in numbers and words; which of it counts, and which documents go for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pipelines.settings import SharedThing, SplitsConfig
from schemas.documents import Split
from schemas.duplicates import Leak, LeakKind
from schemas.errors import BuildError

_THINGS: dict[LeakKind, SharedThing] = {
    LeakKind.EXACT_IMAGE: "images-exact",
    LeakKind.NEAR_IMAGE: "images-near",
    LeakKind.SENTENCE: "texts",
    LeakKind.DOCUMENT_TEXT: "texts",
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


def leak_counts(counted: Iterable[tuple[tuple[tuple[str, str, str], str], int]]) -> list[LeakCount]:
    """Return counts, sorted, from the number of keys and of documents of each kind and two splits."""
    found: dict[tuple[str, str, str], dict[str, int]] = {}
    for (ends, name), number in counted:
        found.setdefault(ends, {})[name] = number
    return sorted(
        LeakCount(LeakKind(kind), Split(one), Split(other), numbers["key"], numbers["document"])
        for (kind, one, other), numbers in found.items()
    )


def is_heeded(leak: Leak, config: SplitsConfig) -> bool:
    """Return whether a leak is one to drop documents for, or to fail a build: by its kind, and a text by its length."""
    thing = _THINGS[leak.kind]
    return thing in config.leak_kinds and (thing != "texts" or leak.tokens >= config.leak_min_tokens)


def is_weaker_end(leak: Leak) -> bool:
    """Return whether the leak's document is the one to go: train yields to val and test, val to test.

    The test split stays whole. A training document goes even where the validation document it leaks with goes too.
    """
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
