"""Ranks and recall against enumeration of all orders of ties, and against plain sorting."""

import itertools

import numpy as np
import pytest

from training.evaluation.retrieval import CUTOFFS, Direction, Pool, query_ranks, retrieval_scores, similarity_ranks


def enumerated(row, partners):
    """Mean rank of the best partner, and share of orders that find one early, over all orders of ties."""
    ranks, found = [], []
    for order in itertools.permutations(range(len(row))):
        if any(row[a] < row[b] for a, b in itertools.pairwise(order)):
            continue
        first = next(place for place, item in enumerate(order) if partners[item])
        ranks.append(1 + first)
        found.append([first < cutoff for cutoff in CUTOFFS])
    return np.mean(ranks), np.mean(found, axis=0)


@pytest.mark.parametrize("seed", range(6))
def test_ranks_are_the_mean_over_all_orders_of_ties(seed):
    numbers = np.random.default_rng(seed)
    rows = numbers.integers(3, size=(3, 7)) / 2
    partners = numbers.random((3, 7)) < 0.4
    partners[:, 0] = True
    found = similarity_ranks(rows, partners)
    for place in range(3):
        rank, share = enumerated(rows[place], partners[place])
        assert found.ranks[place] == pytest.approx(rank)
        assert found.found[place] == pytest.approx(share)


def test_ranks_without_ties_are_those_of_sorting():
    numbers = np.random.default_rng(0)
    texts, images = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in numbers.normal(size=(2, 50, 8)))
    found = query_ranks(texts, images, np.stack([np.arange(50), np.arange(50)], axis=1))
    order = np.argsort(-(texts @ images.T), axis=1)
    assert found.ranks.tolist() == [1 + int(np.flatnonzero(order[q] == q)[0]) for q in range(50)]
    assert found.found[:, 1].tolist() == [float(rank <= 5) for rank in found.ranks]


def worked_pool():
    """Three pairs on a circle: text 0 prefers image 0, text 1 image 0 over its own, text 2 its own."""
    angles = np.radians([0.0, 40.0, 180.0])
    texts = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    angles = np.radians([10.0, 90.0, 170.0])
    images = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    pairs = np.array([[0, 0], [1, 1], [2, 2]])
    return Pool(texts=texts, images=images, pairs=pairs, documents=np.arange(3))


def test_both_directions_of_a_worked_example():
    forward, backward = retrieval_scores(worked_pool())
    assert (forward.direction, backward.direction) == (Direction.TEXT_TO_IMAGE, Direction.IMAGE_TO_TEXT)
    assert forward.recall[1].value == pytest.approx(200 / 3)
    assert forward.recall[5].value == 100.0 and forward.median_rank.value == 1.0
    assert backward.recall[1].value == pytest.approx(100.0)  # image 1 is 50 degrees from text 1, 90 from the others
    assert forward.recall[1].low <= 200 / 3 <= forward.recall[1].high
    assert forward.recall[1].deviation is None and forward.samples == 0


def test_a_text_with_two_partners_is_one_query():
    pool = worked_pool()
    pairs = np.array([[0, 0], [0, 1], [2, 2]])
    forward, backward = retrieval_scores(Pool(texts=pool.texts, images=pool.images, pairs=pairs, documents=np.zeros(3)))
    assert (forward.queries, backward.queries) == (2, 3)
    assert forward.recall[1].value == 100.0


def test_samples_have_a_deviation_and_repeat_with_their_seed():
    numbers = np.random.default_rng(1)
    texts = numbers.normal(size=(60, 4))
    images = texts + numbers.normal(size=(60, 4))
    pool = Pool(
        texts=texts / np.linalg.norm(texts, axis=1, keepdims=True),
        images=images / np.linalg.norm(images, axis=1, keepdims=True),
        pairs=np.stack([np.arange(60)] * 2, axis=1),
        documents=np.arange(60),
    )
    found = retrieval_scores(pool, sample_pairs=20, samples=5)
    assert found == retrieval_scores(pool, sample_pairs=20, samples=5)
    assert found != retrieval_scores(pool, sample_pairs=20, samples=5, seed=1)
    assert [row.samples for row in found] == [0, 0, 5, 5]
    whole, sampled = found[0], found[2]
    assert sampled.candidates == 20 and sampled.recall[1].deviation > 0
    assert sampled.median_rank.value < whole.median_rank.value  # a third of the candidates


def test_equal_candidates_at_the_end_of_a_matrix_still_tie():
    numbers = np.random.default_rng(2)
    image = numbers.normal(size=17).astype(np.float32)
    image /= np.linalg.norm(image)
    found = query_ranks(image[None], np.repeat(image[None], 37, axis=0), np.array([[0, 36]]))
    assert found.ranks[0] == 19.0 and found.found[0] == pytest.approx([1 / 37, 5 / 37, 10 / 37])
