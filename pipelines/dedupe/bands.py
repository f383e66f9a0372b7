"""Which bits of two codes must agree when the codes are near: the cut into bands, and keys made of them.

Cut a code's bits into `radius + agreeing` bands. Two codes that differ in at most `radius` bits agree in at least
`agreeing` whole bands (pigeonhole), so only codes with an equal key, the bits of some choice of that many bands, are
compared:

    radius 3, agreeing 1    |---- band 0 ----|---- band 1 ----|---- band 2 ----|---- band 3 ----|    4 keys of 16 bits
    a ^ b                     x                                  x          x                        1 and 3 agree

More agreeing bands make more keys of more bits each, so more sorting and fewer comparisons: 10 keys of 25 bits for 2.
The bits of a perceptual hash are not independent (its low frequencies vary together), which fills some buckets and
leaves others empty, so they are cut in a fixed random order.
"""

from __future__ import annotations

from itertools import combinations
from math import comb, log2

import numpy as np

from pipelines.dedupe.columns import Numbers, Words

WORD_BITS = 64
KEY_BITS = 32  # of a key at most: enough to tell apart the codes that one data set holds
MAX_KEYS = 128  # copies of a code that travel
LOG_BUCKET = 6  # comparing a code with 64 others takes about as long as making one more key of it
PERMUTATION_SEED = 20190911  # any would do, it must only never change within a build


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
