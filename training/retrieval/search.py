"""Ranks the pictures of an index for a query: by similarity, by the words they share, or by both.

    filters -> rows -> nearest by vector ----> refined by relations --> ranks --+
                 `---> BM25 over metadata -------------------------------> ranks --+--> reciprocal rank fusion

A query's vector is that of its text. A picture given as a query, pictures that are liked and those that are not move it
as Rocchio did (Manning et al. 2008, 9.1.1): 1 x the text, 0.75 x the mean of the liked, -0.15 x that of the others. The
probability of a picture is the calibration's for a predicted link of that similarity: that the picture would be
linked rightly in a document, which is more than an editor asks of one in an archive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np

from schemas.errors import NotFoundError, UsageError
from training.data.ragged import Float32, Float64, Int64
from training.metrics.relations import RefineConfig, RelationPredictor
from training.retrieval.filters import NO_FILTERS, Filters
from training.retrieval.index import Index
from training.retrieval.queries import Query, QueryReader, Reader, SourceText, read_words
from training.retrieval.records import Picture
from training.retrieval.vectors import RERANKED, Nearest

LIKED, UNLIKED = 0.75, 0.15
RRF = 60  # Cormack et al. 2009: "k = 60 was near-optimal"
EXPECTED_OF = 10  # first pictures whose relations say what is to be expected
MAX_TOP = RERANKED


class RankBy(StrEnum):
    """What puts pictures in order."""

    VISUAL = "visual"
    LEXICAL = "lexical"
    FUSED = "fused"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedImage:
    """A picture that was found.

    Attributes:
        rank: from 1.
        picture: what is known of it.
        similarity: cosine with the query, -1 to 1.
        probability: that a link of this similarity is true; None without a calibration.
        score: what it is ranked by: the similarity, refined or not, BM25, or the sum of reciprocal ranks.
        visual_rank: by similarity, among the first RERANKED; None: beyond.
        lexical_rank: by words; None: it shares no telling word, or is beyond.
        relations: those that a coherence model predicts of the text and the picture, with their probabilities.
    """

    rank: int
    picture: Picture
    similarity: float
    score: float
    probability: float | None = None
    visual_rank: int | None = None
    lexical_rank: int | None = None
    relations: tuple[tuple[str, float], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """What came of a query.

    Attributes:
        images: ranked.
        sources: the texts as the model read them.
        searched: pictures that the filters left.
        expected: relations of a picture that fits, the likeliest first, each with its mean probability over the first
            pictures; empty: the model predicts none.
        is_refined: whether relations changed the similarities that pictures are ranked by.
    """

    images: tuple[RankedImage, ...]
    sources: tuple[SourceText, ...]
    searched: int
    expected: tuple[tuple[str, float], ...] = ()
    is_refined: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON-ready values."""
        return asdict(self)


def search(
    index: Index,
    query: Query,
    *,
    filters: Filters = NO_FILTERS,
    top: int = 20,
    rank_by: RankBy = RankBy.VISUAL,
    refine: RefineConfig | None = None,
    reader: Reader = read_words,
) -> SearchResult:
    """Return the first `top` pictures for a query.

    Args:
        index: that is searched.
        query: text, picture, pictures that are liked or not.
        filters: which pictures take part at all.
        top: 1 to MAX_TOP.
        rank_by: similarity, words, or both.
        refine: by which refined similarities pictures are ranked (Alikhani 2022), of models with relations.
        reader: gives what the model reads beside words.

    Raises:
        UsageError: the query has nothing the model reads, or a setting is out of range.
        NotFoundError: a picture that is liked or not is not in the index.
    """
    if not 1 <= top <= MAX_TOP:
        raise UsageError(f"--top {top}: expected 1 to {MAX_TOP}")
    if rank_by is not RankBy.VISUAL and not query.text:
        raise UsageError(f"ranking by {rank_by}: expected a text, found none")
    queries = QueryReader(index.model, reader)
    text, sources = queries.read(query) if query.given else (None, [])
    vector = query_vector(index, query, queries, text)
    selected = index.records.select(filters)
    visual = index.vectors.nearest(vector, RERANKED, selected)
    is_refined = False
    scores: Float64 = visual.similarities.astype(np.float64)
    if refine is not None and len(visual.rows):
        scores = _refined(index, refine, visual, vector)
        is_refined = bool((scores != visual.similarities).any())
        order = np.argsort(-scores, kind="stable")
        visual, scores = Nearest(visual.rows[order], visual.similarities[order]), scores[order]
    lexical = index.words.rank(query.text, RERANKED, selected)
    rows, scores = _ranked(rank_by, visual.rows, scores, lexical.rows, lexical.scores)
    ranking = _Ranking(rows[:top], scores[:top], _ranks(visual.rows), _ranks(lexical.rows))
    images = _images(index, vector, text, ranking)
    return SearchResult(
        images=tuple(images),
        sources=tuple(sources),
        searched=index.records.count if selected is None else len(selected),
        expected=_expected(images),
        is_refined=is_refined,
    )


def query_vector(index: Index, query: Query, queries: QueryReader, text: Float32 | None) -> Float32:
    """Return the d numbers that pictures are compared with.

    Raises:
        UsageError: the query is empty, or its parts cancel out.
        NotFoundError: a picture that is named is not in the index.
    """
    parts: list[Float32] = [] if text is None else [text]
    parts += [] if query.picture is None else [queries.picture(query.picture)]
    if query.like:
        liked: Float32 = _named(index, query.like).mean(axis=0)
        parts.append(liked * LIKED if parts else liked)
    if query.unlike:
        parts.append(-UNLIKED * _named(index, query.unlike).mean(axis=0))
    if not parts:
        raise UsageError("expected a text, a picture, or a picture of the index that is liked; found none")
    total: Float32 = np.sum(parts, axis=0, dtype=np.float32)
    length = float(np.linalg.norm(total))
    if not np.isfinite(length) or length == 0:
        raise UsageError("the parts of the query cancel out")
    is_unit = len(parts) == 1 and text is not None
    return total if is_unit else np.asarray(total / length, np.float32)


def _named(index: Index, images: Sequence[str]) -> Float32:
    rows = index.records.rows_of(images)
    for image, row in zip(images, rows, strict=True):
        if row is None:
            raise NotFoundError(f"image {image[:16]}: not in this index")
    return index.vectors.take(np.sort(np.array(rows, np.int64)))


def _refined(index: Index, refine: RefineConfig, visual: Nearest, vector: Float32) -> Float64:
    """Return the refined similarities of the nearest pictures."""
    refinement = refine.of(RelationPredictor.of(index.model), index.model.card.data.dataset)
    images = vectors_of(index, visual.rows)
    refined: Float64 = refinement(visual.similarities[None], vector[None], images)[0]
    return refined


def vectors_of(index: Index, rows: Int64) -> Float32:
    """Return the vectors of rows in any order."""
    order = np.argsort(rows)
    return index.vectors.take(rows[order])[np.argsort(order)]


def fused_scores(rankings: Sequence[Int64]) -> tuple[Int64, Float64]:
    """Return the rows of several rankings, the best first, and their sums of 1 / (RRF + rank) (Cormack et al. 2009)."""
    rows = np.unique(np.concatenate([*rankings, np.zeros(0, np.int64)]))
    sums = np.zeros(len(rows))
    for ranking in rankings:
        sums[np.searchsorted(rows, ranking)] += 1 / (RRF + 1.0 + np.arange(len(ranking)))
    order = np.argsort(-sums, kind="stable")
    return rows[order], sums[order]


def _ranked(
    rank_by: RankBy, visual: Int64, similarities: Float64, lexical: Int64, scores: Float64
) -> tuple[Int64, Float64]:
    if rank_by is RankBy.VISUAL:
        return visual, similarities
    return (lexical, scores) if rank_by is RankBy.LEXICAL else fused_scores([visual, lexical])


def _ranks(rows: Int64) -> dict[int, int]:
    return {int(row): rank for rank, row in enumerate(rows, start=1)}


@dataclass(frozen=True, slots=True)
class _Ranking:
    rows: Int64
    scores: Float64
    visual: dict[int, int]
    lexical: dict[int, int]


def _images(index: Index, vector: Float32, text: Float32 | None, ranking: _Ranking) -> list[RankedImage]:
    """Return what is known of the pictures of a ranking."""
    vectors = vectors_of(index, ranking.rows)
    similarities = vectors @ vector
    probabilities: Sequence[float | None] = [None] * len(similarities)
    if index.calibration is not None:
        probabilities = index.calibration.probability(similarities).tolist()
    found = [
        RankedImage(
            rank=rank,
            picture=picture,
            similarity=float(similarity),
            score=float(score),
            probability=probability,
            visual_rank=ranking.visual.get(int(row)),
            lexical_rank=ranking.lexical.get(int(row)),
        )
        for rank, (row, picture, similarity, score, probability) in enumerate(
            zip(
                ranking.rows,
                index.records.pictures(ranking.rows.tolist()),
                similarities,
                ranking.scores,
                probabilities,
                strict=True,
            ),
            start=1,
        )
    ]
    if index.model.relations is None or text is None or not found:
        return found
    predictor = RelationPredictor.of(index.model)
    predicted = predictor.crossed(text[None], vectors)[0].tolist()
    return [
        replace(each, relations=tuple(zip(predictor.names, row, strict=True)))
        for each, row in zip(found, predicted, strict=True)
    ]


def _expected(images: Sequence[RankedImage]) -> tuple[tuple[str, float], ...]:
    """Return each relation with its mean probability over the first pictures, the likeliest first."""
    rows = [dict(each.relations) for each in images[:EXPECTED_OF] if each.relations]
    if not rows:
        return ()
    means = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    return tuple(sorted(means.items(), key=lambda item: -item[1]))
