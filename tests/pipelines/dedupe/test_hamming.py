"""Exact near pairs, against a comparison of all pairs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.dedupe import buckets, hamming
from pipelines.dedupe.bands import KEY_BITS, Bands, shuffled_bands
from pipelines.dedupe.fitted_bands import cheapest_bands
from pipelines.dedupe.hamming import near_pairs, parse_fingerprints

Pair = tuple[tuple[int, ...], tuple[int, ...], int]  # two codes and their distance


def as_rows(codes: np.ndarray) -> np.ndarray:
    return codes[:, None] if codes.ndim == 1 else codes


def brute_force(codes: np.ndarray, radius: int) -> set[Pair]:
    """Return every pair of distinct codes within the radius, by value, comparing all with all."""
    distinct = sorted({tuple(code) for code in as_rows(codes).tolist()})
    found = set()
    for place, first in enumerate(distinct):
        for second in distinct[place + 1 :]:
            distance = sum((a ^ b).bit_count() for a, b in zip(first, second, strict=True))
            if distance <= radius:
                found.add((first, second, distance))
    return found


def by_value(codes: np.ndarray, radius: int, agreeing: int | None = None) -> set[Pair]:
    near = near_pairs(codes, radius, agreeing=agreeing)
    np.testing.assert_array_equal(near.codes[near.group], as_rows(codes))
    assert (near.pairs[:, 0] < near.pairs[:, 1]).all()
    rows = [tuple(code) for code in near.codes.tolist()]
    found = [
        (rows[first], rows[second], distance)
        for (first, second), distance in zip(near.pairs.tolist(), near.distances.tolist(), strict=True)
    ]
    assert len(found) == len(set(found)), "a pair was reported twice"
    assert found == sorted(found)
    return set(found)


@st.composite
def adversarial_codes(draw: st.DrawFn) -> np.ndarray:
    """Codes near a few centres: many equal, many within some bits, some in one band alone, some with repeated bits."""
    words = draw(st.sampled_from([1, 1, 1, 2, 4, 8]))
    seed = draw(st.integers(0, 2**32 - 1))
    random = np.random.default_rng(seed)
    centres = random.integers(0, 2**64, (draw(st.integers(1, 4)), words), dtype=np.uint64)
    count = draw(st.integers(0, 60))
    codes = centres[random.integers(0, len(centres), count)]
    flips = random.integers(0, draw(st.integers(1, 14)), count)
    spread = draw(st.sampled_from([8, 16, 64 * words]))
    for code, times in zip(codes, flips, strict=True):
        for bit in random.integers(0, spread, times):
            code[bit // 64] ^= np.uint64(1 << int(bit % 64))
    if draw(st.booleans()):
        codes |= codes << np.uint64(1)
    return codes[:, 0] if words == 1 else codes


@given(adversarial_codes(), st.integers(0, 12), st.sampled_from([None, None, 1, 2, 3]))
@settings(max_examples=150, deadline=None)
def test_pairs_are_exactly_those_of_brute_force(codes: np.ndarray, radius: int, agreeing: int | None) -> None:
    assert by_value(codes, radius, agreeing) == brute_force(codes, radius)


@pytest.mark.parametrize("words", [1, 2, 4])
@pytest.mark.parametrize(("radius", "agreeing"), [(3, 1), (3, 2), (3, 4), (10, 1), (10, 2), (12, 2)])
def test_codes_of_any_width_in_balls_that_overlap(words: int, radius: int, agreeing: int) -> None:
    """Many pairs at every distance, compared with a matrix of all distances."""
    random = np.random.default_rng(words * radius)
    codes = random.integers(0, 2**64, (3, words), dtype=np.uint64)[random.integers(0, 3, 400)]
    for _ in range(9):
        rows = np.flatnonzero(random.random(len(codes)) < 0.4)
        place = random.integers(0, 64 * words, len(rows))
        codes[rows, place // 64] ^= np.uint64(1) << (place % 64).astype(np.uint64)
    near = near_pairs(codes, radius, agreeing=agreeing)
    distances = np.bitwise_count(near.codes[:, None] ^ near.codes[None]).sum(-1, dtype=np.int64)
    first, second = np.nonzero(np.triu(distances <= radius, k=1))
    assert len(first) > 0
    np.testing.assert_array_equal(near.pairs, np.stack([first, second], axis=1))
    np.testing.assert_array_equal(near.distances, distances[first, second])


def test_equal_first_words_are_told_apart_by_the_others() -> None:
    codes = np.array([[5, 2], [5, 1], [4, 9], [5, 2], [5, 3]], np.uint64)
    near = near_pairs(codes, 2)
    assert near.codes.tolist() == [[4, 9], [5, 1], [5, 2], [5, 3]]
    assert near.group.tolist() == [2, 1, 0, 2, 3]
    assert near.pairs.tolist() == [[0, 1], [1, 2], [1, 3], [2, 3]]
    assert near.distances.tolist() == [2, 2, 1, 1]


@pytest.mark.parametrize("radius", [0, 1, 3, 7, 12])
def test_every_code_within_one_bit_of_a_centre(radius: int) -> None:
    codes = np.uint64(0x0123456789ABCDEF) ^ (np.uint64(1) << np.arange(64, dtype=np.uint64))
    codes = np.append(codes, np.uint64(0x0123456789ABCDEF))
    near = near_pairs(codes, radius)
    pairs_at = {1: 64, 2: 64 * 63 // 2}
    expected = {distance: count for distance, count in pairs_at.items() if distance <= radius}
    assert dict(zip(*np.unique(near.distances, return_counts=True), strict=True)) == expected


def test_a_million_equal_codes_are_one_code() -> None:
    near = near_pairs(np.full(1_000_000, 7, np.uint64), 3)
    assert near.codes.tolist() == [[7]]
    assert len(near.pairs) == 0
    assert not near.group.any()


def test_no_codes_have_no_pairs() -> None:
    near = near_pairs(np.empty(0, np.uint64), 3)
    assert len(near.codes) == len(near.pairs) == len(near.distances) == 0


def test_a_bucket_larger_than_a_chunk_is_compared_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = np.random.default_rng(0).integers(0, 2**10, 300, dtype=np.uint64)
    expected = by_value(codes, 3)
    for codes_at_once in (1, 7, 1000):
        monkeypatch.setattr(buckets, "CODES_AT_ONCE", codes_at_once)
        assert by_value(codes, 3) == expected


@pytest.mark.parametrize("words", [1, 4])
def test_several_threads_find_what_one_finds(words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    codes = random.integers(0, 2**64, (3000, words), dtype=np.uint64)
    codes[:1000] = codes[1000:2000] ^ (np.uint64(1) << random.integers(0, 64, (1000, words)).astype(np.uint64))
    alone = near_pairs(codes, 5)
    monkeypatch.setattr(hamming, "MANY", 0)
    together = near_pairs(codes, 5)
    assert len(alone.pairs) >= 1000
    np.testing.assert_array_equal(together.pairs, alone.pairs)
    np.testing.assert_array_equal(together.distances, alone.distances)


@pytest.mark.parametrize(("bits", "radius"), [(64, 0), (64, 3), (64, 12), (256, 2), (256, 31)])
def test_bands_cover_every_bit_once(bits: int, radius: int) -> None:
    edges = Bands(bits=bits, radius=radius).edges
    assert (edges[0], edges[-1], len(edges)) == (0, bits, radius + 2)
    widths = np.diff(edges)
    assert widths.max() - widths.min() <= 1


@pytest.mark.parametrize(("bits", "radius", "agreeing"), [(64, 3, 2), (64, 12, 4), (128, 10, 2), (256, 2, 3)])
def test_near_codes_share_a_key_of_bounded_width(bits: int, radius: int, agreeing: int) -> None:
    bands = Bands(bits=bits, radius=radius, agreeing=agreeing)
    random = np.random.default_rng(0)
    codes = random.integers(0, 2**64, (200, bits // 64), dtype=np.uint64)
    other = codes.copy()
    for row in other:
        for bit in random.choice(bits, radius, replace=False):
            row[bit // 64] ^= np.uint64(1 << int(bit % 64))
    shared = np.zeros(len(codes), int)
    for choice in range(len(bands.choices)):
        assert bands.key_bits(choice) <= KEY_BITS
        keys = bands.keys(bands.permute(codes), choice)
        assert int(keys.max()).bit_length() <= bands.key_bits(choice)
        shared += keys == bands.keys(bands.permute(other), choice)
    assert shared.min() >= 1


def test_more_codes_call_for_wider_keys() -> None:
    random = np.random.default_rng(0)
    few, many = (random.integers(0, 2**64, (count, 1), dtype=np.uint64) for count in (100, 100_000))
    assert cheapest_bands(few, 8).agreeing == 1
    assert cheapest_bands(many, 8).agreeing > 1


@pytest.mark.parametrize(
    ("bits", "radius", "agreeing"), [(64, 3, 1), (64, 5, 2), (64, 8, 2), (64, 12, 2), (256, 10, 1), (256, 12, 1)]
)
def test_a_cluster_shuffles_a_bounded_number_of_copies(bits: int, radius: int, agreeing: int) -> None:
    bands = shuffled_bands(bits, radius)
    assert bands.agreeing == agreeing
    assert len(bands.choices) <= 128


def test_permuting_bits_keeps_distances() -> None:
    codes = np.random.default_rng(0).integers(0, 2**64, (50, 4), dtype=np.uint64)
    permuted = Bands(bits=256, radius=3).permute(codes)
    distance = np.bitwise_count(codes[:, None] ^ codes[None]).sum(-1)
    np.testing.assert_array_equal(np.bitwise_count(permuted[:, None] ^ permuted[None]).sum(-1), distance)


def test_a_bad_cut_is_refused() -> None:
    with pytest.raises(ValueError, match="multiple of 64"):
        Bands(bits=63, radius=3)
    with pytest.raises(ValueError, match=r"expected 1\.\.36 bands"):
        Bands(bits=64, radius=3, agreeing=0)


def test_fingerprints_are_read_as_numbers() -> None:
    assert parse_fingerprints(["00000000000000ff", "8000000000000000"]).tolist() == [[255], [1 << 63]]
    assert parse_fingerprints(["0" * 31 + "1"]).tolist() == [[0, 1]]
    assert parse_fingerprints([]).shape == (0, 1)
