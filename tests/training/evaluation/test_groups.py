"""Scores by language and by role equal those of the group's own documents and rows."""

import numpy as np

from training.metrics.links import (
    LANGUAGE,
    LENGTH,
    document_groups,
    length_names,
    link_scores,
    role_groups,
    score,
    score_documents,
)


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
