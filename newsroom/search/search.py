"""Ranks the pictures of an index for a query: by similarity, by the words they share, or by both.

    filters -> rows -> nearest by vector ----> refined by relations --> ranks --+
                 `---> BM25 over metadata -------------------------------> ranks --+--> reciprocal rank fusion

A query's vector is that of its text. A picture given as a query, pictures that are liked and those that are not move it
as Rocchio did (Manning et al. 2008, 9.1.1): 1 x the text, 0.75 x the mean of the liked, -0.15 x that of the others.
Probabilities are the index's own (`newsroom.archive.index.Confidence`): of a text that is searched for by similarity
alone, in all pictures. Any other search has none.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from newsroom.archive.filters import Filters
from newsroom.archive.index import FIRST, Index, Strength
from newsroom.archive.records import MAX_TITLE, Picture
from newsroom.archive.vectors import RERANKED, Ranked, fused
from newsroom.search.queries import Query, QueryReader, Reader, SourceText, read_words
from schemas.messages import UsageError, aligned
from training.data.ragged import Float32, Float64
from training.metrics.relations import RefineConfig, RelationPredictor

LIKED, UNLIKED = 0.75, 0.15
EXPECTED_OF = 10  # first pictures, whose relations are averaged
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
        probability: that the picture is right, of the first ten; None where the index knows none for such a search.
        strength: how often known texts had the right picture where their nearest was as near as this one; None: the
            query is no text alone, pictures are not ranked by similarity, or the index knows no such texts.
        score: what it is ranked by: the similarity, refined or not, BM25, or the sum of reciprocal ranks.
        visual_rank: by similarity, among the first RERANKED; None: beyond.
        lexical_rank: by words; None: it shares no selective word, or is beyond.
        relations: those that a coherence model predicts of the text and the picture, with their probabilities.
    """

    rank: int
    picture: Picture
    similarity: float
    score: float
    probability: float | None = None
    strength: Strength | None = None
    visual_rank: int | None = None
    lexical_rank: int | None = None
    relations: tuple[tuple[str, float], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The pictures for a query.

    Attributes:
        images: ranked.
        sources: the texts as the model read them.
        searched: pictures that the filters left.
        rank_by: what they are ranked by.
        expected: relations of a picture that fits, the likeliest first, each with its mean probability over the first
            pictures; empty: the model predicts none.
        is_refined: whether relations changed the similarities that pictures are ranked by.
        first_ten: probability that one of the first ten pictures is right; None likewise.
    """

    images: tuple[RankedImage, ...]
    sources: tuple[SourceText, ...]
    searched: int
    rank_by: RankBy
    expected: tuple[tuple[str, float], ...] = ()
    is_refined: bool = False
    first_ten: float | None = None

    def lines(self) -> list[str]:
        """Return the ranking as a table, and what the model read and expects."""
        head = ("rank", "cosine", "probability", "words", "date", "image", "shown")
        rows = [
            (
                str(each.rank),
                f"{each.similarity:.3f}",
                "" if each.probability is None else f"{each.probability:.2f}",
                str(each.lexical_rank or ""),
                each.picture.metadata.date or "",
                each.picture.image[:16],
                (each.picture.title or each.picture.source or "")[:MAX_TITLE],
            )
            for each in self.images
        ]
        expected = [f"{name} {probability:.2f}" for name, probability in self.expected]
        sure = [] if self.first_ten is None else [f"one of the first {FIRST} is right with {self.first_ten:.0%}"]
        return [
            f"{len(self.images)} of {self.searched} images, ranked by: {self.rank_by}",
            *sure,
            *(aligned([head, *rows]) if rows else []),
            *([f"expect: {', '.join(expected)}{', refined by them' * self.is_refined}"] if expected else []),
        ]


def search(
    index: Index,
    query: Query,
    *,
    filters: Filters = (),
    top: int = 20,
    rank_by: RankBy | None = None,
    refine: RefineConfig | None = None,
    reader: Reader = read_words,
    queries: QueryReader | None = None,
    known: tuple[Float32 | None, Sequence[SourceText]] | None = None,
) -> SearchResult:
    """Return the first `top` pictures for a query.

    Args:
        index: that is searched.
        query: text, picture, pictures that are liked or not.
        filters: which pictures take part at all.
        top: 1 to MAX_TOP.
        rank_by: similarity, words, or both; None: what finds validation texts' pictures best in this index, and
            similarity where there is no text.
        refine: refines similarities by relations (Alikhani 2022), of models with relations; None: as they are.
        reader: gives what the model reads beside words.
        queries: reads queries in place of a new `QueryReader`.
        known: the vector of the query's texts (None: it has none) and the texts as they were read, where that is known.

    Raises:
        UsageError: the query has nothing the model reads, or a setting is out of range.
        NotFoundError: a picture that is liked or not is not in the index.
    """
    if not 1 <= top <= MAX_TOP:
        raise UsageError(f"--top {top}: expected 1 to {MAX_TOP}")
    if rank_by is None:
        rank_by = RankBy(index.manifest.rank_by) if query.text else RankBy.VISUAL
    if rank_by is not RankBy.VISUAL and not query.text:
        raise UsageError(f"ranking by {rank_by}: expected a text, found none")
    queries = queries or QueryReader(index.model, reader)
    text, sources = known or (queries.read(query) if query.given else (None, ()))
    vector = query_vector(index, query, queries, text)
    selected = index.records.select(filters)
    visual = index.vectors.nearest(vector, RERANKED, selected)
    refined = visual if refine is None or not len(visual.rows) else _refined(index, refine, visual, vector)
    lexical = index.records.words.rank(query.text, RERANKED, filters)
    rankings = {RankBy.VISUAL: refined, RankBy.LEXICAL: lexical, RankBy.FUSED: fused(refined, lexical)}
    images = _images(index, vector, text, rankings[rank_by], top, visual=refined, lexical=lexical)
    confidence = index.confidence if rank_by is RankBy.VISUAL and query.is_text_alone else None
    if confidence is not None:
        strengths = confidence.strengths(np.array([each.similarity for each in images]))
        images = [replace(image, strength=word) for image, word in zip(images, strengths, strict=True)]
    first_ten = None
    if confidence is not None and selected is None and refined is visual:
        first_ten = float(confidence.any_of_first.probability(visual.scores[:1])[0])
        shares = confidence.pictures.probability(np.array([each.similarity for each in images[:FIRST]])).tolist()
        first = [replace(image, probability=share) for image, share in zip(images, shares, strict=False)]
        images = [*first, *images[FIRST:]]
    return SearchResult(
        images=tuple(images),
        sources=tuple(sources),
        searched=index.records.count if selected is None else len(selected),
        rank_by=rank_by,
        expected=_expected(images),
        is_refined=refined is not visual,
        first_ten=first_ten,
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
        raise UsageError("the parts of the query cancel each other out; leave one of them out")
    is_unit = len(parts) == 1 and text is not None
    return total if is_unit else np.asarray(total / length, np.float32)


def _named(index: Index, images: Sequence[str]) -> Float32:
    return index.vectors.rows[index.records.rows_named(images)]


def _refined(index: Index, refine: RefineConfig, visual: Ranked, vector: Float32) -> Ranked:
    """Return the nearest pictures by their refined similarities; as they are where nothing is refined."""
    scores: Float64 = refine.of(index.model)(visual.scores[None], vector[None], index.vectors.rows[visual.rows])[0]
    if (scores == visual.scores).all():
        return visual
    order = np.argsort(-scores, kind="stable")
    return Ranked(visual.rows[order], scores[order])


def _ranks(ranking: Ranked) -> dict[int, int]:
    return {int(row): rank for rank, row in enumerate(ranking.rows, start=1)}


def _images(
    index: Index, vector: Float32, text: Float32 | None, ranking: Ranked, top: int, *, visual: Ranked, lexical: Ranked
) -> list[RankedImage]:
    """Return the first `top` pictures of a ranking, with their ranks by similarity and by words."""
    rows, visual_ranks, lexical_ranks = ranking.rows[:top], _ranks(visual), _ranks(lexical)
    vectors = index.vectors.rows[rows]
    similarities = (vectors @ vector).tolist()
    relations: Sequence[tuple[tuple[str, float], ...] | None] = [None] * len(rows)
    if index.model.relations is not None and text is not None and len(rows):
        predictor = RelationPredictor.of(index.model)
        predicted = predictor.crossed(text[None], vectors)[0].tolist()
        relations = [tuple(zip(predictor.names, each, strict=True)) for each in predicted]
    return [
        RankedImage(
            rank=number + 1,
            picture=picture,
            similarity=similarities[number],
            score=float(ranking.scores[number]),
            visual_rank=visual_ranks.get(int(rows[number])),
            lexical_rank=lexical_ranks.get(int(rows[number])),
            relations=relations[number],
        )
        for number, picture in enumerate(index.records.pictures(rows.tolist()))
    ]


def _expected(images: Sequence[RankedImage]) -> tuple[tuple[str, float], ...]:
    """Return each relation with its mean probability over the first pictures, the likeliest first."""
    rows = [dict(each.relations) for each in images[:EXPECTED_OF] if each.relations]
    if not rows:
        return ()
    means = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    return tuple(sorted(means.items(), key=lambda item: -item[1]))
