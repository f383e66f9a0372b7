"""Ranks and recall against enumeration of all orders of ties; a document's score, intervals, and chance."""

import itertools

import numpy as np
import pytest

from training.metrics.intervals import median_interval
from training.metrics.retrieval import (
    CUTOFFS,
    Pool,
    expected_reciprocal_rank,
    query_ranks,
    retrieval_scores,
    score_pairs,
)

FORWARD, BACKWARD = "text to image", "image to text"


def enumerated(row, partners):
    """Means over all orders of ties: rank of the best partner, 1 / rank, and share of orders that find one early."""
    ranks, found = [], []
    for order in itertools.permutations(range(len(row))):
        if any(row[a] < row[b] for a, b in itertools.pairwise(order)):
            continue
        first = next(place for place, item in enumerate(order) if partners[item])
        ranks.append(1 + first)
        found.append([first < cutoff for cutoff in CUTOFFS])
    return np.mean(ranks), np.mean(1 / np.array(ranks)), np.mean(found, axis=0)


@pytest.mark.parametrize("seed", range(6))
def test_ranks_are_the_mean_over_all_orders_of_ties(seed):
    numbers = np.random.default_rng(seed)
    rows = numbers.integers(3, size=(3, 7)) / 2
    partners = numbers.random((3, 7)) < 0.4
    partners[:, 0] = True
    found = query_ranks(rows, np.eye(7), np.argwhere(partners))
    for place in range(3):
        rank, reciprocal, share = enumerated(rows[place], partners[place])
        assert found.realistic[place] == pytest.approx(rank)
        assert found.reciprocal[place] == pytest.approx(reciprocal)
        assert found.recall[place] == pytest.approx(share)


def test_queries_in_any_order_of_their_pairs_and_in_blocks_have_the_same_ranks(monkeypatch):
    numbers = np.random.default_rng(3)
    queries, candidates = numbers.normal(size=(9, 4)), numbers.normal(size=(11, 4))
    pairs = np.argwhere(numbers.random((9, 11)) < 0.3)
    pairs = np.unique(np.concatenate([pairs, np.stack([np.arange(9), np.arange(9)], axis=1)]), axis=0)
    expected = query_ranks(queries, candidates, pairs)
    assert len(set(expected.realistic)) > 3
    for at_once in (1, 25, 1 << 22):
        monkeypatch.setattr("training.metrics.retrieval.NUMBERS_AT_ONCE", at_once)
        found = query_ranks(queries, candidates, numbers.permutation(pairs))
        assert found.realistic.tolist() == expected.realistic.tolist()
        assert found.recall.tolist() == expected.recall.tolist()


def worked_pool():
    """Three pairs on a circle: text 0 prefers image 0, text 1 image 0 over its own, text 2 its own."""
    angles = np.radians([0.0, 40.0, 180.0])
    texts = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    angles = np.radians([10.0, 90.0, 170.0])
    images = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return Pool(texts=texts, images=images, pairs=np.array([[0, 0], [1, 1], [2, 2]]), documents=np.arange(3))


def by_name(pool, **settings):
    return {(score.group, score.metric): score for score in retrieval_scores(pool, **settings)}


def test_both_directions_of_a_worked_example():
    found = by_name(worked_pool())
    assert {group for group, _ in found} == {f"{way}, whole pool of 3" for way in (FORWARD, BACKWARD)}
    first = found[f"{FORWARD}, whole pool of 3", "recall_at_1"]
    assert first.value == pytest.approx(200 / 3) and first.low <= 200 / 3 <= first.high and first.deviation is None
    assert found[f"{FORWARD}, whole pool of 3", "recall_at_5"].value == 100.0
    rank = found[f"{FORWARD}, whole pool of 3", "median_rank"]
    assert (rank.value, rank.unit, rank.n) == (1.0, "rank, from 1", 3)
    assert {score.unit for (_, metric), score in found.items() if metric != "median_rank"} == {"percent"}
    # image 1 is 50 degrees from text 1, 90 from the others
    assert found[f"{BACKWARD}, whole pool of 3", "recall_at_1"].value == pytest.approx(100.0)


def test_a_text_with_two_partners_is_one_query():
    pool = worked_pool()
    pairs = np.array([[0, 0], [0, 1], [2, 2]])
    found = by_name(Pool(texts=pool.texts, images=pool.images, pairs=pairs, documents=np.zeros(3, np.int64)))
    assert found[f"{FORWARD}, whole pool of 3", "recall_at_1"].n == 2
    assert found[f"{BACKWARD}, whole pool of 3", "recall_at_1"].n == 3
    assert found[f"{FORWARD}, whole pool of 3", "recall_at_1"].value == 100.0


def test_a_pool_without_a_pair_has_no_scores():
    pool = worked_pool()
    none = np.zeros((0, 2), np.int64)
    assert retrieval_scores(Pool(texts=pool.texts, images=pool.images, pairs=none, documents=np.zeros(0))) == []


def test_samples_are_those_of_the_pairs_whatever_the_numbers_of_texts_and_images():
    numbers = np.random.default_rng(4)
    texts = numbers.normal(size=(40, 4))
    images = texts + numbers.normal(size=(40, 4))
    rows, order = np.arange(40), numbers.permutation(40)
    plain = Pool(texts=texts, images=images, pairs=np.stack([rows, rows], axis=1), documents=rows)
    moved = np.empty_like(images)
    moved[order] = images
    other = Pool(texts=texts, images=moved, pairs=np.stack([rows, order], axis=1), documents=rows)
    assert by_name(plain, sample_pairs=12, samples=3) == by_name(other, sample_pairs=12, samples=3)


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
    found = by_name(pool, sample_pairs=20, samples=5)
    assert found == by_name(pool, sample_pairs=20, samples=5)
    groups = list(dict.fromkeys(group for group, _ in found))
    pools = ("whole pool of 60", "5 samples of 20")
    assert groups == [f"{way}, {size}" for size in pools for way in (FORWARD, BACKWARD)]
    sampled = found[f"{FORWARD}, 5 samples of 20", "recall_at_1"]
    assert sampled.n == 20 and sampled.deviation > 0 and sampled.low is None and sampled.unit == "percent"
    assert found[f"{FORWARD}, 5 samples of 20", "median_rank"].unit == "rank, from 1"
    whole, third = (found[f"{FORWARD}, {size}", "median_rank"] for size in pools)
    assert whole.low < whole.value < whole.high
    assert third.value < whole.value  # of a third of the candidates
    assert len(by_name(pool, sample_pairs=20, samples=0)) == len(found) / 2


def test_equal_candidates_at_the_end_of_a_matrix_still_tie():
    image = np.random.default_rng(2).normal(size=17).astype(np.float32)
    image /= np.linalg.norm(image)
    found = query_ranks(image[None], np.repeat(image[None], 37, axis=0), np.array([[0, 36]]))
    assert found.realistic.tolist() == [19.0]
    assert found.recall[0] == pytest.approx([1 / 37, 5 / 37, 10 / 37])


@pytest.mark.parametrize(("above", "others", "partners"), [(0, 0, 1), (2, 0, 3), (0, 4, 1), (1, 3, 2), (0, 2, 3)])
def test_the_reciprocal_rank_is_the_mean_over_all_orders(above: int, others: int, partners: int) -> None:
    orders = itertools.permutations([False] * others + [True] * partners)
    expected = np.mean([1 / (1 + above + order.index(True)) for order in orders])
    assert expected_reciprocal_rank(above, others, partners) == pytest.approx(expected)


def pool(texts: np.ndarray, images: np.ndarray, pairs: list[tuple[int, int]], documents: list[int]) -> Pool:
    units = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (texts, images))
    return Pool(texts=next(units), images=next(units), pairs=np.array(pairs), documents=np.array(documents))


def test_a_documents_score_is_the_mean_of_its_texts() -> None:
    images = np.eye(4)
    texts = np.array([[1.0, 0, 0, 0], [0.9, 1, 0.1, 0], [0.9, 0.8, 0.7, 0.5]])
    found = score_pairs(pool(texts, images, [(0, 0), (1, 0), (2, 3)], [7, 7, 9]))
    assert found is not None and found.documents.tolist() == [7, 9] and found.candidates == 4
    first, second = found
    assert (first.recall_at_1, first.reciprocal_rank, first.recall_at_5) == (50.0, 75.0, 100.0)
    assert (second.recall_at_1, second.reciprocal_rank) == (0.0, 25.0)
    assert found.chance.reciprocal_rank == pytest.approx(100 * (1 + 1 / 2 + 1 / 3 + 1 / 4) / 4)
    assert found.chance.recall_at_1 == pytest.approx(25) and found.chance.recall_at_5 == 100


def test_chance_is_what_random_vectors_score() -> None:
    texts, images = np.random.default_rng(0).normal(size=(2, 400, 30))
    pairs = [(place, place) for place in range(400)] + [(place, (place + 1) % 400) for place in range(400)]
    found = score_pairs(pool(texts, images, pairs, list(range(400)) * 2))
    assert found is not None
    means = found.means()
    for metric in ("reciprocal_rank", "recall_at_10"):
        assert means[metric].low < getattr(found.chance, metric) < means[metric].high
    assert found.chance.recall_at_1 == pytest.approx(100 * 2 / 400)


def test_a_model_without_an_opinion_scores_chance() -> None:
    found = score_pairs(pool(np.ones((30, 2)), np.ones((30, 2)), [(p, p) for p in range(30)], list(range(30))))
    assert found is not None and found.table[3].tolist() == pytest.approx(found.chance)


def test_the_medians_interval_is_that_of_resampled_documents() -> None:
    numbers = np.random.default_rng(1)
    groups = numbers.integers(40, size=200)
    values = numbers.geometric(0.1, size=200) + 3.0 * (groups % 5)
    found = median_interval(values, groups, least=1, most=1000)
    documents = [values[groups == group] for group in np.unique(groups)]
    drawn = [
        np.median(np.concatenate([documents[place] for place in numbers.integers(len(documents), size=len(documents))]))
        for _ in range(2000)
    ]
    low, high = np.quantile(drawn, [0.025, 0.975])
    assert found.mean == np.median(values)
    assert low - 3 < found.low <= low + 0.5 and high - 0.5 <= found.high < high + 3
    one = median_interval(np.array([1.0, 4.0]), np.zeros(2, int), least=1, most=9)
    assert (one.mean, one.low, one.high) == (2.5, 1, 9)  # one document may be any


def test_documents_that_share_an_image_are_one_unit_of_an_interval() -> None:
    """Ten documents of one image are like one document: their interval is as wide."""
    texts, images = np.eye(12)[:, ::-1], np.eye(3, 12)
    pairs = [(number, 0 if number < 10 else number - 9) for number in range(12)]
    found = {score.metric: score for score in retrieval_scores(pool(texts, images, pairs, list(range(12))))}
    assert found["recall_at_1"].high is not None and found["recall_at_1"].high > 85
