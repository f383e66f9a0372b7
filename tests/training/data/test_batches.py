from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from training.data.batches import training_batches, validation_batches
from training.data.documents import SplitIndex
from training.data.ragged import Ragged


def index_of(image_sets: list[int], empty: frozenset[int] = frozenset()) -> SplitIndex:
    count = len(image_sets)
    sizes = np.array([0 if position in empty else 2 for position in range(count)], dtype=np.int64)
    return SplitIndex(
        ids=tuple(map(str, range(count))),
        image_sets=tuple(map(str, image_sets)),
        shards=np.zeros(count, np.int64),
        sentences=Ragged.of(sizes),
        images=Ragged.of(np.full(count, 3)),
    )


@given(st.integers(2, 60), st.integers(1, 12), st.integers(0, 5), st.integers(0, 9))
def test_batches_are_full_and_no_document_comes_twice(count: int, negatives: int, seed: int, epoch: int) -> None:
    batches = training_batches(index_of(list(range(count))), negative_documents=negatives, seed=seed, epoch=epoch)
    seen = [position for batch in batches for position in batch]
    assert max(Counter(seen).values()) == 1
    if count <= negatives + 1:
        assert [len(batch) for batch in batches] == [count]
    else:
        assert {len(batch) for batch in batches} == {negatives + 1}
        assert len(batches) == count // (negatives + 1)


@given(st.lists(st.integers(0, 6), min_size=5, max_size=60), st.integers(1, 4))
def test_versions_of_an_image_set_meet_only_where_they_must(image_sets: list[int], negatives: int) -> None:
    batches = training_batches(index_of(image_sets), negative_documents=negatives, seed=0, epoch=0)
    seen = [position for batch in batches for position in batch]
    assert max(Counter(seen).values()) == 1
    assert len(batches) == max(1, len(image_sets) // (negatives + 1))
    mixed = [len({image_sets[p] for p in batch}) < len(batch) for batch in batches]
    assert mixed == sorted(mixed)  # those that could not be kept apart come last


def test_order_differs_by_epoch_and_seed_alone() -> None:
    index = index_of(list(range(40)))
    orders = [
        np.concatenate(training_batches(index, negative_documents=3, seed=seed, epoch=epoch)).tolist()
        for seed, epoch in [(0, 1), (0, 1), (0, 2), (1, 1)]
    ]
    assert orders[0] == orders[1]
    assert orders[0] != orders[2] != orders[3] != orders[0]


def test_documents_without_sentences_are_in_no_batch() -> None:
    index = index_of(list(range(9)), empty=frozenset({0, 4}))
    batches = training_batches(index, negative_documents=6, seed=0, epoch=0)
    assert sorted(np.concatenate(batches).tolist()) == [1, 2, 3, 5, 6, 7, 8]


def test_validation_batches_hold_every_document_in_order() -> None:
    for count in range(1, 20):
        batches = validation_batches(index_of(list(range(count))), negative_documents=3)
        assert np.concatenate(batches).tolist() == list(range(count))
        assert min(len(batch) for batch in batches) >= min(2, count)
        assert max(len(batch) for batch in batches) <= 5


def test_same_image_set() -> None:
    same = index_of([1, 2, 1]).same_image_set(np.array([0, 1, 2]))
    assert same.tolist() == [[True, False, True], [False, True, False], [True, False, True]]
