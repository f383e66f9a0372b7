"""How well each document's texts find their images among those of all documents: what pairs are judged by.

A document of one text and one image has no AUC: its only pair is linked. It has a rank (Alikhani 2022), and so has any
document with links. Scores are means over a document's linked texts, in percent, so that two models can be compared
document by document; retrieval as the papers report it is `retrieval.py`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from training.data.documents import DocumentSet
from training.evaluation.bootstrap import Interval, mean_interval
from training.evaluation.retrieval import (
    Direction,
    Pool,
    QueryRanks,
    Vectors,
    direction_ranks,
)

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PairScore:
    """Scores of one document, 0 to 100: texts with an image among the first 1, 5, 10, and 100 / rank."""

    recall_at_1: float
    recall_at_5: float
    recall_at_10: float
    reciprocal_rank: float


@dataclass(frozen=True, slots=True)
class PairMeans:
    """Means over documents in percent, each with its 95% bootstrap interval."""

    recall_at_1: Interval
    recall_at_5: Interval
    recall_at_10: Interval
    reciprocal_rank: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class PairScores:
    """Scores of the documents with a link.

    Attributes:
        documents: positions (in what was given) of those documents.
        scores: of each.
        candidates: how many images a text chooses from.
        chance: what a random order of the candidates would score, on the same documents.
    """

    documents: tuple[int, ...]
    scores: tuple[PairScore, ...]
    candidates: int
    chance: PairScore

    def means(self) -> PairMeans:
        """Return the mean scores with their intervals."""
        return PairMeans(*(mean_interval(column) for column in self.table().T))

    def table(self) -> Float64:
        """Return a row a document, a column a score."""
        names = [item.name for item in fields(PairScore)]
        return np.array([[getattr(score, name) for name in names] for score in self.scores], np.float64)


def linked_pool(
    documents: DocumentSet, texts: Sequence[Vectors], images: Sequence[Vectors], links: Sequence[Int64 | None]
) -> Pool:
    """Return the linked texts and the different linked images of all documents.

    Args:
        documents: whose `image_rows` say which images are the same.
        texts: n x d unit vectors of each document.
        images: m x d unit vectors of each document.
        links: of each document, or None where unknown.
    """
    queries: list[Vectors] = []
    candidates: dict[int, Vectors] = {}
    places: dict[int, int] = {}
    pairs: list[tuple[int, int]] = []
    numbers: list[int] = []
    for number, known in enumerate(links):
        if known is None or not len(known):
            continue
        rows = documents.image_rows[documents.images.rows(number)]
        own: dict[int, int] = {}
        for sentence, image in np.unique(known, axis=0).tolist():
            if sentence not in own:
                own[sentence] = len(queries)
                queries.append(texts[number][sentence])
            bank = int(rows[image])
            candidates.setdefault(bank, images[number][image])
            pairs.append((own[sentence], places.setdefault(bank, len(places))))
            numbers.append(number)
    return Pool(
        texts=np.stack(queries) if queries else np.zeros((0, 0), np.float32),
        images=np.stack(list(candidates.values())) if candidates else np.zeros((0, 0), np.float32),
        pairs=np.array(pairs, np.int64).reshape(-1, 2),
        documents=np.array(numbers, np.int64),
    )


def score_pairs(pool: Pool) -> PairScores | None:
    """Return how well the texts of each document find its images; None without a pair."""
    if not len(pool.pairs):
        return None
    ranks, documents = direction_ranks(pool, Direction.TEXT_TO_IMAGE)
    numbers, places = np.unique(documents, return_inverse=True)
    partners = np.bincount(pool.pairs[:, 0])
    candidates = len(pool.images)
    return PairScores(
        documents=tuple(numbers.tolist()),
        scores=tuple(PairScore(*row) for row in _by_document(ranks, places).tolist()),
        candidates=candidates,
        chance=PairScore(*_by_document(_chance(partners, candidates), places).mean(axis=0).tolist()),
    )


def _chance(partners: Int64, candidates: int) -> QueryRanks:
    """Return the expected ranks in a random order, of queries with so many partners each."""
    kinds, places = np.unique(partners, return_inverse=True)
    tied = QueryRanks.of(np.zeros_like(kinds), candidates - kinds, kinds)
    return QueryRanks(tied.ranks[places], tied.found[places], tied.reciprocal[places])


def _by_document(ranks: QueryRanks, places: Int64) -> Float64:
    """Return a row a document: the means of its queries' scores, percent."""
    columns = 100 * np.column_stack([ranks.found, ranks.reciprocal])
    sums = np.zeros((int(places.max()) + 1, columns.shape[1]))
    np.add.at(sums, places, columns)
    return sums / np.bincount(places)[:, None]
