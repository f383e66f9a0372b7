"""Retrieval in both directions: recall at 1, 5, 10 and median rank (Alikhani 2022, table 4; Liu 2020, table 1).

Also how well the texts of each document find their images, by which pairs are judged: a document of one text and one
image has no AUC, since its only pair is linked, but it has a rank, as has any document with links. These scores are
means over a document's linked texts, in percent, so that two models can be compared document by document.

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

import numpy as np
import scipy
from scipy.sparse import coo_array

from training.data.documents import DocumentSet
from training.data.ragged import Bool, Float64, Floats, Int64, require_finite, stream
from training.metrics.intervals import Score, mean_interval, median_interval
from training.metrics.links import DocumentScores, PairScore, ScoreKind
from training.model import EmbeddedDocument

CUTOFFS = (1, 5, 10)
RECALL = tuple(f"recall_at_{cutoff}" for cutoff in CUTOFFS)
MEDIAN_RANK, RANK_UNIT = "median_rank", "rank, from 1"
SAMPLE_PAIRS = 500
SAMPLES = 10
NUMBERS_AT_ONCE = 1 << 22
DECIMALS = 6  # of a cosine: equal vectors tie wherever they lie in a matrix product

Adjust = Callable[[Floats, Floats, Floats], Floats]


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

    texts: Floats
    images: Floats
    pairs: Int64
    documents: Int64

    def sides(self, direction: Direction) -> tuple[Floats, Floats, Int64]:
        """Return queries, candidates and (query, candidate) pairs of a direction."""
        if direction is Direction.TEXT_TO_IMAGE:
            return self.texts, self.images, self.pairs
        return self.images, self.texts, self.pairs[:, ::-1]


@dataclass(frozen=True, slots=True)
class Ranks:
    """Per query: ranks from 1, the probability of a partner among the first K, and 1 / rank expected.

    Attributes:
        realistic: Q, expected over all orders of equal candidates.
        recall: Q x len(cutoffs), 0 to 1.
        reciprocal: Q.
    """

    realistic: Float64
    recall: Float64
    reciprocal: Float64

    @classmethod
    def of(cls, counts: Int64, cutoffs: Sequence[int] = CUTOFFS) -> Ranks:
        """Return the expectations over all orders of equal candidates, from the 3 x Q numbers of `count_ranked`.

        With `a` others above the best partner, and `t` others and `s` partners equal to it, the expected rank is
        1 + a + t / (s + 1), and none of the partners is among the first K with probability
        C(t, K - a) / C(s + t, K - a).
        """
        above, others, partners = counts
        recall = np.stack([_recall_within(cutoff, above, others, partners) for cutoff in cutoffs], axis=1)
        reciprocal = 1 / (1.0 + above)
        for query in np.flatnonzero(others):
            reciprocal[query] = expected_reciprocal_rank(int(above[query]), int(others[query]), int(partners[query]))
        return cls(1.0 + above + others / (partners + 1), recall, reciprocal)


def retrieval_scores(
    pool: Pool,
    *,
    directions: Iterable[Direction] = tuple(Direction),
    sample_pairs: int = SAMPLE_PAIRS,
    samples: int = SAMPLES,
    adjust: Adjust | None = None,
) -> list[Score]:
    """Return recall and median rank of the directions over the whole pool, then over samples of its true pairs.

    A sample is drawn without replacement from all pairs; its texts and images are the queries and candidates. There are
    none where the pool has no more pairs than a sample, and no row at all for a pool without a pair. Scores of the
    whole pool have their 95% interval over documents, those of samples their standard deviation.

    Args:
        pool: texts, images and which are partners.
        directions: both, or one.
        sample_pairs: pairs of a sample.
        samples: number of samples; 0: the whole pool alone.
        adjust: changes similarities before they are ranked, such as selective refinement.

    >>> pool = Pool(texts=np.eye(2), images=np.eye(2), pairs=np.array([[0, 0], [1, 1]]), documents=np.arange(2))
    >>> found = retrieval_scores(pool, directions=[Direction.TEXT_TO_IMAGE], samples=0)
    >>> [(score.metric, score.value) for score in found]
    [('recall_at_1', 100.0), ('recall_at_5', 100.0), ('recall_at_10', 100.0), ('median_rank', 1.0)]
    """
    if not len(pool.pairs):
        return []
    directions = tuple(directions)
    scores = [score for direction in directions for score in _whole(pool, direction, adjust)]
    if samples and len(pool.pairs) > sample_pairs:
        drawn = list(_samples(pool, sample_pairs, samples))
        scores += [score for direction in directions for score in _sampled(drawn, direction, adjust)]
    return scores


def query_ranks(queries: Floats, candidates: Floats, pairs: Int64, *, adjust: Adjust | None = None) -> Ranks:
    """Return the ranks of Q queries, each with at least one partner.

    Args:
        queries: Q x d.
        candidates: C x d.
        pairs: P x 2 (query, candidate) partners.
        adjust: takes q x C similarities of some queries, their q x d vectors and the candidates'; gives q x C.

    Raises:
        UsageError: a number of a vector is not finite.

    >>> query_ranks(np.eye(2), np.eye(2), np.array([[0, 0], [1, 0]])).realistic.tolist()
    [1.0, 2.0]
    """
    for vectors in (queries, candidates):
        require_finite(vectors, "vectors of texts and images")
    partners = pairs[np.argsort(pairs[:, 0], kind="stable")]
    block = max(1, NUMBERS_AT_ONCE // max(1, len(candidates)))
    counts = []
    for start in range(0, len(queries), block):
        stop = min(start + block, len(queries))
        low, high = np.searchsorted(partners[:, 0], [start, stop])
        are_partners = np.zeros((stop - start, len(candidates)), dtype=bool)
        are_partners[partners[low:high, 0] - start, partners[low:high, 1]] = True
        similarities: Floats = np.round(queries[start:stop] @ candidates.T, DECIMALS)
        if adjust is not None:
            similarities = adjust(similarities, queries[start:stop], candidates)
        counts.append(count_ranked(similarities, are_partners))
    return Ranks.of(np.concatenate(counts, axis=1))


def expected_reciprocal_rank(above: int, others: int, partners: int) -> float:
    """Return the mean of 1 / rank of the first partner, over the orders of partners and others behind those above.

    >>> expected_reciprocal_rank(above=0, others=1, partners=1)  # first or second, equally likely
    0.75
    """
    return float((_first_partner(others, partners) / (1.0 + above + np.arange(others + 1))).sum())


def direction_ranks(pool: Pool, direction: Direction, *, adjust: Adjust | None = None) -> tuple[Ranks, Int64]:
    """Return the ranks of a direction's queries over the whole pool, and the document of each (its first pair's).

    >>> pool = Pool(texts=np.eye(2), images=np.eye(2), pairs=np.array([[0, 0], [1, 1]]), documents=np.arange(2))
    >>> ranks, documents = direction_ranks(pool, Direction.IMAGE_TO_TEXT)
    >>> ranks.realistic.tolist(), documents.tolist()
    ([1.0, 1.0], [0, 1])
    """
    queries, candidates, pairs = pool.sides(direction)
    wanted, first, numbers = np.unique(pairs[:, 0], return_index=True, return_inverse=True)
    renumbered = np.stack([numbers.ravel(), pairs[:, 1]], axis=1)
    return query_ranks(queries[wanted], candidates, renumbered, adjust=adjust), pool.documents[first]


def count_ranked(similarities: Floats, are_partners: Bool) -> Int64:
    """Return 3 x Q numbers of candidates: others above the best partner, others and partners equal to it.

    >>> count_ranked(np.array([[0.9, 0.5, 0.5]]), np.array([[False, True, False]])).ravel().tolist()
    [1, 1, 1]
    """
    best = np.where(are_partners, similarities, -np.inf).max(axis=1, keepdims=True)
    equal = similarities == best
    sets = (similarities > best) & ~are_partners, equal & ~are_partners, equal & are_partners
    return np.stack([each.sum(axis=1) for each in sets])


@lru_cache(maxsize=256)
def _first_partner(others: int, partners: int) -> Float64:
    """Return the probabilities that 0, 1, ... `others` stand before the first partner in a random order."""
    before = np.arange(others + 1)
    left = others + partners - before
    no_partner_yet = np.concatenate([[1.0], np.cumprod((others - before[:-1]) / left[:-1])])
    return no_partner_yet * partners / left


def _recall_within(cutoff: int, above: Int64, others: Int64, partners: Int64) -> Float64:
    """Return the probability that one of the tied partners is among the first `cutoff` candidates."""
    missed = np.ones(len(above))
    for taken in range(cutoff):
        left, all_left = others - taken, others + partners - taken
        factor = np.where(left > 0, left / np.maximum(all_left, 1), 0.0)
        missed *= np.where(taken < cutoff - above, factor, 1.0)
    return 1 - missed


def _whole(pool: Pool, direction: Direction, adjust: Adjust | None) -> Iterator[Score]:
    ranks, documents = direction_ranks(pool, direction, adjust=adjust)
    units, candidates = _units(pool)[documents], len(pool.sides(direction)[1])
    group, n = f"{direction}, whole pool of {candidates}", len(documents)
    for metric, column in zip(RECALL, 100 * ranks.recall.T, strict=True):
        yield mean_interval(column, units).score(metric, n=n, group=group)
    median = median_interval(ranks.realistic, units, least=1, most=candidates)
    yield median.score(MEDIAN_RANK, n=n, group=group, unit=RANK_UNIT)


def _units(pool: Pool) -> Int64:
    """Return a number for each document of a pool by its own number; documents that share a text or an image have one.

    >>> pairs = np.array([[0, 0], [1, 0], [2, 1]])
    >>> _units(Pool(texts=np.eye(3), images=np.eye(2), pairs=pairs, documents=np.arange(3))).tolist()
    [0, 0, 1]
    """
    items = np.concatenate([pool.pairs[:, 0], len(pool.texts) + pool.pairs[:, 1]])
    documents = np.tile(pool.documents, 2)
    size = len(pool.texts) + len(pool.images) + int(documents.max()) + 1
    first = size - int(documents.max()) - 1
    graph = coo_array((np.ones(len(items)), (first + documents, items)), shape=(size, size))
    numbers = scipy.sparse.csgraph.connected_components(graph, directed=False)[1]
    return np.asarray(np.unique(numbers[first:], return_inverse=True)[1])


def _sampled(drawn: list[Pool], direction: Direction, adjust: Adjust | None) -> Iterator[Score]:
    rows, queries = [], []
    for pool in drawn:
        ranks, _ = direction_ranks(pool, direction, adjust=adjust)
        rows.append([*(100 * ranks.recall.mean(axis=0)), np.median(ranks.realistic)])
        queries.append(len(ranks.realistic))
    candidates = np.mean([len(pool.sides(direction)[1]) for pool in drawn])
    group, n = f"{direction}, {len(drawn)} samples of {candidates:.0f}", round(float(np.mean(queries)))
    for metric, column in zip((*RECALL, MEDIAN_RANK), np.array(rows).T, strict=True):
        unit = RANK_UNIT if metric == MEDIAN_RANK else "percent"
        deviation = float(column.std(ddof=1)) if len(column) > 1 else 0.0
        yield Score(metric, float(column.mean()), n=n, group=group, deviation=deviation, unit=unit)


def _samples(pool: Pool, size: int, samples: int) -> Iterator[Pool]:
    for number in range(samples):
        rows = np.sort(stream("retrieval", 0, number).choice(len(pool.pairs), size=size, replace=False))
        yield _restricted(pool, rows)


def _restricted(pool: Pool, rows: Int64) -> Pool:
    """Return the pool of the texts and images of some pairs, with every pair among them."""
    texts, images = np.unique(pool.pairs[rows, 0]), np.unique(pool.pairs[rows, 1])
    inside = np.isin(pool.pairs[:, 0], texts) & np.isin(pool.pairs[:, 1], images)
    pairs = pool.pairs[inside]
    renumbered = np.stack([np.searchsorted(texts, pairs[:, 0]), np.searchsorted(images, pairs[:, 1])], axis=1)
    return Pool(texts=pool.texts[texts], images=pool.images[images], pairs=renumbered, documents=pool.documents[inside])


def linked_pool(
    documents: DocumentSet,
    embedded: Sequence[EmbeddedDocument],
    links: Sequence[Int64 | None],
    *,
    are_distinct: bool = True,
) -> Pool:
    """Return the linked texts and the linked images of all documents.

    Args:
        documents: whose `image_rows` say which images are the same.
        embedded: the unit vectors of each document.
        links: of each document, or None where unknown.
        are_distinct: an image in several documents is one candidate, the partner of all its texts; otherwise it is a
            candidate for each document it is in (the rows of a table of pairs).
    """
    queries: list[Floats] = []
    candidates: list[Floats] = []
    query_of: dict[tuple[int, int], int] = {}
    candidate_of: dict[tuple[int, int], int] = {}
    pairs: list[tuple[int, int, int]] = []
    for number, known in enumerate(links):
        if known is None or not len(known):
            continue
        rows = documents.image_rows[documents.images.rows(number)]
        for sentence, image in np.unique(known, axis=0).tolist():
            query, candidate = (number, sentence), (0, int(rows[image])) if are_distinct else (number, image)
            if query not in query_of:
                query_of[query] = len(queries)
                queries.append(embedded[number].texts[sentence])
            if candidate not in candidate_of:
                candidate_of[candidate] = len(candidates)
                candidates.append(embedded[number].images[image])
            pairs.append((query_of[query], candidate_of[candidate], number))
    table = np.array(pairs, np.int64).reshape(-1, 3)
    return Pool(
        texts=np.stack(queries) if queries else np.zeros((0, 0), np.float32),
        images=np.stack(candidates) if candidates else np.zeros((0, 0), np.float32),
        pairs=table[:, :2],
        documents=table[:, 2],
    )


def score_pairs(pool: Pool) -> DocumentScores | None:
    """Return how well the texts of each document find its images; None without a pair.

    >>> pool = Pool(texts=np.eye(2), images=np.eye(2), pairs=np.array([[0, 0], [1, 1]]), documents=np.arange(2))
    >>> score_pairs(pool).means()["reciprocal_rank"].value
    100.0
    """
    if not len(pool.pairs):
        return None
    ranks, documents = direction_ranks(pool, Direction.TEXT_TO_IMAGE)
    numbers, rows = np.unique(documents, return_inverse=True)
    candidates = len(pool.images)
    partners, kinds = np.unique(np.bincount(pool.pairs[:, 0]), return_inverse=True)
    chance = Ranks.of(np.stack([np.zeros_like(partners), candidates - partners, partners]))  # in a random order all tie
    return DocumentScores(
        kind=ScoreKind.PAIRS,
        documents=numbers,
        table=_by_document(_columns(ranks), rows),
        candidates=candidates,
        chance=PairScore(*_by_document(_columns(chance)[kinds], rows).mean(axis=0).tolist()),
    )


def _columns(ranks: Ranks) -> Float64:
    return np.asarray(100 * np.column_stack([ranks.recall, ranks.reciprocal]), np.float64)


def _by_document(columns: Float64, rows: Int64) -> Float64:
    """Return a row a document: the means of its queries' scores."""
    sums = np.zeros((int(rows.max()) + 1, columns.shape[1]))
    np.add.at(sums, rows, columns)
    return sums / np.bincount(rows)[:, None]
