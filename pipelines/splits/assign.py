"""Which split and which shard a document belongs to: functions of its id alone.

A document's id and the seed draw a number in [0, 1). The lowest draws are the test split, the next the validation
split, the rest trains; adding documents later moves none that was there, so that no document of a test split ever
trains the next model. Only a split that would be empty takes the first document of the largest one.

    0        test      test + val                                   1
    |---test---|---val---|-----------------train--------------------|
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import nsmallest
from itertools import chain

from pipelines.settings import ShardsConfig, SplitsConfig
from pipelines.sources.draws import hashed, share_of
from schemas.documents import Split

MOST_SHARDS = 16_384  # of a split


def split_of(document_id: str, config: SplitsConfig) -> Split:
    """Return the split a document falls into by its id."""
    drawn = share_of(document_id, seed=config.seed)
    if drawn < config.test:
        return Split.TEST
    return Split.VAL if drawn < config.test + config.val else Split.TRAIN


@dataclass(frozen=True, slots=True)
class Survey:
    """What must be known of all documents together to keep no split empty.

    Attributes:
        counts: documents of each split that has any.
        first: the documents of each split with the lowest draws, as (draw, id): two, or all there are.
        has_given: whether the source itself gave any document its split: then nothing is moved.
    """

    counts: Mapping[Split, int]
    first: Mapping[Split, list[tuple[float, str]]]
    has_given: bool

    def moves(self, config: SplitsConfig) -> dict[str, Split]:
        """Return the documents that leave the largest split so that no wanted split is empty."""
        counts, moved = dict.fromkeys(Split, 0) | dict(self.counts), dict[str, Split]()
        for empty, share in {Split.TRAIN: 1.0, Split.TEST: config.test, Split.VAL: config.val}.items():
            donor = max(Split, key=counts.__getitem__)
            if share > 0 and counts[empty] == 0 and counts[donor] > 1 and not self.has_given:
                moved[next(document for _, document in self.first[donor] if document not in moved)] = empty
                counts[donor] -= 1
                counts[empty] += 1
        return moved


def survey_one(document_id: str, given: Split | None, config: SplitsConfig) -> Survey:
    """Return the survey of a single document."""
    split = given or split_of(document_id, config)
    return Survey({split: 1}, {split: [(share_of(document_id, seed=config.seed), document_id)]}, given is not None)


def merge_surveys(surveys: Iterable[Survey]) -> Survey:
    """Return the survey of all documents together; the order of `surveys` does not matter."""
    parts = list(surveys)
    counts = {split: sum(part.counts.get(split, 0) for part in parts) for split in Split}
    first = {split: nsmallest(2, chain(*(part.first.get(split, ()) for part in parts))) for split in Split}
    return Survey(counts, first, any(part.has_given for part in parts))


def final_split(document_id: str, given: Split | None, config: SplitsConfig, moves: Mapping[str, Split]) -> Split:
    """Return the split of a document, after moves."""
    return given or moves.get(document_id) or split_of(document_id, config)


def shard_count(documents: int, config: ShardsConfig) -> int:
    """Return how many shards a split of that many documents has: beyond `MOST_SHARDS`, shards grow."""
    return max(1, min(MOST_SHARDS, math.ceil(documents / config.documents)))


def shard_of(document_id: str, *, count: int) -> int:
    """Return a document's shard, 0 <= shard < count."""
    return hashed(0, "shard", document_id) % count
