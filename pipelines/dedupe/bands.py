"""Which parts of two codes must agree when they are near: the cut into bands, and keys made of them.

Cut a code's bits into `radius + agreeing` bands. Two codes that differ in at most `radius` bits agree in at least
`agreeing` whole bands (pigeonhole), so only codes with an equal key, the values of some choice of that many bands, are
compared:

    radius 3, agreeing 1    |---- band 0 ----|---- band 1 ----|---- band 2 ----|---- band 3 ----|    4 keys of 16 bits
    a ^ b                     x                                  x          x                        1 and 3 agree

More agreeing bands make more keys (sorts) of more bits each (fewer comparisons): 10 keys of 25 bits for 2. The bits of
a perceptual hash are not independent (its low frequencies vary together), which fills some buckets and leaves others
empty, so they are put into another order before the cut: a fixed one, or one that fits the codes (`fitted_bands`). Of
the choices in which a pair agrees the first one, in lexicographic order, reports it: once.
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
KEY_BITS = 36  # of a key at most: enough to tell apart the codes that one machine holds
PERMUTATION_SEED = 20190911  # of the fixed order; any would do, it must only never change within a build
PERMUTED_AT_ONCE = 1 << 13  # codes: what their bytes take stays in the cache
SHUFFLED_KEYS, SHUFFLED_KEY_BITS = 128, 12  # copies of a code that a cluster may shuffle; a key worth having


@dataclass(frozen=True)
class Bands:
    """How codes of `bits` bits are cut so that any two within `radius` share the key of one choice of bands.

    Attributes:
        bits: of a code, a multiple of 64.
        radius: largest distance sought.
        agreeing: bands that make a key, at least 1.
        order: the bit of a code (64 x word + place in it, lowest first) at each place before the cut; a fixed random
            order where empty.
    """

    bits: int
    radius: int
    agreeing: int = 1
    order: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.bits <= 0 or self.bits % WORD_BITS or not 0 <= self.radius < self.bits:
            raise ValueError(f"expected a multiple of 64 bits and a radius below it, found {self.bits}, {self.radius}")
        if not 1 <= self.agreeing <= min(KEY_BITS, self.bits - self.radius):
            raise ValueError(f"expected 1..{min(KEY_BITS, self.bits - self.radius)} bands, found {self.agreeing}")
        if self.order and sorted(self.order) != list(range(self.bits)):
            raise ValueError(f"expected an order of {self.bits} bits, found {self.order}")

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
        tables = _permutation(self.order or _fixed_order(self.bits))
        permuted = np.empty_like(words)
        for begin in range(0, len(words), PERMUTED_AT_ONCE):
            some = permuted[begin : begin + PERMUTED_AT_ONCE]
            octets = words[begin : begin + len(some)].astype("<u8").view(np.uint8)  # least significant first
            places = octets.T.astype(np.intp, order="C")  # 8W x n
            bits = np.empty_like(some)
            np.take(tables[0], places[0], axis=0, out=some, mode="clip")  # a mode without a copy of `out`
            for table, place in zip(tables[1:], places[1:], strict=True):
                some |= np.take(table, place, axis=0, out=bits, mode="clip")
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


def shuffled_bands(bits: int, radius: int) -> Bands:
    """Return the cut for a cluster, where a key of a code is a copy that travels: from the sizes alone."""
    bands = Bands(bits=bits, radius=radius)
    while bands.key_bits(0) < SHUFFLED_KEY_BITS and bands.agreeing < min(KEY_BITS, bits - radius):
        if comb(bands.count + 1, bands.agreeing + 1) > SHUFFLED_KEYS:
            break
        bands = Bands(bits=bits, radius=radius, agreeing=bands.agreeing + 1)
    return bands


@lru_cache(maxsize=4)
def _fixed_order(bits: int) -> tuple[int, ...]:
    return tuple(np.argsort(np.random.default_rng(PERMUTATION_SEED).permutation(bits)).tolist())


@lru_cache(maxsize=4)
def _permutation(order: tuple[int, ...]) -> Codes:
    """Return 8W x 256 x W: where the bits of each byte of a code go."""
    tables = np.zeros((len(order) // 8, 256, len(order) // WORD_BITS), np.uint64)
    for place, bit in enumerate(order):
        has_bit = (np.arange(256) >> (bit % 8)) & 1
        word, shift = divmod(place, WORD_BITS)
        tables[bit // 8, :, word] |= has_bit.astype(np.uint64) << np.uint64(shift)
    return tables
