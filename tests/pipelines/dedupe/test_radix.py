"""Sorting by radix, against numpy's own stable sort."""

import numpy as np
import pytest

from pipelines.dedupe.radix import runs, sort_keys


@pytest.mark.parametrize("bits", [1, 8, 15, 16, 17, 32, 33, 48, 64])
@pytest.mark.parametrize("count", [0, 1, 1000])
def test_keys_of_any_width_are_sorted_stably(bits: int, count: int) -> None:
    random = np.random.default_rng(bits)
    keys = random.integers(0, 2**64, count, dtype=np.uint64) >> np.uint64(64 - bits)
    keys = keys[random.integers(0, max(count, 1), count)]  # a third of them occur twice or more
    order, ordered = sort_keys(keys, bits=bits)
    np.testing.assert_array_equal(order, np.argsort(keys, kind="stable"))
    np.testing.assert_array_equal(ordered, keys[order])


def test_runs_are_of_two_or_more_equal_keys() -> None:
    assert runs(np.array([1, 2, 2, 5, 7, 7, 7], np.uint16)).tolist() == [[1, 3], [4, 7]]
    assert runs(np.array([3], np.uint16)).shape == (0, 2)
    assert runs(np.array([], np.uint16)).shape == (0, 2)
