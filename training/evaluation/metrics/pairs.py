"""How well each document's texts find their images among those of all documents: what pairs are judged by.

A document of one text and one image has no AUC: its only pair is linked. It has a rank (Alikhani 2022), and so has any
document with links. Scores are means over a document's linked texts, in percent, so that two models can be compared
document by document; retrieval as the papers report it is `retrieval.py`'s.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.data.documents import DocumentSet
from training.evaluation.metrics.retrieval import Direction, Float64, Int64, Pool, Ranks, Vectors, direction_ranks
from training.evaluation.metrics.scores import DocumentScores, PairScore, ScoreKind


def linked_pool(
    documents: DocumentSet,
    texts: Sequence[Vectors],
    images: Sequence[Vectors],
    links: Sequence[Int64 | None],
    *,
    are_distinct: bool = True,
) -> Pool:
    """Return the linked texts and the linked images of all documents.

    Args:
        documents: whose `image_rows` say which images are the same.
        texts: n x d unit vectors of each document.
        images: m x d unit vectors of each document.
        links: of each document, or None where unknown.
        are_distinct: an image in several documents is one candidate, the partner of all its texts; otherwise it is a
            candidate for each document it is in (the rows of a table of pairs).
    """
    queries: list[Vectors] = []
    candidates: list[Vectors] = []
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
                queries.append(texts[number][sentence])
            if candidate not in candidate_of:
                candidate_of[candidate] = len(candidates)
                candidates.append(images[number][image])
            pairs.append((query_of[query], candidate_of[candidate], number))
    table = np.array(pairs, np.int64).reshape(-1, 3)
    return Pool(
        texts=np.stack(queries) if queries else np.zeros((0, 0), np.float32),
        images=np.stack(candidates) if candidates else np.zeros((0, 0), np.float32),
        pairs=table[:, :2],
        documents=table[:, 2],
    )


def score_pairs(pool: Pool) -> DocumentScores | None:
    """Return how well the texts of each document find its images; None without a pair."""
    if not len(pool.pairs):
        return None
    ranks, documents = direction_ranks(pool, Direction.TEXT_TO_IMAGE)
    numbers, rows = np.unique(documents, return_inverse=True)
    candidates = len(pool.images)
    partners, kinds = np.unique(np.bincount(pool.pairs[:, 0]), return_inverse=True)
    chance = Ranks.of(np.zeros_like(partners), candidates - partners, partners)  # in a random order everything ties
    return DocumentScores(
        kind=ScoreKind.PAIRS,
        documents=tuple(numbers.tolist()),
        scores=tuple(PairScore(*row) for row in _by_document(_columns(ranks), rows).tolist()),
        candidates=candidates,
        chance=PairScore(*_by_document(_columns(chance)[kinds], rows).mean(axis=0).tolist()),
    )


def _columns(ranks: Ranks) -> Float64:
    return np.asarray(100 * np.column_stack([ranks.found, ranks.reciprocal]), np.float64)


def _by_document(columns: Float64, rows: Int64) -> Float64:
    """Return a row a document: the means of its queries' scores."""
    sums = np.zeros((int(rows.max()) + 1, columns.shape[1]))
    np.add.at(sums, rows, columns)
    return sums / np.bincount(rows)[:, None]
