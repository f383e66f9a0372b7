"""Every pair of codes within a Hamming distance: exact, without comparing all pairs.

Cut a code's bits into `radius + 1` bands. Two codes that differ in at most `radius` bits agree in at least one whole
band (pigeonhole), so only codes with an equal band are compared:

    radius 3    |---- band 0 ----|---- band 1 ----|---- band 2 ----|---- band 3 ----|    64 bits, 4 bands of 16
    a ^ b         x                                  x          x                        bands 1 and 3 agree

The bits of a perceptual hash are not independent (its low frequencies vary together), which fills some buckets and
leaves others empty; a fixed permutation of the bits before the cut evens them out. A pair is reported by the first band
in which it agrees, hence once. Equal codes are collapsed before the search: a million equal codes are one code.

Plain functions on arrays; the Beam transform and the plain path share them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[np.uint64]  # N x W: W 64-bit words a code, or N where W is 1
Indices = npt.NDArray[np.int64]

WORD_BITS = 64
PERMUTATION_SEED = 20190911  # of the bits; any would do, it must only never change within a build
PAIRS_AT_ONCE = 1 << 16  # compared in one go: the 3 MB this takes stay in the cache (8 times as many: half the speed)


@dataclass(frozen=True, slots=True)
class NearPairs:
    """Pairs of distinct codes.

    Attributes:
        codes: U x W distinct codes, sorted.
        group: for each of the N codes given, its row in `codes`.
        pairs: P x 2 rows of `codes`, first < second, sorted.
        distances: P distances in bits, 1..radius.
    """

    codes: Codes
    group: Indices
    pairs: Indices
    distances: Indices


def near_pairs(codes: Codes, radius: int) -> NearPairs:
    """Return every pair of distinct codes that differ in at most `radius` bits, each once.

    Args:
        codes: N, or N x W for codes of W words; equal codes may repeat.
        radius: in bits, at least 0 and less than the number of bits.
    """
    words = codes[:, None] if codes.ndim == 1 else codes
    distinct, group = _collapse(words)
    bands = Bands(bits=distinct.shape[1] * WORD_BITS, radius=radius)
    permuted = bands.permute(distinct)
    found = [_pairs_of_band(permuted, bands, band) for band in range(bands.count)]
    pairs = np.concatenate([np.sort(pairs, axis=1) for pairs, _ in found])
    distances = np.concatenate([distances for _, distances in found])
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    return NearPairs(codes=distinct, group=group, pairs=pairs[order], distances=distances[order])


@dataclass(frozen=True)
class Bands:
    """How codes of `bits` bits are cut so that any two within `radius` agree in one band.

    Attributes:
        bits: of a code, a multiple of 64.
        radius: largest distance sought.
    """

    bits: int
    radius: int

    def __post_init__(self) -> None:
        if self.bits % WORD_BITS or not 0 <= self.radius < self.bits:
            raise ValueError(f"expected a multiple of 64 bits and a radius below it, found {self.bits}, {self.radius}")

    @property
    def count(self) -> int:
        return self.radius + 1

    @cached_property
    def edges(self) -> tuple[int, ...]:
        """First bit of each band, and the end: widths differ by at most one."""
        return tuple(self.bits * band // self.count for band in range(self.count + 1))

    def permute(self, words: Codes) -> Codes:
        """Return N x W codes with their bits in banding order; distances stay the same."""
        tables = _permutation(self.bits)
        octets = words.astype("<u8").view(np.uint8)  # N x 8W, least significant first
        permuted: Codes = tables[0][octets[:, 0]]
        for position in range(1, octets.shape[1]):
            permuted |= tables[position][octets[:, position]]
        return permuted

    def keys(self, permuted: Codes, band: int) -> Codes:
        """Return the value of one band of each permuted code (its first 64 bits, where a band is wider)."""
        start, end = self.edges[band], self.edges[band + 1]
        width = min(end - start, WORD_BITS)
        word, shift = divmod(start, WORD_BITS)
        keys = permuted[:, word] >> np.uint64(shift)
        if shift + width > WORD_BITS:
            keys = keys | (permuted[:, word + 1] << np.uint64(WORD_BITS - shift))
        return keys & np.uint64((1 << width) - 1)

    def agree_earlier(self, differences: Codes, band: int) -> npt.NDArray[np.bool_]:
        """Return for each difference (XOR of two permuted codes, P x W) whether a band before `band` agrees."""
        agree = np.zeros(len(differences), np.bool_)
        for earlier in range(band):
            agree |= self.keys(differences, earlier) == 0
        return agree


def pairs_in_buckets(
    permuted: Codes, buckets: Sequence[tuple[int, int]] | Indices, *, bands: Bands, band: int
) -> tuple[Indices, Indices]:
    """Return the pairs within the radius inside buckets of one band, and their distances.

    Only pairs that no earlier band reports are returned.

    Args:
        permuted: N x W codes in banding order, distinct, equal keys of the band side by side.
        buckets: B x 2 rows of `permuted`: where a bucket starts and ends.
        bands: the cut.
        band: which band.
    """
    columns = np.ascontiguousarray(permuted.T)
    pairs, distances = [np.empty((0, 2), np.int64)], [np.empty(0, np.int64)]
    for first, second in _candidates(np.asarray(buckets, np.int64).reshape(-1, 2)):
        distance = np.zeros(len(first), np.uint16)
        for column in columns:
            distance += np.bitwise_count(column[first] ^ column[second])
        near = np.flatnonzero(distance <= bands.radius)
        near = near[~bands.agree_earlier(permuted[first[near]] ^ permuted[second[near]], band)]
        pairs.append(np.stack([first[near], second[near]], axis=1))
        distances.append(distance[near].astype(np.int64))
    return np.concatenate(pairs), np.concatenate(distances)


def parse_fingerprints(fingerprints: Sequence[str]) -> Codes:
    """Return fingerprints of equal length, a multiple of 16 hexadecimal digits, as N x W codes."""
    if not fingerprints:
        return np.empty((0, 1), np.uint64)
    octets = np.frombuffer(bytes.fromhex("".join(fingerprints)), dtype=">u8")
    return octets.reshape(len(fingerprints), -1).astype(np.uint64)


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


def _collapse(words: Codes) -> tuple[Codes, Indices]:
    if words.shape[1] == 1:
        distinct, group = np.unique(words[:, 0], return_inverse=True)
        return distinct[:, None], group.astype(np.int64)
    distinct, group = np.unique(words, axis=0, return_inverse=True)
    return distinct, group.reshape(-1).astype(np.int64)


def _pairs_of_band(permuted: Codes, bands: Bands, band: int) -> tuple[Indices, Indices]:
    """Return the pairs (rows of `permuted`) that `band` reports, and their distances."""
    keys = bands.keys(permuted, band)
    order = np.argsort(keys.astype(np.uint16) if keys.max(initial=0) < 1 << 16 else keys, kind="stable")
    starts = np.flatnonzero(np.diff(keys[order], prepend=~keys[order[:1]]))
    edges = np.append(starts, len(keys))
    buckets = np.stack([edges[:-1], edges[1:]], axis=1)
    pairs, distances = pairs_in_buckets(permuted[order], buckets, bands=bands, band=band)
    return order[pairs].astype(np.int64), distances


def _candidates(buckets: Indices) -> Iterator[tuple[Indices, Indices]]:
    """Yield every pair of rows inside a bucket, PAIRS_AT_ONCE or the pairs of one row at a time."""
    sizes = buckets[:, 1] - buckets[:, 0]
    buckets, sizes = buckets[sizes > 1], sizes[sizes > 1]
    rows = np.repeat(buckets[:, 0] - np.append(0, np.cumsum(sizes)[:-1]), sizes) + np.arange(sizes.sum())
    partners = np.repeat(buckets[:, 1], sizes) - rows - 1  # later rows of the same bucket
    total = np.cumsum(partners)
    begin = 0
    while begin < len(rows):
        done = total[begin] - partners[begin]
        end = max(begin + 1, int(np.searchsorted(total, done + PAIRS_AT_ONCE, side="right")))
        count = partners[begin:end]
        first = np.repeat(rows[begin:end], count)
        within = np.arange(len(first)) - np.repeat(total[begin:end] - count - done, count)
        yield first, first + 1 + within
        begin = end
