"""The cut into bands that fits given codes: which bits a band has, and how many bands make a key.

Only the time of a search depends on it, never the answer, so it is decided from a sample. What costs time beyond the
sorting is pairs with an equal key. Of two codes drawn at random, the n bits of a band agree with probability

    2^-n  sum over sets S of its bits of m_S^2,    m_S: mean over the codes of the product of the bits of S as -1, +1

(Parseval's identity on the distribution of the band's values): 2^-n for independent even bits, several times as much
where bits vary together. The pairs {i, j} weigh most among the sets that an order can bring together or take apart.
"""

from __future__ import annotations

from dataclasses import replace
from math import comb

import numpy as np
import numpy.typing as npt

from pipelines.dedupe.bands import KEY_BITS, WORD_BITS, Bands, Codes, Indices
from pipelines.dedupe.radix import DIGIT_BITS

Dependence = npt.NDArray[np.float64]  # B x B: m_ij^2 of two bits, 0 of a bit with itself

# What decides between more keys and more comparisons: measured on two cores.
KEY_NS, DIGIT_NS, COMPARE_NS = 20.0, 20.0, 0.9  # a code and key, and each digit it is sorted by; a pair
SAMPLE, SAMPLED_KEYS, MAX_KEYS = 1 << 14, 3, 2000
ORDER_SAMPLE = 1 << 12  # codes that the dependence of bits is estimated from


def cheapest_bands(words: Codes, radius: int) -> Bands:
    """Return the cut that takes least time on one machine, as estimated from a sample of the codes.

    Args:
        words: N x W distinct codes; how often their keys collide is counted on every k-th.
        radius: largest distance sought.
    """
    bits = words.shape[1] * WORD_BITS
    sample, dependence = _every(words, SAMPLE), dependence_of_bits(_every(words, ORDER_SAMPLE))
    best, least = Bands(bits=bits, radius=radius), np.inf
    for agreeing in range(1, min(KEY_BITS, bits - radius) + 1):
        keys = comb(radius + agreeing, agreeing)
        if agreeing > 1 and (keys > MAX_KEYS or keys * len(words) * (KEY_NS + DIGIT_NS) > least):
            break
        bands = spread_bits(Bands(bits=bits, radius=radius, agreeing=agreeing), dependence)
        compared = _collisions(sample, bands) * _pairs(np.array([len(words)]))
        digits = -(-bands.key_bits(0) // DIGIT_BITS)
        cost = keys * (len(words) * (KEY_NS + digits * DIGIT_NS) + compared * COMPARE_NS)
        if cost < least:
            best, least = bands, cost
    return best


def spread_bits(bands: Bands, dependence: Dependence) -> Bands:
    """Return the same cut of bits in another order: bits that vary together are in different bands.

    Greedy: those that depend most on all others come first, each into the band, among those with room, where it depends
    least on what is there; the places that no key reads take any.

    Args:
        bands: the cut.
        dependence: B x B, of the bits of a code.
    """
    room = [list(range(first, first + bands.width(band))) for band, first in enumerate(bands.edges[:-1])]
    room.append(sorted(set(range(bands.bits)).difference(*room)))
    depends = np.zeros((bands.bits, len(room)))  # of each bit, on the bits of a band
    order = np.empty(bands.bits, np.int64)
    is_full = np.array([not places for places in room])
    for bit in np.argsort(-dependence.sum(axis=1), kind="stable").tolist():
        band = int(np.where(is_full, np.inf, depends[bit]).argmin())
        order[room[band].pop()] = bit
        is_full[band] = not room[band]
        if band < bands.count:
            depends[:, band] += dependence[bit]
    return replace(bands, order=tuple(order.tolist()))


def dependence_of_bits(sample: Codes) -> Dependence:
    """Return m_ij^2 for any two bits of N x W codes: from sums of whole numbers, so the same on any machine."""
    octets = sample.astype("<u8").view(np.uint8)
    signs = 2 * np.unpackbits(octets, axis=1, bitorder="little").astype(np.float32) - 1
    dependence: Dependence = np.square((signs.T @ signs).astype(np.float64) / max(1, len(signs)))
    np.fill_diagonal(dependence, 0)
    return dependence


def _every(words: Codes, most: int) -> Codes:
    """Return every k-th code, about `most` in all."""
    return words[:: max(1, len(words) // most)]


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
