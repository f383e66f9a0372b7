"""How well texts find their pictures in an archive, as MediaEval's NewsImages measures it, against what costs nothing.

A query is a text of a document with known links: each role by itself, and all texts together. The candidates are the
pictures of the split's documents; relevant are those that the text is linked to. Four systems rank them:

    search             the index's model
    bm25               words that a text shares with the description of a picture (`words.py`)
    nearest sentence   cosine of a text and of the description of a picture, by the pipeline's sentence encoder
    fusion             reciprocal ranks of search and bm25, as `search --rank-by fused`

The description of a picture is what its file or its archive says of it, never the captions that articles have for it:
those are the queries. Where no picture has one, the last three have no numbers. Of a
large split the first shards are read, a random sample. Ranks among equal scores are expected ones; intervals are over
documents.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from newsroom.archive.filters import WORDS
from newsroom.archive.index import Index
from newsroom.archive.vectors import RERANKED, RRF
from newsroom.archive.words import Words
from newsroom.search.queries import Query, QueryReader, Reader
from schemas.console import aligned
from schemas.documents import Role, Split
from schemas.errors import UsageError
from schemas.lake import Lake
from schemas.manifest import read_manifest
from schemas.parts import sampled
from training.data.documents import DocumentSet
from training.data.lake import Columns, read_split
from training.data.ragged import Bool, Float64, Floats, Int64
from training.evaluation.evaluate import POOL_DOCUMENTS, EvaluationReport, absent
from training.metrics.intervals import mean_interval
from training.metrics.retrieval import NUMBERS_AT_ONCE, Ranks, count_ranked
from training.metrics.scores import Score

CUTOFFS = (5, 10, 50, 100)  # MediaEval NewsImages
METRICS = ("reciprocal_rank", *(f"recall_at_{cutoff}" for cutoff in CUTOFFS))
SEARCH, BM25, NEAREST, FUSION = "search", "bm25", "nearest sentence", "fusion"
ALL_TEXTS = "all"
NO_DESCRIPTIONS = "no picture has a title or a caption"
UNKNOWN = -2.0  # below every cosine: a picture without a description
Encode = Callable[[Sequence[str]], Floats]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedQuery:
    """A text whose pictures are known.

    Attributes:
        id: document and role, for run files.
        document: number of the document.
        role: of the text, or `all`.
        language: of it.
        query: as it is searched for.
        linked: candidates that it is linked to.
    """

    id: str
    document: int
    role: str
    language: str
    query: Query
    linked: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchEvaluation:
    """An evaluation of search: the queries, the candidates, scores, and the first ranks of the model.

    Attributes:
        rows: every number.
        queries: the texts.
        images: content hashes of the candidates.
        run: of each query, the first candidates by the model and their similarities.
    """

    rows: tuple[Score, ...]
    queries: tuple[LinkedQuery, ...]
    images: tuple[str, ...]
    run: tuple[tuple[Int64, Floats], ...]

    def write_trec(self, folder: Path, *, tag: str) -> None:
        """Write `run.txt` and `qrels.txt`, which trec_eval and ranx read."""
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "run.txt").open("w", encoding="utf-8") as lines:
            for query, (candidates, scores) in zip(self.queries, self.run, strict=True):
                for rank, (candidate, score) in enumerate(zip(candidates, scores, strict=True), start=1):
                    lines.write(f"{query.id} Q0 {self.images[candidate]} {rank} {score:.6f} {tag}\n")
        with (folder / "qrels.txt").open("w", encoding="utf-8") as lines:
            lines.writelines(f"{query.id} 0 {self.images[each]} 1\n" for query in self.queries for each in query.linked)


def evaluate_search(
    index: Index, lake: Lake, split: Split | str, *, reader: Reader, encode: Encode | None = None
) -> SearchEvaluation:
    """Return how well the texts of a split of the index's data set find their pictures.

    Args:
        index: that is searched.
        lake: holds its data set.
        split: whose texts are the queries.
        reader: gives what the model reads beside words.
        encode: N texts -> N x t unit vectors of a sentence encoder; None: there is none.

    Raises:
        NotFoundError: the data set version or split is not there.
        UsageError: no document of it has known links.
    """
    manifest, folder = read_manifest(lake, index.manifest.dataset)
    none = Columns(images=None, sentences=None, links=True)
    documents = read_split(sampled(manifest, POOL_DOCUMENTS), folder, split, none)
    queries = tuple(_queries(documents))
    if not queries:
        raise UsageError(f"{index.manifest.dataset}, split {split}: expected documents with known links, found none")
    rows = [row for row in index.records.rows_of(documents.image_hashes) if row is not None]
    if len(rows) != len(documents.image_hashes):
        missing = len(documents.image_hashes) - len(rows)
        raise UsageError(f"{missing} images of split {split} are not in the index; make it again with multilink index")
    scores_of = _scorer(index, np.array(rows, np.int64), reader, encode)
    counts: dict[str, list[Int64]] = {}
    run: list[tuple[Int64, Floats]] = []
    block = max(1, NUMBERS_AT_ONCE // len(rows))
    for start in range(0, len(queries), block):
        some = queries[start : start + block]
        for system, scores in scores_of([each.query for each in some]).items():
            counts.setdefault(system, []).append(count_ranked(scores, _are_linked(some, len(rows))))
            if system == SEARCH:
                order = np.argsort(-scores, axis=1, kind="stable")[:, : CUTOFFS[-1]]
                run += [(own, row[own].astype(np.float32)) for own, row in zip(order, scores, strict=True)]
    ranks = {system: Ranks.of(np.concatenate(parts, axis=1), CUTOFFS) for system, parts in counts.items()}
    missing_systems = [absent(name, NO_DESCRIPTIONS) for name in (BM25, NEAREST, FUSION) if name not in ranks]
    return SearchEvaluation(
        rows=(*_scores(queries, ranks, len(rows)), *missing_systems),
        queries=queries,
        images=documents.image_hashes,
        run=tuple(run),
    )


def _queries(documents: DocumentSet) -> Iterator[LinkedQuery]:
    """Yield the queries of documents with links: sentences one by one, texts of other roles by role and together."""
    for number, links in enumerate(documents.links or ()):
        if links is None or not len(links):
            continue
        rows = documents.sentences.rows(number)
        texts, roles = documents.texts[rows], (documents.roles or ())[rows]
        images = documents.image_rows[documents.images.rows(number)]
        language = (documents.languages or ())[number]
        parts: dict[str, list[int]] = {}
        for sentence, role in enumerate(roles):
            parts.setdefault(str(role) if role != Role.SENTENCE else f"{role}#{sentence}", []).append(sentence)
        by_role = [role for role in parts if "#" not in role]
        if len(by_role) > 1:
            parts[ALL_TEXTS] = [sentence for role in by_role for sentence in parts[role]]
        for name, sentences in parts.items():
            linked = sorted({int(images[image]) for sentence, image in links.tolist() if sentence in sentences})
            if linked:
                texts_of: dict[str, list[str]] = {}
                for sentence in sentences:
                    texts_of.setdefault(roles[sentence], []).append(texts[sentence])
                yield LinkedQuery(
                    id=f"{documents.ids[number]}/{name}".replace(" ", "_"),
                    document=number,
                    role=name.partition("#")[0],
                    language=language,
                    query=Query(texts={role: " ".join(own) for role, own in texts_of.items()}, language=language),
                    linked=tuple(linked),
                )


def _are_linked(queries: Sequence[LinkedQuery], candidates: int) -> Bool:
    """Return Q x C: which candidates each text is linked to."""
    found = np.zeros((len(queries), candidates), dtype=bool)
    for row, each in enumerate(queries):
        found[row, list(each.linked)] = True
    return found


def _scorer(
    index: Index, rows: Int64, reader: Reader, encode: Encode | None
) -> Callable[[Sequence[Query]], dict[str, Float64]]:
    """Return what gives Q x C scores of each system for Q queries, the higher the better; candidates are C rows."""
    queries, images = QueryReader(index.model, reader), index.vectors.rows[rows]
    table = index.records.take(rows)
    words = Words.of(table)
    titles, captions = (table.column(name).to_pylist() for name in ("title", "caption"))
    descriptions = [" ".join(filter(None, each)) for each in zip(titles, captions, strict=True)]
    has_description = np.array([bool(text) for text in descriptions])
    sentences = encode(descriptions) if encode is not None and has_description.any() else None

    def lexical(text: str) -> Float64:
        found, ranked = np.zeros(len(rows)), words.rank(text, len(rows), fields=WORDS)
        found[ranked.rows] = ranked.scores
        return found

    def scores(some: Sequence[Query]) -> dict[str, Float64]:
        found = {SEARCH: (queries.vectors(some) @ images.T).astype(np.float64)}
        if has_description.any():
            found[BM25] = np.stack([lexical(query.text) for query in some])
            if encode is not None and sentences is not None:
                cosines = encode([query.text for query in some]) @ sentences.T
                found[NEAREST] = np.where(has_description, cosines, UNKNOWN).astype(np.float64)
            found[FUSION] = reciprocal_ranks(found[SEARCH]) + reciprocal_ranks(found[BM25], above=0.0)
        return found

    return scores


def reciprocal_ranks(scores: Float64, above: float = -np.inf) -> Float64:
    """Return Q x C of 1 / (RRF + rank), ranks from 1, equal scores sharing the first; 0 beyond RERANKED or not `above`.

    With it two rankings are added as `search` fuses them.
    """
    order = np.sort(-scores, axis=1)
    ranks = np.stack([1 + np.searchsorted(own, -row) for own, row in zip(order, scores, strict=True)])
    return np.where((scores > above) & (ranks <= RERANKED), 1 / (RRF + ranks), 0.0)


def _scores(queries: Sequence[LinkedQuery], ranks: Mapping[str, Ranks], candidates: int) -> Iterator[Score]:
    """Yield the scores of each system, by role, and by role and language where there are several."""
    documents = np.array([each.document for each in queries])
    languages = sorted({each.language for each in queries})
    groups: dict[str, list[int]] = {}
    for number, each in enumerate(queries):
        groups.setdefault(f"role={each.role}", []).append(number)
        if len(languages) > 1:
            groups.setdefault(f"role={each.role} language={each.language}", []).append(number)
    for system, own in ranks.items():
        table = 100 * np.column_stack([own.reciprocal, own.recall])
        for group, members in groups.items():
            name = f"{group}, whole pool of {candidates}"
            for metric, column in zip(METRICS, table[members].T, strict=True):
                interval = mean_interval(column, documents[members])
                yield interval.score(metric, n=len(members), group=name, measure=system)


def score_lines(report: EvaluationReport) -> list[str]:
    """Return a row a group and system, and why a system has no numbers."""
    table: dict[tuple[str, str], dict[str, str]] = {}
    for row in report.rows:
        if row.metric in METRICS and row.value is not None:
            table.setdefault((row.group, row.measure), {})[row.metric] = (
                f"{row.value:.1f} [{row.low:.1f}, {row.high:.1f}]"
            )
    head = ("", "MRR", *(metric.replace("recall_at_", "R@") for metric in METRICS[1:]))
    rows = [
        (f"{group.partition(',')[0]}  {measure}", *(own[metric] for metric in METRICS))
        for (group, measure), own in sorted(table.items())
    ]
    notes = [f"{row.measure}: {row.note}" for row in report.rows if row.note]
    return [
        f"{report.model} on {report.dataset}@{report.dataset_version}, {report.split}",
        *aligned([head, *rows]),
        *notes,
    ]
