"""Comparing the codes of a bucket with each other, or of two blocks of a bucket: which pairs are near.

Buckets of about one size are laid side by side (the shorter ones filled up with noise) and meet themselves in a ring,
so that one step compares the i-th with the (i + turn)-th code of all of them on whole rows of memory, with nothing
gathered:

    size 3, buckets a b c ..     ring a0 b0 c0 .. a1 b1 c1 .. a2 b2 c2 .. a0 b0 c0 ..
    turn 1, all there is:             a0 b0 c0 .. a1 b1 c1 .. a2 b2 c2 ..
                                  xor a1 b1 c1 .. a2 b2 c2 .. a0 b0 c0 ..

Codes of several words are compared by their first words, and by further ones only while many pairs pass: what is left
is compared in full. Plain functions on arrays; the Beam transform and the plain path share them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipelines.dedupe.bands import Bands, Codes, Indices
from pipelines.dedupe.radix import sort_keys

CODES_AT_ONCE = 1 << 15  # of a word each, compared in one go: what this takes stays in the cache
PAIRS_AT_ONCE = 1 << 15  # candidates compared in full in one go
FEW = 1 / 64  # of the pairs: as many are compared in full in the time that all take for one more word
FILLED = 7 / 8  # of the longest bucket among those laid side by side
NOISE_SEED = 3  # of what fills up; a match with it is struck out

Pairs = Indices  # 2 x P: rows (or places) of the first and the second code of each pair


class Near(NamedTuple):
    """P x 2 rows of near codes, first < second, and their P distances in bits."""

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
    candidates = (
        pairs
        for some in _side_by_side(buckets)
        for pairs in _candidates_within(permuted, some, words=bands.word_order(choice), radius=bands.radius)
    )
    return _reported_here(permuted, candidates, bands=bands, choice=choice)


def near_between(permuted: Codes, middle: int, *, bands: Bands, choice: int) -> Near:
    """Return the same for pairs of one code from each of two blocks of one bucket.

    Args:
        permuted: N x W codes in banding order, distinct: one block, then the other.
        middle: first row of the other block.
        bands: the cut.
        choice: of bands, whose keys are equal.
    """
    columns = _Columns(permuted, np.arange(len(permuted)), bands.word_order(choice))
    candidates = _steps_between(columns, middle=middle, end=len(permuted), radius=bands.radius)
    return _reported_here(permuted, candidates, bands=bands, choice=choice)


class _Columns:
    """Codes word by word, each column gathered when first asked for.

    Args:
        permuted: N x W codes.
        rows: M rows of them; -1 stands for noise.
        words: the order of columns.
    """

    def __init__(self, permuted: Codes, rows: Indices, words: Sequence[int]) -> None:
        self._permuted, self._rows, self._words = permuted, rows, words
        self._columns: list[Codes] = []

    def __len__(self) -> int:
        return len(self._words)

    def __getitem__(self, place: int) -> Codes:
        """Return M words."""
        while len(self._columns) <= place:
            column = self._permuted[:, self._words[len(self._columns)]][self._rows]
            fill = np.flatnonzero(self._rows < 0)
            column[fill] = np.random.default_rng(NOISE_SEED).integers(0, 2**64, len(fill), dtype=np.uint64)
            self._columns.append(column)
        return self._columns[place]


def _side_by_side(buckets: Indices) -> Iterator[Indices]:
    """Yield buckets of two codes and more by size, smallest first: those of about one size that fit into the cache."""
    sizes = buckets[:, 1] - buckets[:, 0]
    order, _ = sort_keys(sizes, bits=int(sizes.max(initial=1)).bit_length())
    buckets, sizes = buckets[order], sizes[order]
    begin = int(np.searchsorted(sizes, 2))
    while begin < len(sizes):
        size = int(sizes[begin])
        end = int(np.searchsorted(sizes, int(size / FILLED), side="right"))
        end = min(end, begin + max(1, int(CODES_AT_ONCE * FILLED) // size))
        yield buckets[begin:end]
        begin = end


def _candidates_within(permuted: Codes, buckets: Indices, *, words: Sequence[int], radius: int) -> Iterator[Pairs]:
    """Yield pairs of rows that may be near, of buckets laid side by side, the longest last."""
    rows = buckets[:, 0] + np.arange(buckets[-1, 1] - buckets[-1, 0])[:, None]  # longest x B
    rows = np.where(rows < buckets[:, 1], rows, -1)
    ring = np.concatenate([rows, rows[: len(rows) // 2]]).reshape(-1)
    columns = _Columns(permuted, ring, words)
    for places in _batched(_steps_around(columns, longest=len(rows), count=rows.shape[1], radius=radius)):
        pairs = ring[places]
        yield pairs[:, (pairs >= 0).all(axis=0)]


def _steps_around(columns: _Columns, *, longest: int, count: int, radius: int) -> Iterator[Pairs]:
    """Yield the places in the ring of pairs that may be near: half a turn brings each two codes together once.

    Args:
        columns: of the ring.
        longest: codes of the longest bucket.
        count: buckets side by side.
        radius: in bits.
    """
    for turn in range(1, longest // 2 + 1):
        offset = turn * count
        end = offset if 2 * turn == longest else longest * count
        for begin in range(0, end, CODES_AT_ONCE):
            stop = min(end, begin + CODES_AT_ONCE)
            near = _may_be_near(columns, slice(begin, stop), slice(begin + offset, stop + offset), radius)
            if len(near):
                yield near + np.array([[begin], [begin + offset]])


def _steps_between(columns: _Columns, *, middle: int, end: int, radius: int) -> Iterator[Pairs]:
    """Yield the rows of pairs that may be near: each before the middle with those from it on."""
    for row in range(middle):
        near = _may_be_near(columns, slice(row, row + 1), slice(middle, end), radius)
        if len(near):
            yield np.stack([np.full(len(near), row), near + middle])


def _may_be_near(columns: _Columns, first: slice, second: slice, radius: int) -> Indices:
    """Return where codes, place by place, differ in at most `radius` bits of the words that were worth comparing.

    The bits of a pair are counted modulo 256: too few rather than too many.
    """
    column = columns[0]
    bits: npt.NDArray[np.uint8] = np.bitwise_count(column[first] ^ column[second])
    (near,) = (bits <= radius).nonzero()
    for place in range(1, len(columns)):
        if len(near) <= FEW * len(bits):
            break
        column = columns[place]
        bits += np.bitwise_count(column[first] ^ column[second])
        (near,) = (bits <= radius).nonzero()
    return near


def _batched(parts: Iterable[Pairs]) -> Iterator[Pairs]:
    """Yield the same pairs, many at once."""
    batch: list[Pairs] = []
    held = 0
    for pairs in parts:
        batch.append(pairs)
        held += pairs.shape[1]
        if held >= PAIRS_AT_ONCE:
            yield np.concatenate(batch, axis=1)
            batch, held = [], 0
    if batch:
        yield np.concatenate(batch, axis=1)


def _reported_here(permuted: Codes, candidates: Iterable[Pairs], *, bands: Bands, choice: int) -> Near:
    """Return those of candidate pairs of rows that are within the radius and that no earlier choice reports."""
    found = [Near(np.empty((0, 2), np.int64), np.empty(0, np.int64))]
    for pairs in _batched(candidates):
        differences = np.take(permuted, pairs[0], axis=0) ^ np.take(permuted, pairs[1], axis=0)
        distances = _count_bits(differences)
        near = np.flatnonzero(distances <= bands.radius)
        near = near[~bands.agree_earlier(differences[near], choice)]
        found.append(Near(np.sort(pairs[:, near].T, axis=1), distances[near]))
    return Near(np.concatenate([near.pairs for near in found]), np.concatenate([near.distances for near in found]))


def _count_bits(words: Codes) -> Indices:
    """Return the one bits of each row; column by column, since numpy sums short rows slowly."""
    total = np.zeros(len(words), np.int64)
    for column in np.bitwise_count(words).T:
        total += column
    return total
