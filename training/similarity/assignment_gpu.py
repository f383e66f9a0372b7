"""The problems of `assignment.py` solved on a GPU, one a program, where the matrix lies: nothing is fetched.

The kernel is the shortest augmenting path algorithm that scipy's solver is (Crouse 2016, after Jonker and Volgenant
1987), in float64 and so exact up to rounding. All that a problem needs beside its entries is in registers, a lane a
column. It is written in Triton, which comes with PyTorch where PyTorch is built for GPUs; this module is imported there
alone. Triton's interpreter runs the same code on a CPU (`TRITON_INTERPRET=1`), for tests.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"
# ruff: noqa: PLR0917

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from training.data.ragged import to_device
from training.similarity.assignment import Problems

LANES_OF_A_WARP = 32
COLUMNS_OF_A_LANE = 4
MOST_WARPS = 8


def assign_on_gpu(gains: Tensor, problems: Problems) -> Tensor:
    """Return what `assignment.assign` returns, a tensor on the device of `gains`; nothing is waited for.

    Args:
        gains: N x M, finite, of any floating type.
        problems: blocks of it.
    """
    gains = gains.contiguous()
    row_steps, column_steps = problems.steps(gains.shape[1])
    firsts = problems.rows.offsets
    fields = (
        problems.tops * gains.shape[1] + problems.lefts,
        problems.heights,
        problems.widths,
        problems.places,
        row_steps,
        column_steps,
        firsts[:-1],
    )
    taken = torch.empty(int(firsts[-1]), dtype=torch.int64, device=gains.device)
    if not len(problems):
        return taken
    lanes = max(LANES_OF_A_WARP, triton.next_power_of_2(int((problems.widths + problems.places).max())))
    warps = min(MOST_WARPS, max(1, lanes // (LANES_OF_A_WARP * COLUMNS_OF_A_LANE)))
    bonus = 1.0 + gains.abs().amax().double()
    table = to_device(np.stack(fields), gains.device)
    with torch.cuda.device_of(gains):
        _solve[len(problems),](gains, table, bonus, taken, len(problems), LANES=lanes, num_warps=warps)
    return taken


@triton.jit
def _solve(gains, table, bonus, taken, count, LANES: tl.constexpr):
    """Solve problem `program_id`; `table` has the seven rows of `count` numbers that `assign_on_gpu` stacks.

    Rows are added one by one. From a new row the nearest free column is searched over alternating paths (`distance`,
    `before`: the row a column was reached from; `closed`: columns whose distance is final), prices are lowered so that
    no other assignment is cheaper, and the columns on the path change owners.
    """
    problem = tl.program_id(0)
    start = tl.load(table + problem)
    height = tl.load(table + count + problem)
    width = tl.load(table + 2 * count + problem)
    whole = width + tl.load(table + 3 * count + problem)
    row_step = tl.load(table + 4 * count + problem)
    column_step = tl.load(table + 5 * count + problem)
    first = tl.load(table + 6 * count + problem)
    stay = tl.load(bonus)
    columns = tl.arange(0, LANES)
    is_entry = columns < width
    owner = tl.full((LANES,), -1, tl.int32)
    price = tl.zeros((LANES,), tl.float64)
    row = 0
    while row < height:
        distance = tl.full((LANES,), float("inf"), tl.float64)
        before = tl.full((LANES,), -1, tl.int32)
        closed = columns >= whole
        current = row
        column = -1
        lowest = tl.full((), 0.0, tl.float64)
        is_free = False
        while not is_free:
            gain = tl.load(gains + start + current * row_step + columns * column_step, mask=is_entry, other=0.0)
            reduced = -tl.where(is_entry, gain.to(tl.float64), stay) - price
            reduced += lowest - tl.sum(tl.where(columns == column, reduced, 0.0), axis=0)
            is_nearer = (reduced < distance) & (closed == 0)
            distance = tl.where(is_nearer, reduced, distance)
            before = tl.where(is_nearer, current, before)
            open_distance = tl.where(closed, float("inf"), distance)
            lowest = tl.min(open_distance, axis=0)
            column = tl.argmin(open_distance, axis=0)
            closed = closed | (columns == column)
            holder = tl.sum(tl.where(columns == column, owner, 0), axis=0)
            is_free = holder < 0
            current = tl.where(is_free, current, holder)
        price += tl.minimum(distance - lowest, 0.0)
        giver = tl.sum(tl.where(columns == column, before, 0), axis=0)
        while giver != row:
            freed = tl.sum(tl.where(owner == giver, columns, 0), axis=0)
            owner = tl.where(columns == column, giver, owner)
            column = freed
            giver = tl.sum(tl.where(columns == column, before, 0), axis=0)
        owner = tl.where(columns == column, row, owner)
        row += 1
    entry = start + owner * row_step + columns * column_step
    tl.store(taken + first + owner, tl.where(is_entry, entry, ~start), mask=owner >= 0)
