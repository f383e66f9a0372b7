"""Rows as arrays: nothing is lost on the way to partitions and back."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipelines.partitions.columns import Bytes, Columns, Numbers, Texts, from_hex, starts_of_runs, to_hex, words_of


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


@given(CODES)
def test_rows_travel(codes: list[int]) -> None:
    assert rows(pickle.loads(pickle.dumps(table(codes)))) == rows(table(codes))


def test_of_no_parts_there_are_no_rows() -> None:
    assert rows(Row.concatenate([])) == []
    assert list(Row.concatenate([]).divide(np.empty(0, "S8"), 4)) == []


@given(st.integers(1, 4), st.data())
def test_values_keep_their_zeros_and_their_order(words: int, data: st.DataObject) -> None:
    texts = data.draw(st.lists(st.binary(min_size=8 * words, max_size=8 * words).map(bytes.hex), min_size=1))
    values = from_hex(texts)
    assert to_hex(values) == texts
    assert to_hex(np.sort(values)) == sorted(texts)
    numbers = ["".join(f"{word:016x}" for word in code) for code in words_of(values).tolist()]
    assert numbers == texts


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), max_size=12))
def test_runs_start_where_any_column_changes(pairs: list[tuple[int, int]]) -> None:
    columns = np.array(pairs, np.int64).reshape(-1, 2).T
    expected = [row for row, pair in enumerate(pairs) if row == 0 or pairs[row - 1] != pair]
    assert starts_of_runs(*columns).tolist() == expected
