"""Every pair of codes within a Hamming distance: exact, without comparing all pairs.

Equal codes are collapsed before the search: a million equal codes are one code. Then, for each key that near codes may
share (`bands`), codes are sorted by it and those with equal keys compared (`buckets`).

Plain functions on arrays, for one machine; `transforms` does the same on a cluster with the same parts.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from pipelines.dedupe.bands import WORD_BITS, Bands, Codes, Indices
from pipelines.dedupe.buckets import Near, near_in_buckets
from pipelines.dedupe.fitted_bands import cheapest_bands
from pipelines.dedupe.radix import runs, sort_keys

LEADING_BITS = 32  # that codes are sorted by first: few different codes tie
THREADS = 4  # at most, each with a key of its own: numpy lets the others run while it sorts and compares
MANY = 1 << 20  # codes: with fewer, threads gain little, and keep memory of their own


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
        bands = replace(bands, agreeing=agreeing)
    permuted = bands.permute(distinct)
    pairs_of, choices = partial(_pairs_of_choice, permuted, bands), range(len(bands.choices))
    if len(distinct) < MANY:
        found = list(map(pairs_of, choices))
    else:
        with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool:
            found = list(pool.map(pairs_of, choices))
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
    ordered = np.take(words, order, axis=0)
    is_new = np.append(np.ones(min(len(words), 1), np.bool_), (ordered[1:] != ordered[:-1]).any(axis=1))
    group = np.empty(len(words), np.int64)
    group[order] = np.cumsum(is_new) - 1
    return ordered[is_new], group


def _sorted_order(words: Codes) -> Indices:
    """Return the order that sorts rows by their words: by the first bits of all, then the few that tie by all bits."""
    order, leading = sort_keys(words[:, 0] >> np.uint64(WORD_BITS - LEADING_BITS), bits=LEADING_BITS)
    is_like_next = np.append(leading[1:] == leading[:-1], False)
    tied = np.flatnonzero(is_like_next | np.roll(is_like_next, 1))
    order[tied] = order[tied][np.lexsort(words[order[tied]].T[::-1])]
    return order


def _pairs_of_choice(permuted: Codes, bands: Bands, choice: int) -> Near:
    """Return the pairs (rows of `permuted`) that one choice of bands reports, and their distances."""
    order, ordered = sort_keys(bands.keys(permuted, choice), bits=bands.key_bits(choice))
    pairs, distances = near_in_buckets(np.take(permuted, order, axis=0), runs(ordered), bands=bands, choice=choice)
    return Near(order[pairs], distances)
