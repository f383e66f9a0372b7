"""Many linear assignment problems in one call, every one exact, outside Python's lock (AP's solver: SPEC 4).

A problem is a block of one packed matrix, turned so that it has at most as many rows as columns. Each row takes one
column of its own; where fewer edges than rows are wanted, the others take places to stay out. Staying out gains more
than any entry, so every place is taken and exactly `edges` rows take an entry:

                 width     height - edges places
    height rows  gains     bonus

`assign` is for the host: lapjv or scipy, whichever was measured faster for a shape. Both release the lock, and problems
of 40 x 40 and more are solved by as many threads as PyTorch has (two: 1.4 to 1.6 times as fast); of smaller ones, as
most documents give, more time goes into the lock than two threads save, and one thread solves them. On a GPU,
`training.assignment_gpu` solves the same problems where the matrix lies.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from lapjv import lapjv
from scipy.optimize import linear_sum_assignment

from training.data.ragged import Int64, Ragged

Matrix = npt.NDArray[np.floating[Any]]
Bools = npt.NDArray[np.bool_]
SMALLEST_FOR_LAPJV = 10
SLACK_FOR_LAPJV = 6
CHUNKS_PER_THREAD = 4
# In entries of the matrix, and what a call costs beside them.
LARGE_PROBLEM = 1_000  # from here on a solution takes longer than handing Python's lock to another thread
SMALLEST_CHUNK = 500_000  # about five milliseconds, after which Python lets another thread run
CALL = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Problems:
    """P blocks of an N x M matrix, each an assignment problem (every field: P of them).

    Attributes:
        tops: first row of the block in the matrix.
        lefts: its first column.
        heights: rows of the problem, at least 1.
        widths: columns of the problem, at least as many.
        is_turned: whether rows of the problem are columns of the matrix.
        edges: how many rows take an entry, at most all.
    """

    tops: Int64
    lefts: Int64
    heights: Int64
    widths: Int64
    is_turned: Bools
    edges: Int64

    @classmethod
    def of(cls, tops: Int64, lefts: Int64, sizes: tuple[Int64, Int64], edges: Int64) -> Problems:
        """Return the problems of blocks of n x m entries (`sizes`), turned where n is larger."""
        n, m = sizes
        return cls(
            tops=tops, lefts=lefts, heights=np.minimum(n, m), widths=np.maximum(n, m), is_turned=n > m, edges=edges
        )

    def __len__(self) -> int:
        return len(self.tops)

    @property
    def owners(self) -> Int64:
        """Return of each row of all problems, one problem after the other, which problem it is of."""
        return np.repeat(np.arange(len(self)), self.heights)

    @property
    def places(self) -> Int64:
        """Return how many rows stay out."""
        return self.heights - self.edges

    def steps(self, matrix_width: int) -> tuple[Int64, Int64]:
        """Return how far apart rows, and columns, of a problem are among the matrix's entries laid out row by row."""
        return np.where(self.is_turned, 1, matrix_width), np.where(self.is_turned, matrix_width, 1)


def assign(gains: Matrix, problems: Problems) -> Int64:
    """Return the entry that each row of each problem takes, so that each problem's sum of entries is the largest.

    Args:
        gains: N x M, finite.
        problems: blocks of it.

    Returns:
        Positions in `gains` laid out row by row, one a row of a problem, one problem after the other; `~position` (a
        negative number) of the problem's first entry where a row stays out.
    """
    costs = np.negative(gains)
    stay = -1.0 - max(-float(costs.min(initial=0.0)), float(costs.max(initial=0.0)))
    threads = torch.get_num_threads()
    chunks = _chunks(problems, threads)
    columns = _in_order(problems, chunks, _run(partial(_solve_chunk, costs, stay, problems), chunks, threads))
    rows_of_problems = Ragged.of(problems.heights)
    owners = rows_of_problems.owners
    row_steps, column_steps = problems.steps(gains.shape[1])
    starts = problems.tops * gains.shape[1] + problems.lefts
    taken = starts[owners] + rows_of_problems.numbers * row_steps[owners] + columns * column_steps[owners]
    found: Int64 = np.where(columns < problems.widths[owners], taken, ~starts[owners])
    return found


def _run(solve: Callable[[Int64], Int64], chunks: list[Int64], threads: int) -> list[Int64]:
    if len(chunks) == 1:
        return [solve(chunks[0])]
    with ThreadPoolExecutor(min(threads, len(chunks))) as pool:
        return list(pool.map(solve, chunks))


def _chunks(problems: Problems, threads: int) -> list[Int64]:
    """Return the problems' numbers by shape, cut into parts of about equal work; one where threads would not pay."""
    order = np.lexsort((problems.edges, problems.heights, problems.widths, problems.is_turned))
    work = np.cumsum((problems.heights * problems.widths + CALL)[order])
    total = int(work[-1]) if len(work) else 0
    does_pay = threads > 1 and total >= LARGE_PROBLEM * len(problems)
    count = min(total // SMALLEST_CHUNK, threads * CHUNKS_PER_THREAD) if does_pay else 1
    cuts = np.searchsorted(work, np.arange(1, count) * (total / max(count, 1)))
    return [part for part in np.split(order, cuts) if len(part)] or [order]


def _in_order(problems: Problems, chunks: list[Int64], columns: list[Int64]) -> Int64:
    """Return the columns that chunks of problems gave, one problem after the other."""
    ordered = np.empty(int(problems.heights.sum()), np.int64)
    ordered[Ragged.of(problems.heights).positions(np.concatenate(chunks))] = np.concatenate(columns)
    return ordered


def _solve_chunk(costs: Matrix, stay: float, problems: Problems, members: Int64) -> Int64:
    """Return the columns that the rows of some problems take, one problem after the other; a place is past the width.

    Problems of one shape, which lie side by side, share a buffer.
    """
    turned = problems.is_turned[members]
    tops = np.where(turned, problems.lefts[members], problems.tops[members])
    lefts = np.where(turned, problems.tops[members], problems.lefts[members])
    fields = (turned, problems.heights[members], problems.widths[members], problems.places[members], tops, lefts)
    chosen: list[Int64] = [np.zeros(0, np.int64)]
    last = None
    for is_turned, height, width, places, top, left in zip(*(field.tolist() for field in fields), strict=True):
        if last != (is_turned, height, width, places):
            last = is_turned, height, width, places
            source = costs.T if is_turned else costs
            buffer, solve = _buffer(height, width, places, stay)
            block = buffer[:height, :width]
        block[:] = source[top : top + height, left : left + width]
        chosen.append(solve(buffer)[:height])
    return np.concatenate(chosen)


def _buffer(height: int, width: int, places: int, stay: float) -> tuple[Matrix, Callable[[Matrix], Int64]]:
    """Return float64 costs to write a problem's entries into, and the solver measured faster for their shape.

    scipy takes rectangles as they are; lapjv needs a square, and wins on large ones that are nearly square.
    """
    whole = width + places
    is_square = whole >= SMALLEST_FOR_LAPJV and whole - height <= whole // SLACK_FOR_LAPJV
    buffer = np.zeros((whole if is_square else height, whole))
    buffer[:height, width:] = stay
    return buffer, _columns_by_lapjv if is_square else _columns_by_scipy


def _columns_by_lapjv(costs: Matrix) -> Int64:
    columns: Int64 = lapjv(costs)[0]
    return columns


def _columns_by_scipy(costs: Matrix) -> Int64:
    columns: Int64 = linear_sum_assignment(costs)[1]
    return columns
