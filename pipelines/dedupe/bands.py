"""Which parts of two codes must agree when they are near: the cut into bands, and keys made of them.

Cut a code's bits into `radius + agreeing` bands. Two codes that differ in at most `radius` bits agree in at least
`agreeing` whole bands (pigeonhole), so only codes with an equal key, the values of some choice of that many bands, are
compared:

    radius 3, agreeing 1    |---- band 0 ----|---- band 1 ----|---- band 2 ----|---- band 3 ----|    4 keys of 16 bits
    a ^ b                     x                                  x          x                        1 and 3 agree

More agreeing bands make more keys (sorts) of more bits each (fewer comparisons): 10 keys of 25 bits for 2. The bits of
a perceptual hash are not independent (its low frequencies vary together), which fills some buckets and leaves others
empty; a fixed permutation of the bits before the cut evens them out. Of the choices in which a pair agrees the first
one, in lexicographic order, reports it: once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations
from math import comb

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[np.uint64]  # N x W: W 64-bit words a code, or N where W is 1
Indices = npt.NDArray[np.int64]

WORD_BITS = 64
KEY_BITS = 36  # of a key at most: with a row number beside it, it still fits into a word
PERMUTATION_SEED = 20190911  # of the bits; any would do, it must only never change within a build

# What decides between more keys and more comparisons: measured on two cores, only the time depends on them.
RADIX_NS, SORT_NS, COMPARE_NS = 60.0, 150.0, 1.5  # a code and key of up to 16 bits, of more; a pair
SAMPLE, SAMPLED_KEYS, MAX_KEYS = 1 << 14, 3, 2000
SHUFFLED_KEYS, SHUFFLED_KEY_BITS = 128, 12  # copies of a code that a cluster may shuffle; a key worth having


@dataclass(frozen=True)
class Bands:
    """How codes of `bits` bits are cut so that any two within `radius` share the key of one choice of bands.

    Attributes:
        bits: of a code, a multiple of 64.
        radius: largest distance sought.
        agreeing: bands that make a key, at least 1.
    """

    bits: int
    radius: int
    agreeing: int = 1

    def __post_init__(self) -> None:
        if self.bits <= 0 or self.bits % WORD_BITS or not 0 <= self.radius < self.bits:
            raise ValueError(f"expected a multiple of 64 bits and a radius below it, found {self.bits}, {self.radius}")
        if not 1 <= self.agreeing <= min(KEY_BITS, self.bits - self.radius):
            raise ValueError(f"expected 1..{min(KEY_BITS, self.bits - self.radius)} bands, found {self.agreeing}")

    @property
    def count(self) -> int:
        return self.radius + self.agreeing

    @cached_property
    def edges(self) -> tuple[int, ...]:
        """First bit of each band, and the end: widths differ by at most one."""
        return tuple(self.bits * band // self.count for band in range(self.count + 1))

    @cached_property
    def choices(self) -> tuple[tuple[int, ...], ...]:
        """The bands of each key."""
        return tuple(combinations(range(self.count), self.agreeing))

    def permute(self, words: Codes) -> Codes:
        """Return N x W codes with their bits in banding order; distances stay the same."""
        tables = _permutation(self.bits)
        octets = words.astype("<u8").view(np.uint8)  # N x 8W, least significant first
        permuted: Codes = tables[0][octets[:, 0]]
        for position in range(1, octets.shape[1]):
            permuted |= tables[position][octets[:, position]]
        return permuted

    def width(self, band: int) -> int:
        """Bits of a band that count: a key is never wider than KEY_BITS."""
        return min(self.edges[band + 1] - self.edges[band], KEY_BITS // self.agreeing)

    def values(self, permuted: Codes, band: int) -> Codes:
        """Return the value of one band of each permuted code."""
        width = self.width(band)
        word, shift = divmod(self.edges[band], WORD_BITS)
        values = permuted[:, word] >> np.uint64(shift)
        if shift + width > WORD_BITS:
            values = values | (permuted[:, word + 1] << np.uint64(WORD_BITS - shift))
        return values & np.uint64((1 << width) - 1)

    def keys(self, permuted: Codes, choice: int) -> Codes:
        """Return the key of each permuted code: the values of the bands of a choice, side by side."""
        first, *others = self.choices[choice]
        keys = self.values(permuted, first)
        for band in others:
            keys = (keys << np.uint64(self.width(band))) | self.values(permuted, band)
        return keys

    def key_bits(self, choice: int) -> int:
        return sum(self.width(band) for band in self.choices[choice])

    def word_order(self, choice: int) -> tuple[int, ...]:
        """Return the words of a permuted code, those with most bits outside a choice's bands first."""
        agreeing = np.zeros(self.bits, np.int64)
        for band in self.choices[choice]:
            agreeing[self.edges[band] : self.edges[band + 1]] = 1
        return tuple(np.argsort(agreeing.reshape(-1, WORD_BITS).sum(axis=1), kind="stable").tolist())

    def agree_earlier(self, differences: Codes, choice: int) -> npt.NDArray[np.bool_]:
        """Return for each pair of one bucket whether an earlier choice reports it.

        Args:
            differences: P x W, the XOR of two permuted codes whose keys of `choice` are equal.
            choice: which.
        """
        bands = self.choices[choice]
        agree = np.zeros(len(differences), np.bool_)
        for band in range(bands[-1]):
            if band not in bands:
                agree |= self.values(differences, band) == 0
        return agree


def cheapest_bands(words: Codes, radius: int) -> Bands:
    """Return the cut that takes least time on one machine, as estimated from a sample of the codes.

    Args:
        words: N x W distinct codes; how often their keys collide is counted on every k-th.
        radius: largest distance sought.
    """
    bits = words.shape[1] * WORD_BITS
    sample = words[:: max(1, len(words) // SAMPLE)]
    best, least = Bands(bits=bits, radius=radius), np.inf
    for agreeing in range(1, min(KEY_BITS, bits - radius) + 1):
        keys = comb(radius + agreeing, agreeing)
        if agreeing > 1 and (keys > MAX_KEYS or keys * len(words) * RADIX_NS > least):
            break
        bands = Bands(bits=bits, radius=radius, agreeing=agreeing)
        compared = _collisions(sample, bands) * _pairs(np.array([len(words)]))
        sort_ns = RADIX_NS if bands.key_bits(0) <= 16 else SORT_NS
        cost = keys * (len(words) * sort_ns + compared * COMPARE_NS)
        if cost < least:
            best, least = bands, cost
    return best


def shuffled_bands(bits: int, radius: int) -> Bands:
    """Return the cut for a cluster, where a key of a code is a copy that travels: from the sizes alone."""
    bands = Bands(bits=bits, radius=radius)
    while bands.key_bits(0) < SHUFFLED_KEY_BITS and bands.agreeing < min(KEY_BITS, bits - radius):
        if comb(bands.count + 1, bands.agreeing + 1) > SHUFFLED_KEYS:
            break
        bands = Bands(bits=bits, radius=radius, agreeing=bands.agreeing + 1)
    return bands


def _collisions(sample: Codes, bands: Bands) -> float:
    """Return the share of pairs with equal keys, averaged over some choices."""
    permuted = bands.permute(sample)
    shares = []
    for choice in np.unique(np.linspace(0, len(bands.choices) - 1, SAMPLED_KEYS).astype(int)).tolist():
        _, counts = np.unique(bands.keys(permuted, choice), return_counts=True)
        shares.append(_pairs(counts) / max(1.0, _pairs(np.array([len(sample)]))))
    return float(np.mean(shares))


def _pairs(sizes: Indices) -> float:
    """Return the pairs inside groups of these sizes, in all."""
    return float((sizes * (sizes - 1) / 2).sum())


@lru_cache(maxsize=4)
def _permutation(bits: int) -> Codes:
    """Return 8W x 256 x W: where the bits of each byte of a code go."""
    target = np.random.default_rng(PERMUTATION_SEED).permutation(bits)
    tables = np.zeros((bits // 8, 256, bits // WORD_BITS), np.uint64)
    for bit, place in enumerate(target):
        has_bit = (np.arange(256) >> (bit % 8)) & 1
        word, shift = divmod(int(place), WORD_BITS)
        tables[bit // 8, :, word] |= has_bit.astype(np.uint64) << np.uint64(shift)
    return tables
