from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.data import index as batching
from training.data.index import SplitIndex, batch_count, training_batches, validation_bounds
from training.data.ragged import Ragged


def index_of(image_sets: list[int], empty: frozenset[int] = frozenset()) -> SplitIndex:
    count = len(image_sets)
    sizes = np.array([0 if position in empty else 2 for position in range(count)], dtype=np.int64)
    return SplitIndex(
        shards=Ragged.of([count]),
        sentences=Ragged.of(sizes),
        images=Ragged.of(np.full(count, 3)),
        image_sets=np.array(image_sets, np.uint64),
        usable=np.flatnonzero(sizes),
    )


@given(st.integers(2, 60), st.integers(1, 12), st.integers(0, 5), st.integers(0, 9))
def test_batches_are_full_and_no_document_comes_twice(count: int, negatives: int, seed: int, epoch: int) -> None:
    index = index_of(list(range(count)))
    batches = list(training_batches(index, negative_documents=negatives, seed=seed, epoch=epoch))
    assert len(batches) == batch_count(index, negative_documents=negatives)
    seen = [position for batch in batches for position in batch]
    assert max(Counter(seen).values()) == 1
    if count <= negatives + 1:
        assert [len(batch) for batch in batches] == [count]
    else:
        assert {len(batch) for batch in batches} == {negatives + 1}
        assert len(batches) == count // (negatives + 1)


@given(st.lists(st.integers(0, 6), min_size=5, max_size=60), st.integers(1, 4))
def test_versions_of_an_image_set_meet_only_where_they_must(image_sets: list[int], negatives: int) -> None:
    batches = list(training_batches(index_of(image_sets), negative_documents=negatives, seed=0, epoch=0))
    seen = [position for batch in batches for position in batch]
    assert max(Counter(seen).values()) == 1
    assert len(batches) == max(1, len(image_sets) // (negatives + 1))
    mixed = [len({image_sets[p] for p in batch}) < len(batch) for batch in batches]
    assert mixed == sorted(mixed)  # those that could not be kept apart come last


def test_order_differs_by_epoch_and_seed_alone() -> None:
    index = index_of(list(range(40)))
    orders = [
        np.concatenate([*training_batches(index, negative_documents=3, seed=seed, epoch=epoch)]).tolist()
        for seed, epoch in [(0, 1), (0, 1), (0, 2), (1, 1)]
    ]
    assert orders[0] == orders[1]
    assert orders[0] != orders[2] != orders[3] != orders[0]


def test_documents_without_sentences_are_in_no_batch() -> None:
    index = index_of(list(range(9)), empty=frozenset({0, 4}))
    batches = training_batches(index, negative_documents=6, seed=0, epoch=0)
    assert sorted(np.concatenate([*batches]).tolist()) == [1, 2, 3, 5, 6, 7, 8]


def test_validation_batches_hold_every_document_in_order() -> None:
    for count in range(1, 20):
        bounds = validation_bounds(count, negative_documents=3)
        assert (bounds[0], bounds[-1]) == (0, count)
        assert min(np.diff(bounds)) >= min(2, count)
        assert max(np.diff(bounds)) <= 5


@pytest.mark.parametrize(("count", "window"), [(200, 50), (201, 50), (1003, 64), (1003, 7), (64, 64)])
def test_a_large_split_is_shuffled_window_by_window(monkeypatch: pytest.MonkeyPatch, count: int, window: int) -> None:
    monkeypatch.setattr(batching, "WINDOW", window)
    monkeypatch.setattr(batching, "PASSED_OVER", 5)
    sizes = [*[10] * (count // 10), count % 10]
    index = replace(index_of(list(range(count)), empty=frozenset({3})), shards=Ragged.of(sizes))
    epochs = [[*training_batches(index, negative_documents=4, seed=3, epoch=epoch)] for epoch in (1, 1, 2)]
    for batches in epochs:
        assert {len(batch) for batch in batches} == {5} and len(batches) == batch_count(index, negative_documents=4)
        seen = np.concatenate(batches).tolist()
        assert max(Counter(seen).values()) == 1 and 3 not in seen
        shards = [{position // 10 for position in batch} for batch in batches]
        if count > window:  # a window's documents, and those that were left of the one before
            assert max(map(len, shards)) <= 2 * (window // 10 + 2)
    first, again, other = (np.concatenate(batches) for batches in epochs)
    assert first.tolist() == again.tolist() != other.tolist()
    assert 0.25 < (first[: len(first) // 2] < count / 2).mean() < 0.75  # shards of all of the split come early


def test_same_image_set() -> None:
    same = index_of([1, 2, 1]).same_image_set(np.array([0, 1, 2]))
    assert same.tolist() == [[True, False, True], [False, True, False], [True, False, True]]
