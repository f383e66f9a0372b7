"""How well texts find their pictures in an archive, as MediaEval's NewsImages measures it, against what costs nothing.

A query is a text of a document with known links: each role by itself, and all texts together. It is searched for among
all pictures of the index; relevant are those that the text is linked to. Three systems rank them:

    search    the index's model
    bm25      words that a text shares with what a picture's file or archive says of it, never with the captions that
              articles have for it: those are the queries
    fusion    reciprocal ranks of both, as `search --rank-by fused`

Where no picture has a title or a caption, the last two have no numbers. Of a large split the first shards are read, a
random sample. A picture beyond the first RERANKED counts as not found; intervals are over documents.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from newsroom.archive.filters import WORDS
from newsroom.archive.index import Index
from newsroom.archive.vectors import RERANKED, fused
from newsroom.search.queries import Query, QueryReader, Reader
from schemas.documents import Role, Split
from schemas.lake import Lake
from schemas.manifest import read_manifest
from schemas.messages import UsageError, aligned
from schemas.parts import sampled
from training.data.documents import DocumentSet
from training.data.lake import Columns, read_split
from training.data.ragged import Int64
from training.evaluation.evaluate import POOL_DOCUMENTS, EvaluationReport, absent
from training.metrics.intervals import Score, mean_interval

CUTOFFS = (5, 10, 50, 100)  # MediaEval NewsImages
METRICS = ("reciprocal_rank", *(f"recall_at_{cutoff}" for cutoff in CUTOFFS))
SEARCH, BM25, FUSION = "search", "bm25", "fusion"
ALL_TEXTS = "all"
NO_DESCRIPTIONS = "no picture has a title or a caption"


@dataclass(frozen=True, slots=True)
class LinkedQuery:
    """A text of a document, by its number, whose pictures are known: rows of those that it is linked to."""

    document: int
    role: str
    query: Query
    linked: Int64


def evaluate_search(index: Index, lake: Lake, split: Split | str, *, reader: Reader) -> tuple[list[Score], int]:
    """Return how well the texts of a split of the index's data set find their pictures, and the number of texts.

    Args:
        index: that is searched.
        lake: holds its data set.
        split: whose texts are the queries.
        reader: gives what the model reads beside words.

    Raises:
        NotFoundError: the data set version or split is not there, or a picture of it is not in the index.
        UsageError: no document of it has known links.
    """
    manifest, folder = read_manifest(lake, index.manifest.dataset)
    none = Columns(images=None, sentences=None, links=True)
    documents = read_split(sampled(manifest, POOL_DOCUMENTS), folder, split, none)
    queries = list(_queries(documents))
    if not queries:
        raise UsageError(f"{index.manifest.dataset}, split {split}: expected documents with known links, found none")
    rows = index.records.rows_named(documents.image_hashes)
    vectors = QueryReader(index.model, reader).vectors([each.query for each in queries])
    is_described, found = any(index.manifest.described[name] for name in ("title", "caption")), dict[str, list[Any]]()
    for each, vector in zip(queries, vectors, strict=True):
        by_system = {SEARCH: index.vectors.nearest(vector, RERANKED)}
        if is_described:
            by_system[BM25] = index.records.words.rank(each.query.text, RERANKED, fields=WORDS)
            by_system[FUSION] = fused(by_system[SEARCH], by_system[BM25])
        for system, ranking in by_system.items():
            first = ranking.rank_of_first(rows[each.linked])
            found.setdefault(system, []).append([100 / first, *(100.0 * (first <= cutoff) for cutoff in CUTOFFS)])
    missing = [absent(name, NO_DESCRIPTIONS) for name in (BM25, FUSION) if name not in found]
    return [*_scores(queries, found, index.records.count), *missing], len(queries)


def _queries(documents: DocumentSet) -> Iterator[LinkedQuery]:
    """Yield the queries of documents with links: sentences one by one, texts of other roles by role and together."""
    for number, links in enumerate(documents.links or ()):
        if links is None or not len(links):
            continue
        rows = documents.sentences.rows(number)
        texts, roles = documents.texts[rows], (documents.roles or ())[rows]
        images = documents.image_rows[documents.images.rows(number)]
        by_role = {str(role): [at for at, own in enumerate(roles) if own == role] for role in dict.fromkeys(roles)}
        parts = [(str(Role.SENTENCE), [at]) for at in by_role.pop(str(Role.SENTENCE), [])] + [*by_role.items()]
        if len(by_role) > 1:
            parts.append((ALL_TEXTS, [at for own in by_role.values() for at in own]))
        for role, sentences in parts:
            linked = np.unique(images[links[np.isin(links[:, 0], sentences), 1]])
            if len(linked):
                given = {own: " ".join(texts[at] for at in sentences if roles[at] == own) for own in roles}
                yield LinkedQuery(
                    number, role, Query(texts=given, language=(documents.languages or ())[number]), linked
                )


def _scores(queries: Sequence[LinkedQuery], found: Mapping[str, list[Any]], count: int) -> Iterator[Score]:
    """Yield the scores of each system, by role, and by role and language where there are several."""
    documents = np.array([each.document for each in queries])
    languages = {each.query.language for each in queries}
    groups: dict[str, list[int]] = {}
    for number, each in enumerate(queries):
        groups.setdefault(f"role={each.role}", []).append(number)
        if len(languages) > 1:
            groups.setdefault(f"role={each.role} language={each.query.language}", []).append(number)
    for system, rows in found.items():
        for group, members in groups.items():
            for metric, column in zip(METRICS, np.array(rows)[members].T, strict=True):
                interval = mean_interval(column, documents[members])
                yield interval.score(metric, n=len(members), group=f"{group}, whole pool of {count}", measure=system)


def score_lines(report: EvaluationReport) -> list[str]:
    """Return a row a group and system, and why a system has no numbers."""
    table: dict[tuple[str, str], dict[str, str]] = {}
    for row in report.rows:
        if row.metric in METRICS and row.value is not None:
            own = table.setdefault((row.group, row.measure), {})
            own[row.metric] = f"{row.value:.1f} [{row.low:.1f}, {row.high:.1f}]"
    head = ("", "MRR", *(metric.replace("recall_at_", "R@") for metric in METRICS[1:]))
    rows = [
        (f"{group.partition(',')[0]}  {measure}", *(own[metric] for metric in METRICS))
        for (group, measure), own in sorted(table.items())
    ]
    notes = [f"{row.measure}: {row.note}" for row in report.rows if row.note]
    about = f"{report.model} on {report.dataset}@{report.dataset_version}, {report.split}"
    return [about, *aligned([head, *rows]), *notes]
