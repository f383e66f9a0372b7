"""Every pair of codes within a Hamming distance: exact, without comparing all pairs.

For each key that near codes may share (`bands`), codes are put in the order of their keys, small buckets first. Then
one step compares each code with the one `shift` rows further on, on whole slices of memory with nothing gathered, and
leaves out the buckets that are too small to hold both:

    buckets  a a | b b | c c c | d d d d        shift 1  all rows
                                                shift 2      from c on
                                                shift 3            from d on

Two codes of different buckets that meet this way and are near are near all the same; what meets in several keys is
found in each. Codes of several words are compared by their first words, and by the next where these are near.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from pipelines.dedupe.bands import WORD_BITS, key_bits, keys_of
from pipelines.dedupe.columns import Numbers, Words, starts_of_runs

ROWS_AT_ONCE = 1 << 15  # compared in one go: what this takes stays in the cache
PAIRS_AT_ONCE = 1 << 18  # told in one go

Pairs = Numbers  # 2 x P rows: the first and the second code of each pair


def near_pairs(codes: Words, radius: int) -> tuple[Pairs, Numbers]:
    """Return every pair of rows, the first before the second, sorted, within the radius, and their distances.

    Args:
        codes: N x W distinct codes.
        radius: in bits, at least 0 and less than the number of bits.
    """
    found = [np.empty((2, 0), np.int64)]
    for bits in key_bits(codes.shape[1] * WORD_BITS, radius=radius, count=len(codes)):
        found += [np.sort(pairs, axis=0) for pairs, _ in near_rows(codes, keys_of(codes, bits), radius)]
    first, second = np.concatenate(found, axis=1)
    pairs = np.stack(np.divmod(np.unique(first * len(codes) + second), max(1, len(codes))))
    return pairs, np.bitwise_count(codes[pairs[0]] ^ codes[pairs[1]]).sum(axis=1, dtype=np.int64)


def near_rows(codes: Words, keys: Numbers, radius: int) -> Iterator[tuple[Pairs, Numbers]]:
    """Yield pairs of rows within the radius and their distances, many at once.

    Every pair with equal keys is among them, once. Others may be.

    Args:
        codes: N x W distinct codes.
        keys: N keys.
        radius: in bits.
    """
    order, sizes = rows_by_bucket(keys)
    for first, second, distances in _batched(_near_slices(np.ascontiguousarray(codes[order].T), sizes, radius)):
        yield order[np.stack([first, second])], distances


def rows_by_bucket(keys: Numbers) -> tuple[Numbers, Numbers]:
    """Return the rows that share their key with others, bucket after bucket, and the size of each row's bucket.

    Small buckets come first.
    """
    short = keys.astype(np.min_scalar_type(keys.max(initial=0)))  # numpy sorts 16 bits in linear time
    order = np.argsort(short, kind="stable")
    sizes = np.diff(starts_of_runs(short[order]), append=len(order))
    sizes = np.repeat(sizes, sizes)
    order, sizes = order[sizes > 1], sizes[sizes > 1]
    by_size = np.argsort(sizes, kind="stable")
    return order[by_size], sizes[by_size]


def _near_slices(words: Words, sizes: Numbers, radius: int) -> Iterator[Numbers]:
    """Yield 3 x P near pairs and their distances: of codes in the order of `rows_by_bucket`.

    Args:
        words: W x N, the words of each code.
        sizes: N, of their buckets.
        radius: in bits.
    """
    for shift in range(1, int(sizes.max(initial=1))):
        first, end = int(np.searchsorted(sizes, shift, side="right")), len(sizes) - shift
        for start in range(first, end, ROWS_AT_ONCE):
            stop = min(end, start + ROWS_AT_ONCE)
            bits = np.bitwise_count(words[0, start:stop] ^ words[0, start + shift : stop + shift])
            (near,) = (bits <= radius).nonzero()
            if not len(near):
                continue
            near, distances = near + start, bits[near].astype(np.int64)
            for word in words[1:]:
                distances += np.bitwise_count(word[near] ^ word[near + shift])
                near, distances = near[distances <= radius], distances[distances <= radius]
            yield np.stack([near, near + shift, distances])


def _batched(parts: Iterable[Numbers]) -> Iterator[Numbers]:
    """Yield the same columns, many at once."""
    batch: list[Numbers] = []
    held = 0
    for pairs in parts:
        batch.append(pairs)
        held += pairs.shape[1]
        if held >= PAIRS_AT_ONCE:
            yield np.concatenate(batch, axis=1)
            batch, held = [], 0
    if batch:
        yield np.concatenate(batch, axis=1)
