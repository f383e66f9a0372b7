"""Every pair of codes within a Hamming distance: exact, without comparing all pairs.

Equal codes are collapsed before the search: a million equal codes are one code. Then, for each key that near codes may
share (`bands`), codes are sorted by it and those with equal keys compared (`buckets`).

Plain functions on arrays, for one machine; `transforms` does the same on a cluster with the same parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipelines.dedupe.bands import Bands, Codes, Indices, cheapest_bands
from pipelines.dedupe.buckets import Near, near_in_buckets

RADIX_BITS = 16  # numpy sorts numbers of up to 16 bits by radix


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


def near_pairs(codes: Codes, radius: int, *, agreeing: int | None = None) -> NearPairs:
    """Return every pair of distinct codes that differ in at most `radius` bits, each once.

    Args:
        codes: N, or N x W for codes of W words; equal codes may repeat.
        radius: in bits, at least 0 and less than the number of bits.
        agreeing: bands that make a key (`Bands`); chosen by estimated time where None. The answer is the same.
    """
    distinct, group = _collapse(codes[:, None] if codes.ndim == 1 else codes)
    bands = cheapest_bands(distinct, radius)
    if agreeing is not None:
        bands = Bands(bits=bands.bits, radius=radius, agreeing=agreeing)
    permuted = bands.permute(distinct)
    found = [_pairs_of_choice(permuted, bands, choice) for choice in range(len(bands.choices))]
    pairs = np.concatenate([np.sort(near.pairs, axis=1) for near in found])
    distances = np.concatenate([near.distances for near in found])
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    return NearPairs(codes=distinct, group=group, pairs=pairs[order], distances=distances[order])


def parse_fingerprints(fingerprints: Sequence[str]) -> Codes:
    """Return fingerprints of equal length, a multiple of 16 hexadecimal digits, as N x W codes."""
    if not fingerprints:
        return np.empty((0, 1), np.uint64)
    octets = np.frombuffer(bytes.fromhex("".join(fingerprints)), dtype=">u8")
    return octets.reshape(len(fingerprints), -1).astype(np.uint64)


def _collapse(words: Codes) -> tuple[Codes, Indices]:
    """Return the distinct rows, sorted, and for each row its place among them."""
    order = _sorted_order(words)
    ordered = words[order]
    is_new = np.append(np.ones(min(len(words), 1), np.bool_), (ordered[1:] != ordered[:-1]).any(axis=1))
    group = np.empty(len(words), np.int64)
    group[order] = np.cumsum(is_new) - 1
    return ordered[is_new], group


def _sorted_order(words: Codes) -> Indices:
    """Return the order that sorts rows by their words: by the first bits of all, then the few that tie by all bits."""
    shift = np.uint64(_row_bits(words))
    order, leading = _sort_keys(words[:, 0] >> shift, bits=64 - int(shift))
    starts = _starts(leading)
    sizes = np.diff(starts, append=len(words))
    tied = np.flatnonzero(np.repeat(sizes > 1, sizes))
    order[tied] = order[tied][np.lexsort(words[order[tied]].T[::-1])]
    return order


def _sort_keys(keys: Codes, *, bits: int) -> tuple[Indices, npt.NDArray[np.unsignedinteger]]:
    """Return the order that sorts keys of so many bits, and the keys in it: a key and its row sort as one number."""
    if bits <= RADIX_BITS:
        short = keys.astype(np.uint16)
        order = np.argsort(short, kind="stable").astype(np.int64, copy=False)
        return order, short[order]
    row_bits = np.uint64(_row_bits(keys))
    packed = np.sort((keys << row_bits) | np.arange(len(keys), dtype=np.uint64))
    return (packed & ((np.uint64(1) << row_bits) - np.uint64(1))).astype(np.int64), packed >> row_bits


def _starts(ordered: npt.NDArray[np.unsignedinteger]) -> Indices:
    """Return where each run of equal keys starts."""
    return np.flatnonzero(np.append(np.ones(min(len(ordered), 1), np.bool_), ordered[1:] != ordered[:-1]))


def _row_bits(rows: npt.NDArray[np.uint64]) -> int:
    return max(1, (len(rows) - 1).bit_length())


def _pairs_of_choice(permuted: Codes, bands: Bands, choice: int) -> Near:
    """Return the pairs (rows of `permuted`) that one choice of bands reports, and their distances."""
    order, ordered = _sort_keys(bands.keys(permuted, choice), bits=bands.key_bits(choice))
    starts = _starts(ordered)
    buckets = np.stack([starts, starts + np.diff(starts, append=len(ordered))], axis=1)
    pairs, distances = near_in_buckets(np.take(permuted, order, axis=0), buckets, bands=bands, choice=choice)
    return Near(order[pairs], distances)
