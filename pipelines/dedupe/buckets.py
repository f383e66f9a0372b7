"""Comparing the codes of a bucket with each other, or of two blocks of a bucket: which pairs are near.

Buckets of about one size are laid side by side (the shorter ones filled up with noise), so that one step compares the
i-th with the (i + k)-th code of all of them on whole rows of memory, with nothing gathered:

    size 3, buckets a b c ...     a0 b0 c0 ..              k = 1: (a0 b0 c0 .. a1 b1 c1 ..) ^ (a1 b1 c1 .. a2 b2 c2 ..)
                                  a1 b1 c1 ..              k = 2: (a0 b0 c0 ..)             ^ (a2 b2 c2 ..)
                                  a2 b2 c2 ..

Plain functions on arrays; the Beam transform and the plain path share them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pipelines.dedupe.bands import Bands, Codes, Indices

CODES_AT_ONCE = 1 << 15  # of a word each, compared in one go: what this takes stays in the cache
FILLED = 7 / 8  # of the longest bucket among those laid side by side
NOISE_SEED = 3  # of what fills up; a match with it is struck out


class Near(NamedTuple):
    """P x 2 rows of near codes, and their P distances in bits."""

    pairs: Indices
    distances: Indices


def near_in_buckets(permuted: Codes, buckets: Indices, *, bands: Bands, choice: int) -> Near:
    """Return the pairs within the radius inside buckets of one choice, each pair that no earlier choice reports.

    Args:
        permuted: N x W codes in banding order, distinct.
        buckets: B x 2: where a bucket's rows start and end; its codes have equal keys.
        bands: the cut.
        choice: of bands, whose keys are equal.
    """
    found = [_nothing()]
    for some in _side_by_side(buckets):
        rows = some[:, 0] + np.arange(some[-1, 1] - some[-1, 0])[:, None]
        found += _compare(permuted, np.where(rows < some[:, 1], rows, -1), bands.radius)
    return _reported_here(permuted, found, bands=bands, choice=choice)


def near_between(permuted: Codes, middle: int, *, bands: Bands, choice: int) -> Near:
    """Return the same for pairs of one code from each of two blocks of one bucket.

    Args:
        permuted: N x W codes in banding order, distinct: one block, then the other.
        middle: first row of the other block.
        bands: the cut.
        choice: of bands, whose keys are equal.
    """
    words = permuted[middle:, 0].copy()
    found = [_nothing()]
    for row in range(middle):
        (near,) = (np.bitwise_count(words ^ permuted[row, 0]) <= bands.radius).nonzero()
        if len(near):
            found += _near(permuted, np.full(len(near), row), middle + near, bands.radius)
    return _reported_here(permuted, found, bands=bands, choice=choice)


def _side_by_side(buckets: Indices) -> Iterator[Indices]:
    """Yield buckets of two codes and more by size, smallest first: those of about one size that fit into the cache."""
    buckets = buckets[np.argsort(buckets[:, 1] - buckets[:, 0], kind="stable")]
    sizes = buckets[:, 1] - buckets[:, 0]
    begin = int(np.searchsorted(sizes, 2))
    while begin < len(sizes):
        end = int(np.searchsorted(sizes, sizes[begin] / FILLED, side="right"))
        end = min(end, begin + max(1, int(CODES_AT_ONCE * FILLED) // int(sizes[begin])))
        yield buckets[begin:end]
        begin = end


def _compare(permuted: Codes, rows: Indices, radius: int) -> Iterator[Near]:
    """Yield the near pairs of buckets laid side by side.

    Args:
        permuted: N x W codes.
        rows: longest x B rows of `permuted`, a column a bucket, filled up with -1.
        radius: in bits.
    """
    count, flat = rows.shape[1], rows.reshape(-1)
    words = permuted[flat, 0]
    fill = np.flatnonzero(flat < 0)
    words[fill] = np.random.default_rng(NOISE_SEED).integers(0, 2**64, len(fill), dtype=np.uint64)
    length = min(CODES_AT_ONCE, len(flat))
    differing, bits, is_near = np.empty(length, np.uint64), np.empty(length, np.uint8), np.empty(length, np.bool_)
    for offset in range(count, len(flat), count):
        for begin in range(0, len(flat) - offset, CODES_AT_ONCE):
            some = min(CODES_AT_ONCE, len(flat) - offset - begin)
            np.bitwise_xor(words[begin : begin + some], words[begin + offset :][:some], out=differing[:some])
            np.bitwise_count(differing[:some], out=bits[:some])
            np.less_equal(bits[:some], radius, out=is_near[:some])
            (near,) = is_near[:some].nonzero()
            if len(near):
                first, second = flat[begin + near], flat[begin + offset + near]
                is_code = (first >= 0) & (second >= 0)
                yield from _near(permuted, first[is_code], second[is_code], radius)


def _near(permuted: Codes, first: Indices, second: Indices, radius: int) -> Iterator[Near]:
    distance = np.bitwise_count(permuted[first] ^ permuted[second]).sum(axis=1, dtype=np.int64)
    near = np.flatnonzero(distance <= radius)
    if len(near):
        yield Near(np.stack([first[near], second[near]], axis=1), distance[near])


def _reported_here(permuted: Codes, found: list[Near], *, bands: Bands, choice: int) -> Near:
    pairs = np.concatenate([near.pairs for near in found])
    distances = np.concatenate([near.distances for near in found])
    differences = permuted[pairs[:, 0]] ^ permuted[pairs[:, 1]]
    new = ~bands.agree_earlier(differences, choice)
    return Near(pairs[new], distances[new])


def _nothing() -> Near:
    return Near(np.empty((0, 2), np.int64), np.empty(0, np.int64))
