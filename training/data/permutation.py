"""A keyed permutation of the documents of a split: an epoch's order, of which no list is kept."""

from __future__ import annotations

import numpy as np

from training.data.keys import mixed
from training.data.ragged import Int64, UInt64

ROUNDS = 8


def permuted(places: Int64, size: int, key: int) -> Int64:
    """Return where a keyed permutation of 0 to `size - 1` takes some places, without a list of it.

    Eight rounds of a Feistel network over the bits of a number; a result that is too large is permuted again (Black and
    Rogaway 2002), at most once on average.

    Args:
        places: to be taken; each is below `size`.
        size: how many there are.
        key: of the permutation, in [0, 2^63).
    """
    bits = max((size - 1).bit_length(), 2)
    found = np.empty(len(places), np.int64)
    rows, values = np.arange(len(places)), places.astype(np.uint64)
    while len(rows):
        values = _feistel(values, bits, key)
        is_inside = values < size
        found[rows[is_inside]] = values[is_inside]
        rows, values = rows[~is_inside], values[~is_inside]
    return found


def _feistel(values: UInt64, bits: int, key: int) -> UInt64:
    """Return numbers of so many bits permuted; halves may be of unequal widths, which change places every round."""
    widths = bits - bits // 2, bits // 2
    left, right = values >> np.uint64(widths[1]), values & np.uint64((1 << widths[1]) - 1)
    for number in range(ROUNDS):
        width = widths[number % 2]
        hashed = mixed(right ^ mixed(np.full(1, (key + number) % (1 << 64), np.uint64)))
        left, right = right, left ^ (hashed & np.uint64((1 << width) - 1))
    return (left << np.uint64(widths[1])) | right
