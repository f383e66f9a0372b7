"""Scores of pairs by document, the median's interval, and chance, against enumeration and simulation."""

import itertools

import numpy as np
import pytest

from training.metrics.intervals import median_interval
from training.metrics.retrieval import Pool, expected_reciprocal_rank, retrieval_scores, score_pairs


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
    numbers = np.random.default_rng(0)
    texts, images = numbers.normal(size=(2, 400, 30))
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


def test_the_median_rank_of_a_whole_pool_has_an_interval() -> None:
    numbers = np.random.default_rng(2)
    texts = numbers.normal(size=(80, 4))
    images = texts + 1.5 * numbers.normal(size=(80, 4))
    scores = retrieval_scores(pool(texts, images, [(p, p) for p in range(80)], list(range(80))))
    rank = next(score for score in scores if score.metric == "median_rank")
    assert rank.low is not None and rank.high is not None and rank.low < rank.value < rank.high
