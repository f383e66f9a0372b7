"""Scores by language and by role equal those of the group's own documents and rows."""

import numpy as np

from training.evaluation.breakdowns import by_language, by_role
from training.evaluation.links import score, score_documents


def made(seed, shape=(3, 4), links=((0, 1), (2, 3))):
    return np.random.default_rng(seed).normal(size=shape), np.array(links)


def test_a_language_is_its_documents():
    matrices, links = map(list, zip(*(made(seed) for seed in range(6)), strict=True))
    links[5] = None
    groups = by_language(matrices, links, ["en", "de", "en", "de", "en", "fr"])
    assert [(group.name, group.documents) for group in groups] == [("de", 2), ("en", 3)]
    expected = score_documents([matrices[place] for place in (0, 2, 4)], [links[place] for place in (0, 2, 4)])
    assert groups[1].auc.mean == expected.mean().auc and groups[1].kind == "language"


def test_a_role_is_its_rows():
    matrix, links = made(0)
    groups = by_role([matrix], [links], [["caption", "body", "caption"]])
    assert [group.name for group in groups] == ["caption"]  # the body is linked to nothing
    assert groups[0].auc.mean == score(matrix[[0, 2]], [(0, 1), (1, 3)]).auc
