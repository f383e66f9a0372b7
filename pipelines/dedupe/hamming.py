"""Every pair of codes within a Hamming distance: exact, without comparing all pairs.

Cut a code's bits into `radius + agreeing` bands. Two codes that differ in at most `radius` bits agree in at least
`agreeing` whole bands (pigeonhole), so only codes with an equal key, the bits of some choice of that many bands, are
compared:

    radius 3, agreeing 1    |---- band 0 ----|---- band 1 ----|---- band 2 ----|---- band 3 ----|    4 keys of 16 bits
    a ^ b                     x                                  x          x                        1 and 3 agree

More agreeing bands make more keys of more bits each, so more sorting and fewer comparisons: 10 keys of 25 bits for 2.
The bits of a perceptual hash are not independent (its low frequencies vary together), which fills some buckets and
leaves others empty, so they are cut in a fixed random order.

For each key that near codes may share, codes are put in the order of their keys, small buckets first. Then
one step compares each code with the one `shift` rows further on, on whole slices of memory with nothing gathered, and
leaves out the buckets that are too small to hold both:

    buckets  a a | b b | c c c | d d d d        shift 1  all rows
                                                shift 2      from c on
                                                shift 3            from d on

Two codes of different buckets that meet this way and are near are near all the same; what meets in several keys is
found in each. Codes of several words are compared by their first words, and by the next where these are near.
"""

from collections.abc import Iterable, Iterator
from itertools import combinations
from math import comb, log2

import numpy as np

from pipelines.partitions.columns import Numbers, Words, starts_of_runs

WORD_BITS = 64
KEY_BITS = 32  # of a key at most: enough to tell apart the codes that one data set holds
MAX_KEYS = 128  # copies of a code that travel
LOG_BUCKET = 6  # comparing a code with 64 others takes about as long as making one more key of it
PERMUTATION_SEED = 20190911  # any would do, it must only never change within a build
ROWS_AT_ONCE = 1 << 15  # compared in one go: what this takes stays in the cache
PAIRS_AT_ONCE = 1 << 18  # told in one go

Pairs = Numbers  # 2 x P rows: the first and the second code of each pair


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


def key_bits(bits: int, *, radius: int, count: int) -> list[Numbers]:
    """Return for each key the bits of a code it is made of, 0 being the lowest bit of the first word.

    Args:
        bits: of a code, a multiple of 64.
        radius: largest distance sought.
        count: codes there are, about: more codes need longer keys.
    """
    if bits % WORD_BITS or not 0 <= radius < bits:
        raise ValueError(f"expected a multiple of 64 bits and a radius below it, found {bits}, {radius}")
    agreeing, wanted = 1, log2(max(1, count)) - LOG_BUCKET
    while agreeing * (bits // (radius + agreeing)) < wanted and comb(radius + agreeing + 1, radius) <= MAX_KEYS:
        agreeing += 1
    bands = np.array_split(np.random.default_rng(PERMUTATION_SEED).permutation(bits), radius + agreeing)
    return [np.concatenate(chosen)[:KEY_BITS] for chosen in combinations(bands, agreeing)]


def keys_of(codes: Words, bits: Numbers) -> Numbers:
    """Return the key of each of N codes that is made of some of its bits."""
    keys = np.zeros(len(codes), np.uint32)
    for word, shift in zip(*np.divmod(bits, WORD_BITS), strict=True):
        keys <<= np.uint32(1)
        keys |= ((codes[:, word] >> np.uint64(shift)) & np.uint64(1)).astype(np.uint32)
    return keys.astype(np.int64)
