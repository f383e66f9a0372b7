"""Comparing within buckets: every two codes of one meet once, whatever its size and the words of a code."""

from itertools import combinations

import numpy as np
import pytest

from pipelines.dedupe import buckets
from pipelines.dedupe.bands import Bands
from pipelines.dedupe.buckets import near_between, near_in_buckets
from pipelines.dedupe.hamming import near_pairs


def distinct_codes(count: int, words: int = 1) -> np.ndarray:
    codes = np.random.default_rng(count).integers(0, 2**64, (count, words), dtype=np.uint64)
    codes[:, 0] = np.arange(count)
    return codes


@pytest.mark.parametrize("pairs_at_once", [1, 10, buckets.PAIRS_AT_ONCE])
def test_buckets_of_any_size_meet_themselves_once(monkeypatch: pytest.MonkeyPatch, pairs_at_once: int) -> None:
    """Radius 63: of a bucket any two are near, of two buckets none are asked for."""
    monkeypatch.setattr(buckets, "PAIRS_AT_ONCE", pairs_at_once)
    sizes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 20, 2, 3]
    ends = np.cumsum(sizes)
    codes = distinct_codes(sum(sizes))
    near = near_in_buckets(codes, np.stack([ends - sizes, ends], axis=1), bands=Bands(bits=64, radius=63), choice=0)
    expected = [pair for end, size in zip(ends, sizes, strict=True) for pair in combinations(range(end - size, end), 2)]
    assert sorted(map(tuple, near.pairs.tolist())) == expected
    distances = [(int(codes[a, 0]) ^ int(codes[b, 0])).bit_count() for a, b in near.pairs]
    assert near.distances.tolist() == distances


def test_two_blocks_meet_each_other_and_not_themselves() -> None:
    near = near_between(distinct_codes(7), 3, bands=Bands(bits=64, radius=63), choice=0)
    assert sorted(map(tuple, near.pairs.tolist())) == [(a, b) for a in range(3) for b in range(3, 7)]


@pytest.mark.parametrize("word", range(4))
def test_codes_that_differ_in_one_word_alone_are_told_apart_by_it(word: int) -> None:
    """Every pair passes by the other words, so that all words are compared."""
    codes = np.full((300, 4), 5, np.uint64)
    codes[:, word] = np.arange(300)
    near = near_pairs(codes, 2)
    differing = np.bitwise_count(near.codes[:, None, word] ^ near.codes[None, :, word])
    first, second = np.nonzero(np.triu((differing <= 2) & (differing > 0)))
    np.testing.assert_array_equal(near.pairs, np.stack([first, second], axis=1))
    np.testing.assert_array_equal(near.distances, differing[first, second])


def test_codes_256_bits_apart_are_not_taken_for_equal() -> None:
    """Passing pairs are counted in a byte, and 256 is 0 in it."""
    codes = np.zeros((2 * 64, 8), np.uint64)
    codes[:, 2] = np.uint64(1) << np.tile(np.arange(64, dtype=np.uint64), 2)
    codes[64:, 4:] = np.uint64(2**64 - 1)
    near = near_in_buckets(codes, np.array([[0, len(codes)]]), bands=Bands(bits=512, radius=3), choice=0)
    expected = [pair for first in (0, 64) for pair in combinations(range(first, first + 64), 2)]
    assert sorted(map(tuple, near.pairs.tolist())) == expected
    assert set(near.distances.tolist()) == {2}
