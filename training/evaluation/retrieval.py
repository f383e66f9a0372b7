"""Retrieval in both directions: recall at 1, 5, 10 and median rank (Alikhani 2022, table 4; Liu 2020, table 1).

A query is a text (or an image) with a true partner; the candidates are all images (texts) of a pool. Its rank is that
of its best true partner among what is no partner of it, from 1. Ties never depend on sort order: a rank is its expected
value over all orders of equal candidates, and recall the expected share. Sizes: Q queries, C candidates, P true pairs,
d dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from training.data.streams import stream
from training.evaluation.bootstrap import median_interval, pooled_interval

CUTOFFS = (1, 5, 10)
SAMPLE_PAIRS = 500
SAMPLES = 10
NUMBERS_AT_ONCE = 1 << 22
DECIMALS = 6  # of a cosine: equal vectors tie wherever they lie in a matrix product

Vectors = npt.NDArray[np.floating[Any]]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]
Adjust = Callable[[Vectors, Vectors, Vectors], Vectors]


class Direction(StrEnum):
    TEXT_TO_IMAGE = "text to image"
    IMAGE_TO_TEXT = "image to text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Texts and images that are partners of something, and which are partners.

    Attributes:
        texts: T x d unit vectors.
        images: I x d unit vectors.
        pairs: P x 2 (text, image) rows, each pair once.
        documents: P numbers of the documents the pairs are from.
    """

    texts: Vectors
    images: Vectors
    pairs: Int64
    documents: Int64


@dataclass(frozen=True, slots=True)
class Statistic:
    """A number with its 95% bootstrap interval over documents, or with its standard deviation over samples."""

    value: float
    low: float | None = None
    high: float | None = None
    deviation: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalScores:
    """How well one direction retrieves.

    Attributes:
        direction: what queries and candidates are.
        queries: number of queries (in each sample).
        candidates: number of candidates (in each sample, on average).
        samples: number of samples; 0: the whole pool.
        recall: share of queries with a partner among the first K, in percent, by K.
        median_rank: of the queries, from 1.
    """

    direction: Direction
    queries: int
    candidates: float
    samples: int
    recall: dict[int, Statistic]
    median_rank: Statistic


@dataclass(frozen=True, slots=True)
class QueryRanks:
    """Per query: its expected rank from 1, the probability of a partner among the first K, and 1 / rank expected.

    Attributes:
        ranks: Q.
        found: Q x len(CUTOFFS).
        reciprocal: Q.
    """

    ranks: Float64
    found: Float64
    reciprocal: Float64

    @classmethod
    def of(cls, above: Int64, others: Int64, partners: Int64) -> QueryRanks:
        """Return the expectations over all orders of what is equal.

        With `a` others above the best partner, and `t` others and `s` partners equal to it, the expected rank is
        1 + a + t / (s + 1), and none of the partners is among the first K with probability
        C(t, K - a) / C(s + t, K - a).
        """
        found = np.stack([_found_within(cutoff, above, others, partners) for cutoff in CUTOFFS], axis=1)
        reciprocal = 1 / (1.0 + above)
        for query in np.flatnonzero(others):
            reciprocal[query] = expected_reciprocal_rank(int(above[query]), int(others[query]), int(partners[query]))
        return cls(1 + above + others / (partners + 1), found, reciprocal)


def retrieval_scores(
    pool: Pool,
    *,
    directions: Iterable[Direction] = tuple(Direction),
    sample_pairs: int = SAMPLE_PAIRS,
    samples: int = SAMPLES,
    seed: int = 0,
    adjust: Adjust | None = None,
) -> tuple[RetrievalScores, ...]:
    """Return the directions over the whole pool, then over samples of true pairs where there are more than that.

    A sample is drawn without replacement from all pairs; its texts and images are the queries and candidates.

    Args:
        pool: with at least one pair.
        directions: both, or one.
        sample_pairs: pairs of a sample.
        samples: number of samples; 0: the whole pool alone.
        seed: of the samples.
        adjust: what is done to similarities before they are ranked, such as `relations.refine_similarities`.
    """
    wanted = tuple(directions)
    found = [_whole(pool, direction, adjust) for direction in wanted]
    if samples and len(pool.pairs) > sample_pairs:
        drawn = list(_samples(pool, sample_pairs, samples, seed))
        found += [_sampled(drawn, direction, adjust) for direction in wanted]
    return tuple(found)


def query_ranks(queries: Vectors, candidates: Vectors, pairs: Int64, *, adjust: Adjust | None = None) -> QueryRanks:
    """Return the ranks of Q queries, each with at least one partner.

    Args:
        queries: Q x d.
        candidates: C x d.
        pairs: P x 2 (query, candidate) partners.
        adjust: takes q x C similarities of some queries, their q x d vectors and the candidates'; gives q x C.
    """
    order = np.argsort(pairs[:, 0], kind="stable")
    partners = pairs[order]
    block = max(1, NUMBERS_AT_ONCE // max(1, len(candidates)))
    parts = []
    for start in range(0, len(queries), block):
        stop = min(start + block, len(queries))
        low, high = np.searchsorted(partners[:, 0], [start, stop])
        are_partners = np.zeros((stop - start, len(candidates)), dtype=bool)
        are_partners[partners[low:high, 0] - start, partners[low:high, 1]] = True
        similarities: Vectors = np.round(queries[start:stop] @ candidates.T, DECIMALS)
        if adjust is not None:
            similarities = adjust(similarities, queries[start:stop], candidates)
        parts.append(similarity_ranks(similarities, are_partners))
    return QueryRanks(
        np.concatenate([p.ranks for p in parts]),
        np.concatenate([p.found for p in parts]),
        np.concatenate([p.reciprocal for p in parts]),
    )


def similarity_ranks(similarities: Vectors, are_partners: Bool) -> QueryRanks:
    """Return the ranks of queries from Q x C similarities and which candidates are partners (one at least a query)."""
    best = np.where(are_partners, similarities, -np.inf).max(axis=1, keepdims=True)
    above = ((similarities > best) & ~are_partners).sum(axis=1)
    equal = similarities == best
    others, partners = (equal & ~are_partners).sum(axis=1), (equal & are_partners).sum(axis=1)
    return QueryRanks.of(above, others, partners)


def expected_reciprocal_rank(above: int, others: int, partners: int) -> float:
    """Return the mean of 1 / rank of the first partner, over the orders of partners and others behind those above."""
    return float((_first_partner(others, partners) / (1.0 + above + np.arange(others + 1))).sum())


@lru_cache(maxsize=256)
def _first_partner(others: int, partners: int) -> Float64:
    """Return the probabilities that 0, 1, ... `others` stand before the first partner in a random order."""
    before = np.arange(others + 1)
    left = others + partners - before
    no_partner_yet = np.concatenate([[1.0], np.cumprod((others - before[:-1]) / left[:-1])])
    return no_partner_yet * partners / left


def _found_within(cutoff: int, above: Int64, others: Int64, partners: Int64) -> Float64:
    """Return the probability that one of the tied partners is among the first `cutoff` candidates."""
    places = cutoff - above
    missed = np.ones(len(above))
    for taken in range(cutoff):
        left, all_left = others - taken, others + partners - taken
        factor = np.where(left > 0, left / np.maximum(all_left, 1), 0.0)
        missed *= np.where(taken < places, factor, 1.0)
    return 1 - missed


def direction_ranks(pool: Pool, direction: Direction, *, adjust: Adjust | None = None) -> tuple[QueryRanks, Int64]:
    """Return the ranks of a direction's queries over the whole pool, and the document of each (its first pair's)."""
    queries, candidates, pairs = _sides(pool, direction)
    wanted, first, places = np.unique(pairs[:, 0], return_index=True, return_inverse=True)
    renumbered = np.stack([places.ravel(), pairs[:, 1]], axis=1)
    return query_ranks(queries[wanted], candidates, renumbered, adjust=adjust), pool.documents[first]


def _whole(pool: Pool, direction: Direction, adjust: Adjust | None) -> RetrievalScores:
    ranks, documents = direction_ranks(pool, direction, adjust=adjust)
    numbers, places = np.unique(documents, return_inverse=True)
    counts = np.bincount(places, minlength=len(numbers)).astype(np.float64)
    recall = {}
    for column, cutoff in enumerate(CUTOFFS):
        sums = np.bincount(places, weights=100 * ranks.found[:, column], minlength=len(numbers))
        interval = pooled_interval(sums.astype(np.float64), counts)
        recall[cutoff] = Statistic(interval.mean, interval.low, interval.high)
    median = median_interval(ranks.ranks, documents)
    return RetrievalScores(
        direction=direction,
        queries=len(ranks.ranks),
        candidates=float(len(_sides(pool, direction)[1])),
        samples=0,
        recall=recall,
        median_rank=Statistic(median.mean, median.low, median.high),
    )


def _sampled(drawn: Sequence[Pool], direction: Direction, adjust: Adjust | None) -> RetrievalScores:
    rows, queries, candidates = [], [], []
    for pool in drawn:
        ranks, _ = direction_ranks(pool, direction, adjust=adjust)
        rows.append([*(100 * ranks.found.mean(axis=0)), np.median(ranks.ranks)])
        queries.append(len(ranks.ranks))
        candidates.append(len(_sides(pool, direction)[1]))
    table = np.array(rows)
    values = [
        Statistic(float(mean), deviation=float(deviation))
        for mean, deviation in zip(table.mean(axis=0), table.std(axis=0, ddof=1), strict=True)
    ]
    return RetrievalScores(
        direction=direction,
        queries=round(float(np.mean(queries))),
        candidates=float(np.mean(candidates)),
        samples=len(drawn),
        recall=dict(zip(CUTOFFS, values, strict=False)),
        median_rank=values[-1],
    )


def _sides(pool: Pool, direction: Direction) -> tuple[Vectors, Vectors, Int64]:
    """Return queries, candidates and (query, candidate) pairs of a direction."""
    if direction is Direction.TEXT_TO_IMAGE:
        return pool.texts, pool.images, pool.pairs
    return pool.images, pool.texts, pool.pairs[:, ::-1]


def _samples(pool: Pool, size: int, samples: int, seed: int) -> Iterator[Pool]:
    for number in range(samples):
        rows = np.sort(stream("retrieval", seed, number).choice(len(pool.pairs), size=size, replace=False))
        yield _restricted(pool, rows)


def _restricted(pool: Pool, rows: Int64) -> Pool:
    """Return the pool of the texts and images of some pairs, with every pair among them."""
    texts, images = np.unique(pool.pairs[rows, 0]), np.unique(pool.pairs[rows, 1])
    inside = np.isin(pool.pairs[:, 0], texts) & np.isin(pool.pairs[:, 1], images)
    pairs = pool.pairs[inside]
    renumbered = np.stack([np.searchsorted(texts, pairs[:, 0]), np.searchsorted(images, pairs[:, 1])], axis=1)
    return Pool(texts=pool.texts[texts], images=pool.images[images], pairs=renumbered, documents=pool.documents[inside])
