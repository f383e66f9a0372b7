"""Exact near pairs, against a comparison of all pairs.

Rows as arrays: nothing is lost on the way to partitions and back.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.dedupe import hamming
from pipelines.dedupe.hamming import KEY_BITS, MAX_KEYS, key_bits, keys_of, near_rows, rows_by_bucket
from pipelines.partitions.columns import Bytes, Columns, Numbers, Texts, from_hex, starts_of_runs, to_hex, words_of

Pairs = list[tuple[int, int, int]]  # two rows and their distance


def brute_force(codes: np.ndarray, radius: int) -> Pairs:
    distances = np.bitwise_count(codes[:, None] ^ codes[None]).sum(-1, dtype=np.int64)
    first, second = np.nonzero(np.triu(distances <= radius, k=1))
    return list(zip(first.tolist(), second.tolist(), distances[first, second].tolist(), strict=True))


def found(codes: np.ndarray, radius: int, count: int | None = None) -> Pairs:
    """Return what rows with an equal key tell, of keys for `count` codes."""
    near = set()
    for bits in key_bits(codes.shape[1] * 64, radius=radius, count=len(codes) if count is None else count):
        for pairs, distances in near_rows(codes, keys_of(codes, bits), radius):
            near |= set(zip(*np.sort(pairs, axis=0).tolist(), distances.tolist(), strict=True))
    return sorted(near)


@st.composite
def adversarial_codes(draw: st.DrawFn) -> np.ndarray:
    """Codes near a few centres: many within some bits, some in one band alone, some with repeated bits."""
    words = draw(st.sampled_from([1, 1, 1, 2, 4, 8]))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
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
    return np.unique(codes, axis=0)


@given(adversarial_codes(), st.integers(0, 12))
@settings(max_examples=150)
def test_pairs_are_exactly_those_of_brute_force(codes: np.ndarray, radius: int) -> None:
    assert found(codes, radius) == brute_force(codes, radius)


@given(adversarial_codes(), st.integers(0, 12), st.integers(1, 10**12))
@settings(max_examples=50)
def test_keys_for_any_number_of_codes_miss_no_pair(codes: np.ndarray, radius: int, count: int) -> None:
    assert found(codes, radius, count) == brute_force(codes, radius)


@pytest.mark.parametrize("at_once", [1, 7, 1000])
def test_the_answer_does_not_depend_on_what_is_compared_in_one_go(
    monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    codes = np.random.default_rng(0).permutation(2**10)[:300].astype(np.uint64)[:, None]
    monkeypatch.setattr(hamming, "ROWS_AT_ONCE", at_once)
    monkeypatch.setattr(hamming, "PAIRS_AT_ONCE", at_once)
    assert found(codes, 3) == brute_force(codes, 3)


def test_what_is_told_in_one_go_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hundred codes that are all near are 19,900 pairs, which no one holds."""
    monkeypatch.setattr(hamming, "PAIRS_AT_ONCE", 100)
    codes = np.arange(200, dtype=np.uint64)[:, None]
    told = [distances.size for _, distances in near_rows(codes, np.zeros(200, np.int64), 8)]
    assert sum(told) == 200 * 199 // 2
    assert min(told[:-1]) >= 100 and max(told) < 100 + 199  # a part more than what was held at most


@given(st.lists(st.integers(0, 5), max_size=40))
def test_rows_that_share_a_key_come_bucket_by_bucket_small_ones_first(keys: list[int]) -> None:
    order, sizes = rows_by_bucket(np.array(keys, np.int64))
    assert sorted(order.tolist()) == [row for row, key in enumerate(keys) if keys.count(key) > 1]
    assert sizes.tolist() == [keys.count(keys[row]) for row in order]
    assert sizes.tolist() == sorted(sizes.tolist())
    runs = [key for row, key in enumerate(np.array(keys)[order]) if row == 0 or keys[order[row - 1]] != key]
    assert len(runs) == len(set(runs))


@pytest.mark.parametrize(("bits", "radius"), [(64, 0), (64, 3), (64, 12), (256, 2), (256, 12)])
@pytest.mark.parametrize("count", [0, 1, 10**5, 10**12])
def test_keys_are_of_bounded_number_and_width(bits: int, radius: int, count: int) -> None:
    keys = key_bits(bits, radius=radius, count=count)
    assert 1 <= len(keys) <= MAX_KEYS
    for key in keys:
        assert 1 <= len(key) == len(set(key.tolist())) <= KEY_BITS
        assert set(key.tolist()) <= set(range(bits))
    if bits // (radius + 1) <= KEY_BITS and len(keys) == radius + 1:
        assert sorted(np.concatenate(keys).tolist()) == list(range(bits))


def test_more_codes_call_for_longer_keys() -> None:
    few, many = (key_bits(64, radius=3, count=count) for count in (10**6, 10**8))
    assert (len(few), len(few[0])) == (4, 16)
    assert (len(many), len(many[0])) == (10, 26)


def test_a_key_is_made_of_the_bits_it_names() -> None:
    codes = np.array([[0b1010, 1], [0b0010, 0]], np.uint64)
    assert keys_of(codes, np.array([1, 3, 64])).tolist() == [0b111, 0b100]


def test_a_bad_cut_is_refused() -> None:
    with pytest.raises(ValueError, match="multiple of 64"):
        key_bits(63, radius=3, count=1)
    with pytest.raises(ValueError, match="a radius below it"):
        key_bits(64, radius=64, count=1)
    assert hamming.WORD_BITS == 64


@dataclass(frozen=True, slots=True)
class Row(Columns):
    codes: Bytes
    numbers: Numbers
    names: Texts


def table(codes: list[int]) -> Row:
    names = np.array([f"name {code}\0\ud800" for code in codes], object)
    return Row(from_hex([f"{code:016x}" for code in codes]), np.arange(len(codes)), names)


def rows(table: Row) -> list[tuple[str, int, str]]:
    return list(zip(to_hex(table.codes), table.numbers.tolist(), table.names.tolist(), strict=True))


CODES = st.lists(st.one_of(st.integers(0, 3), st.integers(0, 2**64 - 1).map(lambda code: code & ~0xFFFF)), max_size=30)


@given(CODES, st.integers(1, 9), st.sampled_from(["codes", "numbers"]))
def test_every_row_is_in_one_partition_and_equal_values_in_the_same(codes: list[int], count: int, by: str) -> None:
    whole = table(codes)
    parts = dict(whole.divide(getattr(whole, by), count))
    assert set(parts) <= set(range(count))
    assert all(len(part) for part in parts.values())
    assert sorted(rows(Row.concatenate(parts.values()))) == sorted(rows(whole))
    values = [set(getattr(part, by).tolist()) for part in parts.values()]
    assert sum(map(len, values)) == len(set().union(*values))
    for partition, part in parts.items():  # wherever a row is divided, it goes to the same partition
        assert [number for number, _ in part.take(np.array([0])).divide(getattr(part, by)[:1], count)] == [partition]


def test_of_no_parts_there_are_no_rows() -> None:
    assert rows(Row.concatenate([])) == []
    assert list(Row.concatenate([]).divide(np.empty(0, "S8"), 4)) == []


@given(st.integers(1, 4), st.data())
def test_values_keep_their_zeros_and_their_order(words: int, data: st.DataObject) -> None:
    texts = data.draw(st.lists(st.binary(min_size=8 * words, max_size=8 * words).map(bytes.hex), min_size=1))
    values = from_hex(texts)
    assert to_hex(values) == texts
    assert to_hex(np.sort(values)) == sorted(texts)
    assert ["".join(f"{word:016x}" for word in code) for code in words_of(values).tolist()] == texts


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), max_size=12))
def test_runs_start_where_any_column_changes(pairs: list[tuple[int, int]]) -> None:
    columns = np.array(pairs, np.int64).reshape(-1, 2).T
    expected = [row for row, pair in enumerate(pairs) if row == 0 or pairs[row - 1] != pair]
    assert starts_of_runs(*columns).tolist() == expected
