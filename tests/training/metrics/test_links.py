from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from training.metrics.links import (
    LANGUAGE,
    LENGTH,
    document_groups,
    expected_precision,
    length_names,
    link_scores,
    roc_auc,
    role_groups,
    score,
    score_documents,
)

VALUES_AND_LINKS = st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=2, max_size=7).filter(
    lambda pairs: len({linked for _, linked in pairs}) == 2
)


def arrays_of(pairs: list[tuple[int, bool]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([value for value, _ in pairs], dtype=float), np.array([linked for _, linked in pairs])


@given(VALUES_AND_LINKS)
def test_auc_is_scikit_learn_s_with_ties(pairs: list[tuple[int, bool]]) -> None:
    values, linked = arrays_of(pairs)
    assert roc_auc(values, linked) == pytest.approx(roc_auc_score(linked, values))


@given(VALUES_AND_LINKS, st.integers(1, 8))
def test_precision_is_the_mean_over_all_orders_of_ties(pairs: list[tuple[int, bool]], at: int) -> None:
    values, linked = arrays_of(pairs)
    sorted_orders = [
        order for order in permutations(range(len(values))) if all(np.diff(values[list(order)]) <= 0)
    ]  # every order that sorting could have given
    shares = [linked[list(order[:at])].mean() for order in sorted_orders]
    assert expected_precision(values, linked, at=at) == pytest.approx(np.mean(shares))


def test_fewer_pairs_than_places() -> None:
    found = score(np.array([[0.9, 0.2], [0.1, 0.8]]), [(0, 0), (1, 1)])
    assert (found.auc, found.precision_at_1, found.precision_at_5) == (100, 100, 50)


def test_a_constant_matrix_scores_its_density() -> None:
    found = score(np.zeros((4, 5)), [(0, 0)])
    assert found.auc == 50
    assert found.precision_at_1 == pytest.approx(5)
    assert found.precision_at_5 == pytest.approx(5)


def test_documents_that_cannot_be_scored_are_counted() -> None:
    matrices = [np.eye(2)] * 5
    links = [None, [], [(0, 0), (1, 1)], [(i, j) for i in range(2) for j in range(2)], np.array([[0, 1]])]
    found = score_documents(matrices, links)
    assert found.documents.tolist() == [2, 4]
    assert found.left_out == {"links unknown": 1, "no link": 1, "every pair linked": 1}
    mean = found.means()["auc"]
    assert mean.n == 2 and mean.value == pytest.approx((100 + found.table[1, 0]) / 2)


def test_nothing_to_score_has_no_mean() -> None:
    assert score_documents([], []).means() == {} and not score_documents([], [])
    assert score_documents([np.zeros((0, 3))], [[]]).table.shape == (0, 3)
    with pytest.raises(ValueError, match="0 of 4 linked"):
        score(np.eye(2), [])


def made(seed, shape=(3, 4), links=((0, 1), (2, 3))):
    return np.random.default_rng(seed).normal(size=shape), np.array(links)


def test_a_language_is_its_documents():
    matrices, links = map(list, zip(*(made(seed) for seed in range(6)), strict=True))
    links[5] = None
    groups = list(document_groups(LANGUAGE, ["en", "de", "en", "de", "en", "fr"], links, [3] * 6))
    assert [group.title for group in groups] == ["language=de", "language=en", "language=fr"]
    found = {group.name: {score.metric: score for score in link_scores(group, matrices)} for group in groups}
    expected = score_documents([matrices[index] for index in (0, 2, 4)], [links[index] for index in (0, 2, 4)])
    assert found["en"] == expected.means() and found["de"]["auc"].n == 2 and found["fr"] == {}
    assert list(document_groups(LANGUAGE, ["en"] * 6, links, [3] * 6)) == []


def test_a_length_is_its_documents():
    names = length_names([0, 1, 4, 5, 9, 10, 19, 20, 500])
    assert names == ["1-4"] * 3 + ["5-9"] * 2 + ["10-19"] * 2 + ["20+"] * 2
    matrices, links = map(list, zip(*(made(seed) for seed in range(9)), strict=True))
    groups = {group.title: group for group in document_groups(LENGTH, names, links, [3] * 9)}
    assert list(groups) == ["sentences=1-4", "sentences=5-9", "sentences=10-19", "sentences=20+"]
    found = {score.metric: score for score in link_scores(groups["sentences=5-9"], matrices)}
    assert found == score_documents(matrices[3:5], links[3:5]).means()


def test_a_role_is_its_rows():
    matrix, links = made(0)
    groups = list(role_groups([["caption", "body", "caption"]], [links]))
    assert [group.title for group in groups] == ["role=body", "role=caption"]
    assert list(link_scores(groups[0], [matrix])) == []  # the body is linked to nothing
    found = {each.metric: each.value for each in link_scores(groups[1], [matrix])}
    assert found["auc"] == score(matrix[[0, 2]], [(0, 1), (1, 3)]).auc
    assert groups[1].links[0].tolist() == [[0, 1], [2, 3]]
