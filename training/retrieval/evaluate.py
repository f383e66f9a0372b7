"""How well texts find their pictures in an archive, as MediaEval's NewsImages measures it, against what costs nothing.

A query is a text of a document with known links: each role by itself, and all texts together. The candidates are the
pictures of the split's documents; right are those that the text is linked to. Four systems rank them:

    search             the index's model
    bm25               words that a text shares with what is said of a picture (`words.py`)
    nearest sentence   cosine of a text and of what is said of a picture, by the pipeline's sentence encoder
    fusion             reciprocal ranks of search and bm25, as `search --rank-by fused`

What is said of a picture are its title and caption by its file or its archive, never the captions that articles have
for it: those are the queries. Where nothing is said of any picture, the last three have no numbers. Ranks among equal
scores are expected ones; intervals are over documents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from schemas.documents import Role, Split
from schemas.errors import UsageError
from schemas.evaluation import Score
from schemas.lake import Lake
from schemas.manifest import read_manifest
from training.data.documents import DocumentSet
from training.data.lake import Columns, read_split
from training.data.ragged import Bool, Float64, Floats, Int64
from training.evaluation.evaluate import absent
from training.metrics.bootstrap import pooled_interval
from training.metrics.retrieval import NUMBERS_AT_ONCE, Ranks, count_ranked
from training.retrieval.index import Index
from training.retrieval.queries import Query, QueryReader, Reader
from training.retrieval.search import RRF
from training.retrieval.vectors import RERANKED
from training.retrieval.words import Words

CUTOFFS = (5, 10, 50, 100)  # MediaEval NewsImages
METRICS = ("reciprocal_rank", *(f"recall_at_{cutoff}" for cutoff in CUTOFFS))
SEARCH, BM25, NEAREST, FUSION = "search", "bm25", "nearest sentence", "fusion"
ALL_TEXTS = "all"
NOTHING_SAID = "nothing is said of any picture: no title, no caption"
UNKNOWN = -2.0  # below every cosine: a picture of which nothing is said
Encode = Callable[[Sequence[str]], Floats]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A text whose pictures are known.

    Attributes:
        id: document and role, for run files.
        document: number of the document.
        role: of the text, or `all`.
        language: of it.
        query: as it is searched for.
        right: candidates that it is linked to.
    """

    id: str
    document: int
    role: str
    language: str
    query: Query
    right: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchEvaluation:
    """What came of an evaluation: the queries, the candidates, scores, and the first ranks of the model.

    Attributes:
        rows: every number.
        queries: what was asked.
        images: content hashes of the candidates.
        run: of each query, the first candidates by the model and their similarities.
    """

    rows: tuple[Score, ...]
    queries: tuple[Asked, ...]
    images: tuple[str, ...]
    run: tuple[tuple[Int64, Floats], ...]

    def write_trec(self, folder: Path, *, tag: str) -> None:
        """Write `run.txt` and `qrels.txt`, which trec_eval and ranx read."""
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "run.txt").open("w", encoding="utf-8") as lines:
            for asked, (candidates, scores) in zip(self.queries, self.run, strict=True):
                for rank, (candidate, score) in enumerate(zip(candidates, scores, strict=True), start=1):
                    lines.write(f"{asked.id} Q0 {self.images[candidate]} {rank} {score:.6f} {tag}\n")
        with (folder / "qrels.txt").open("w", encoding="utf-8") as lines:
            lines.writelines(f"{asked.id} 0 {self.images[each]} 1\n" for asked in self.queries for each in asked.right)


def evaluate_search(
    index: Index, lake: Lake, split: Split | str, *, reader: Reader, encode: Encode | None = None
) -> SearchEvaluation:
    """Return how well the texts of a split of the index's data set find their pictures.

    Args:
        index: that is searched.
        lake: holds its data set.
        split: whose documents ask.
        reader: gives what the model reads beside words.
        encode: N texts -> N x t unit vectors of a sentence encoder; None: there is none.

    Raises:
        NotFoundError: the data set version or split is not there.
        UsageError: no document of it has known links.
    """
    manifest, folder = read_manifest(lake, index.manifest.dataset)
    none = Columns(images=None, sentences=None, links=True)
    documents = read_split(manifest, folder, split, none)
    queries = tuple(_queries(documents))
    if not queries:
        raise UsageError(f"{index.manifest.dataset}, split {split}: expected documents with known links, found none")
    rows = [row for row in index.records.rows_of(documents.image_hashes) if row is not None]
    if len(rows) != len(documents.image_hashes):
        missing = len(documents.image_hashes) - len(rows)
        raise UsageError(f"{missing} images of split {split} are not in the index; make it anew")
    systems = _Systems(index, np.array(rows, np.int64), reader, encode)
    counted: dict[str, list[Int64]] = {}
    run: list[tuple[Int64, Floats]] = []
    block = max(1, NUMBERS_AT_ONCE // len(rows))
    for start in range(0, len(queries), block):
        some = queries[start : start + block]
        for system, scores in systems.scores([asked.query for asked in some]).items():
            counted.setdefault(system, []).append(count_ranked(scores, _right(some, len(rows))))
            if system == SEARCH:
                order = np.argsort(-scores, axis=1, kind="stable")[:, : CUTOFFS[-1]]
                run += [(own, row[own].astype(np.float32)) for own, row in zip(order, scores, strict=True)]
    ranks = {}
    for system, parts in counted.items():
        above, others, partners = np.concatenate(parts, axis=1)
        ranks[system] = Ranks.of(above, others, partners, CUTOFFS)
    missing_systems = [absent(name, NOTHING_SAID) for name in (BM25, NEAREST, FUSION) if name not in ranks]
    return SearchEvaluation(
        rows=(*_scores(queries, ranks, len(rows)), *missing_systems),
        queries=queries,
        images=documents.image_hashes,
        run=tuple(run),
    )


def _queries(documents: DocumentSet) -> Iterator[Asked]:
    """Yield the queries of documents with links: sentences one by one, texts of other roles by role and together."""
    for number, links in enumerate(documents.links or ()):
        if links is None or not len(links):
            continue
        rows = documents.sentences.rows(number)
        texts, roles = documents.texts[rows], (documents.roles or ())[rows]
        shown = documents.image_rows[documents.images.rows(number)]
        language = (documents.languages or ())[number]
        parts: dict[str, list[int]] = {}
        for sentence, role in enumerate(roles):
            parts.setdefault(str(role) if role != Role.SENTENCE else f"{role}#{sentence}", []).append(sentence)
        by_role = [role for role in parts if "#" not in role]
        if len(by_role) > 1:
            parts[ALL_TEXTS] = [sentence for role in by_role for sentence in parts[role]]
        for name, sentences in parts.items():
            right = sorted({int(shown[image]) for sentence, image in links.tolist() if sentence in sentences})
            if right:
                asked: dict[str, list[str]] = {}
                for sentence in sentences:
                    asked.setdefault(roles[sentence], []).append(texts[sentence])
                yield Asked(
                    id=f"{documents.ids[number]}/{name}".replace(" ", "_"),
                    document=number,
                    role=name.partition("#")[0],
                    language=language,
                    query=Query(texts={role: " ".join(own) for role, own in asked.items()}, language=language),
                    right=tuple(right),
                )


def _right(queries: Sequence[Asked], candidates: int) -> Bool:
    """Return Q x C: which candidates are right."""
    found = np.zeros((len(queries), candidates), dtype=bool)
    for row, asked in enumerate(queries):
        found[row, list(asked.right)] = True
    return found


class _Systems:
    """What ranks the same C candidates for the same queries."""

    def __init__(self, index: Index, rows: Int64, reader: Reader, encode: Encode | None) -> None:
        order = np.argsort(rows)
        self._queries = QueryReader(index.model, reader)
        self._images = index.vectors.take(rows[order])[np.argsort(order)]
        pictures = index.records.pictures(rows.tolist())
        self._words = Words.of(picture.said for picture in pictures)
        self._said = [" ".join(filter(None, (each.metadata.title, each.metadata.caption))) for each in pictures]
        self._encode = encode
        self._sentences: Floats | None = None
        if encode is not None and any(self._said):
            self._sentences = encode(self._said)

    def scores(self, queries: Sequence[Query]) -> dict[str, Float64]:
        """Return Q x C scores of each system, the higher the better."""
        found = {SEARCH: (self._queries.vectors(queries) @ self._images.T).astype(np.float64)}
        if not any(self._said):
            return found
        found[BM25] = np.stack([self._lexical(query.text) for query in queries])
        if self._encode is not None and self._sentences is not None:
            cosines = self._encode([query.text for query in queries]) @ self._sentences.T
            found[NEAREST] = np.where([bool(text) for text in self._said], cosines, UNKNOWN).astype(np.float64)
        found[FUSION] = reciprocal_ranks(found[SEARCH]) + reciprocal_ranks(found[BM25], above=0.0)
        return found

    def _lexical(self, text: str) -> Float64:
        """Return C scores by BM25; 0 where no telling word is shared."""
        found = np.zeros(len(self._said))
        matches = self._words.rank(text, len(found))
        found[matches.rows] = matches.scores
        return found


def reciprocal_ranks(scores: Float64, above: float = -np.inf) -> Float64:
    """Return Q x C of 1 / (RRF + rank), ranks from 1, equal scores sharing the first; 0 beyond RERANKED or not `above`.

    With it two rankings are added as `search` fuses them.
    """
    order = np.sort(-scores, axis=1)
    ranks = np.stack([1 + np.searchsorted(own, -row) for own, row in zip(order, scores, strict=True)])
    return np.where((scores > above) & (ranks <= RERANKED), 1 / (RRF + ranks), 0.0)


def _scores(queries: Sequence[Asked], ranks: Mapping[str, Ranks], candidates: int) -> Iterator[Score]:
    """Yield the scores of each system, by role, and by role and language where there are several."""
    documents = np.array([asked.document for asked in queries])
    languages = sorted({asked.language for asked in queries})
    groups: dict[str, list[int]] = {}
    for number, asked in enumerate(queries):
        groups.setdefault(f"role={asked.role}", []).append(number)
        if len(languages) > 1:
            groups.setdefault(f"role={asked.role} language={asked.language}", []).append(number)
    for system, own in ranks.items():
        table = 100 * np.column_stack([own.reciprocal, own.found])
        for group, members in groups.items():
            _, rows = np.unique(documents[members], return_inverse=True)
            counts = np.bincount(rows).astype(np.float64)
            for metric, column in zip(METRICS, table[members].T, strict=True):
                interval = pooled_interval(np.bincount(rows, weights=column).astype(np.float64), counts)
                name = f"{group}, whole pool of {candidates}"
                yield interval.score(metric, n=len(members), group=name, measure=system)
