"""Which split and which shard a document belongs to: functions of its id alone.

A document's place in [0, 1) is a hash of its id. The lowest places are the test split, the next the validation split, the
rest trains; adding documents later moves none that was there, so that no document of a test split ever trains the next
model. Only a split that would be empty takes the training document nearest to it.

    0        test      test + val                                   1
    |---test---|---val---|-----------------train--------------------|
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pipelines.config import ShardsConfig, SplitsConfig
from schemas.documents import Split

_SCALE = 1 << 64


def place_of(document_id: str, *, seed: int) -> float:
    """Return a document's place in [0, 1), a hash of the seed and its id."""
    digest = hashlib.sha256(f"{seed}:{document_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / _SCALE


def split_of(document_id: str, config: SplitsConfig) -> Split:
    """Return the split a document falls into by its id."""
    place = place_of(document_id, seed=config.seed)
    if place < config.test:
        return Split.TEST
    return Split.VAL if place < config.test + config.val else Split.TRAIN


@dataclass(frozen=True, slots=True)
class Survey:
    """What must be known of all documents together to keep no split empty.

    Attributes:
        counts: documents per split.
        first: the two training documents of lowest place, as (place, id).
        has_given: whether the source itself gave any document its split: then nothing is moved.
    """

    counts: tuple[tuple[Split, int], ...] = ()
    first: tuple[tuple[float, str], ...] = ()
    has_given: bool = False

    def moves(self, config: SplitsConfig) -> dict[str, Split]:
        """Return the documents that leave training so that test and validation are not empty."""
        counts = dict(self.counts)
        if self.has_given or sum(counts.values()) < 3:
            return {}
        wanted = [s for s, share in ((Split.TEST, config.test), (Split.VAL, config.val)) if share and not counts.get(s)]
        spare = counts.get(Split.TRAIN, 0) - 1
        return {document: split for split, (_, document) in zip(wanted[:spare], self.first, strict=False)}


def survey_one(document_id: str, given: Split | None, config: SplitsConfig) -> Survey:
    """Return the survey of a single document."""
    split = given or split_of(document_id, config)
    first = ((place_of(document_id, seed=config.seed), document_id),) if split is Split.TRAIN else ()
    return Survey(((split, 1),), first, given is not None)


def merge_surveys(surveys: Iterable[Survey]) -> Survey:
    """Return the survey of all documents together; the order of `surveys` does not matter."""
    counts: dict[Split, int] = {}
    first: list[tuple[float, str]] = []
    has_given = False
    for survey in surveys:
        for split, count in survey.counts:
            counts[split] = counts.get(split, 0) + count
        first = sorted([*first, *survey.first])[:2]
        has_given = has_given or survey.has_given
    return Survey(tuple(sorted(counts.items())), tuple(first), has_given)


def final_split(document_id: str, given: Split | None, config: SplitsConfig, moves: Mapping[str, Split]) -> Split:
    """Return the split of a document, after moves."""
    return given or moves.get(document_id) or split_of(document_id, config)


def shard_count(documents: int, config: ShardsConfig) -> int:
    """Return how many shards a split of that many documents has."""
    return max(1, math.ceil(documents / config.documents))


def shard_of(document_id: str, *, count: int) -> int:
    """Return a document's shard, 0 <= shard < count."""
    digest = hashlib.sha256(f"shard:{document_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % count
