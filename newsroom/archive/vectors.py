"""The nearest images of a query: exact, or among many through inverted lists with an exact second look.

    rows to search                    how
    fewer than EXACT_BELOW            every similarity is computed
    EXACT_BELOW or more               IVF,SQ8 gives RERANKED candidates, which their full vectors put in order
    EXACT_ROWS or fewer by a filter   every similarity of those rows

A filter acts before ranking: rows that it leaves out take no place among the candidates. How many lists are looked at
is measured when the index is made, with queries of the kind that will come: texts lie elsewhere than pictures, so
that lists chosen for pictures can miss what texts look for. Lists and full vectors stay in files that are
mapped into memory.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from threadpoolctl import threadpool_limits

from schemas.indexes import CellsNote
from schemas.messages import ConfigError
from training.data.ragged import Float32, Floats, Int64, stream

EXACT_BELOW = 100_000  # images
EXACT_ROWS = 50_000  # left by a filter
RERANKED = 500
POINTS_PER_CELL = 64  # that the lists' centres are learnt from
RECALL_OF, WANTED_RECALL = 50, 0.985
QUERIES = 256  # that recall is measured with
ROWS_AT_ONCE = 65_536
BLOCK_BYTES = 1 << 19  # of rows that are copied to be multiplied
FIRST_PROBES = 4
RRF = 60  # Cormack et al. 2009: "k = 60 was near-optimal"


@dataclass(frozen=True, slots=True)
class Ranked:
    """Rows and their scores (cosines, or BM25), the best first; of equal ones the smaller row first."""

    rows: Int64
    scores: Floats

    def rank_of_first(self, right: Int64) -> float:
        """Return the rank, from 1, of the first of some rows; infinite: none of them is there."""
        ranks = np.flatnonzero(np.isin(self.rows, right))
        return 1.0 + ranks[0] if len(ranks) else np.inf


class Stacked:
    """N x d numbers that lie in several arrays, one below the other; rows are taken as of one array.

    Args:
        parts: n x d each, perhaps mapped from files.
    """

    def __init__(self, parts: Sequence[Float32]) -> None:
        self.parts = tuple(parts)
        self.starts: Int64 = np.cumsum([0, *map(len, parts)])

    def __len__(self) -> int:
        return int(self.starts[-1])

    @property
    def dimensions(self) -> int:
        return int(self.parts[0].shape[1])

    def __getitem__(self, rows: Int64) -> Float32:
        """Return the given rows, in the given order."""
        found = np.empty((len(rows), self.dimensions), np.float32)
        for number, places in by_part(self.starts, rows):
            found[places] = self.parts[number][rows[places] - self.starts[number]]
        return found

    def of(self, rows: Int64, query: Float32) -> Float32:
        """Return the products of some rows with d numbers; a block of them is copied at a time.

        The memory of a small block is reused; that of a large one is returned and allocated again, page by page, which
        takes ten times as long as the products.
        """
        found, block = np.empty(len(rows), np.float32), max(1, BLOCK_BYTES // (4 * self.dimensions))
        for number, places in by_part(self.starts, rows):
            for start in range(0, len(places), block):
                some = places[start : start + block]
                found[some] = self.parts[number][rows[some] - self.starts[number]] @ query
        return found

    def __matmul__(self, query: Float32) -> Float32:
        return np.concatenate([part @ query for part in self.parts])


def by_part(starts: Int64, rows: Int64) -> Iterator[tuple[int, Int64]]:
    """Yield each part that some of the rows are in, and which of them are.

    Args:
        starts: first row of each part, and the number of all rows.
        rows: in any order.
    """
    parts = np.searchsorted(starts[1:], rows, side="right")
    for number in np.unique(parts).tolist():
        yield number, np.flatnonzero(parts == number)


@dataclass(frozen=True)
class Vectors:
    """Unit vectors of N images and how they are searched.

    Attributes:
        rows: N x d.
        live: ascending rows that are searched; None: all.
        cells: faiss index of the same rows; None: every search is exact.
        probes: lists that a query looks at.
    """

    rows: Stacked
    live: Int64 | None = None
    cells: Any = None
    probes: int = 0

    @classmethod
    def open(cls, parts: Sequence[Path], live: Int64 | None, cells: Path | None, probes: int) -> Self:
        """Return the vectors of an index's files, mapped into memory: several processes share them."""
        rows = Stacked([np.load(part, mmap_mode="r", allow_pickle=False) for part in parts])
        if cells is None:
            return cls(rows, live)
        return cls(rows, live, faiss().read_index(str(cells), faiss().IO_FLAG_MMAP_IFC), probes)

    def nearest(self, query: Float32, count: int, selected: Int64 | None = None) -> Ranked:
        """Return the `count` images that are most similar to a query, fewer where there are no more.

        Args:
            query: d numbers, of length 1.
            count: at most RERANKED where the search is not exact.
            selected: ascending rows that are searched; None: all that are live.
        """
        if selected is not None and len(selected) <= EXACT_ROWS:
            return first_of(selected, self.rows.of(selected, query), count)
        if self.cells is None:
            rows = all_rows(len(self.rows), self.live) if selected is None else selected
            return first_of(rows, (self.rows @ query)[rows], count)
        candidates = self._candidates(query, max(count, RERANKED), selected)
        return first_of(candidates, self.rows.of(candidates, query), count)

    def _candidates(self, query: Float32, count: int, selected: Int64 | None) -> Int64:
        """Return the ascending rows that the lists give; where these have too few, four times as many are looked at.

        What a filter leaves may lie far from the query: then the nearest lists have little of it.
        """
        module, lists = faiss(), self.probes
        given: dict[str, Any] = {}
        if selected is not None:
            mask = np.zeros(len(self.rows), dtype=bool)
            mask[selected] = True
            bits = np.packbits(mask, bitorder="little")
            given = {"sel": module.IDSelectorBitmap(len(self.rows), module.swig_ptr(bits))}
        while True:
            _, found = self.cells.search(query[None], count, params=module.SearchParametersIVF(nprobe=lists, **given))
            rows = np.sort(found[0][found[0] >= 0]).astype(np.int64)
            if len(rows) == count or lists >= self.cells.nlist:
                return rows
            lists = min(self.cells.nlist, 4 * lists)


def first_of(rows: Int64, scores: Floats, count: int) -> Ranked:
    """Return the `count` best of ascending rows, in order."""
    kept = np.arange(len(rows))
    if count < len(rows):
        kept = np.flatnonzero(scores >= np.partition(scores, len(rows) - count)[len(rows) - count])
    order = kept[np.argsort(-scores[kept], kind="stable")][:count]
    return Ranked(rows[order].astype(np.int64), scores[order])


def fused(*rankings: Ranked) -> Ranked:
    """Return the rows of several rankings by their sums of 1 / (RRF + rank) (Cormack et al. 2009)."""
    rows = np.unique(np.concatenate([each.rows for each in rankings]))
    sums = np.zeros(len(rows))
    for each in rankings:
        sums[np.searchsorted(rows, each.rows)] += 1 / (RRF + 1.0 + np.arange(len(each.rows)))
    order = np.argsort(-sums, kind="stable")
    return Ranked(rows[order], sums[order])


def all_rows(count: int, live: Int64 | None) -> Int64:
    """Return the rows that are searched where no filter says which."""
    return np.arange(count) if live is None else live


def make_cells(
    rows: Stacked, live: Int64 | None, queries: Float32, measured_with: Literal["texts", "pictures"]
) -> tuple[Any, CellsNote]:
    """Return the approximate index of unit vectors, and how it is to be searched; the same rows, the same bytes.

    Args:
        rows: N x d; a block is in memory at a time.
        live: which are searched; None: all.
        queries: Q x d that the number of lists to look at is chosen by.
        measured_with: what the queries are of.
    """
    module, searched = faiss(), all_rows(len(rows), live)
    count = len(searched)
    lists = 1 << round(np.log2(2 * np.sqrt(count)))
    with threadpool_limits(1):  # sums of floating-point numbers depend on how many share them
        made = module.index_factory(rows.dimensions, f"IVF{lists},SQ8", module.METRIC_INNER_PRODUCT)
        made.cp.max_points_per_centroid = POINTS_PER_CELL
        sample = stream("cells", count).choice(count, size=min(count, lists * POINTS_PER_CELL), replace=False)
        made.train(rows[searched[np.sort(sample)]])
        add_to_cells(made, rows, searched)
        truth = _nearest_by_all(rows, searched, queries)
        probes, recall = FIRST_PROBES, 0.0
        while True:
            found = made.search(queries, RERANKED, params=module.SearchParametersIVF(nprobe=probes))[1]
            recall = float(np.mean([np.isin(want, have).mean() for want, have in zip(truth, found, strict=True)]))
            if recall >= WANTED_RECALL or probes >= lists:
                break
            probes = min(lists, probes + max(1, probes // 4))
    note = CellsNote(
        cells=lists,
        probes=probes,
        recall=round(recall, 4),
        queries=len(queries),
        measured_with=measured_with,
        images=count,
    )
    return made, note


def add_to_cells(cells: Any, rows: Stacked, numbers: Int64) -> None:
    """Put rows, by their numbers, into the lists of an approximate index."""
    with threadpool_limits(1):
        for start in range(0, len(numbers), ROWS_AT_ONCE):
            block = numbers[start : start + ROWS_AT_ONCE]
            cells.add_with_ids(rows[block], block)


def _nearest_by_all(rows: Stacked, searched: Int64, queries: Float32) -> Int64:
    """Return Q x RECALL_OF: the rows that are truly most similar."""
    best = np.full((len(queries), 0), 0, np.float32)
    numbers = np.zeros((len(queries), 0), np.int64)
    for start in range(0, len(searched), ROWS_AT_ONCE):
        block = searched[start : start + ROWS_AT_ONCE]
        best = np.concatenate([best, queries @ rows[block].T], axis=1)
        numbers = np.concatenate([numbers, np.broadcast_to(block, (len(queries), len(block)))], axis=1)
        kept = np.argpartition(-best, min(RECALL_OF, best.shape[1] - 1), axis=1)[:, :RECALL_OF]
        best, numbers = np.take_along_axis(best, kept, axis=1), np.take_along_axis(numbers, kept, axis=1)
    return numbers


def faiss() -> Any:
    """Return the library of approximate search; raises as `library`."""
    return library("faiss")


def library(name: str) -> Any:
    """Return a library of the extra `newsroom`.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as problem:
        raise ConfigError(f"{name} is not installed: pip install 'multilink-pipeline[newsroom]'") from problem
