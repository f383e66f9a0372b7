import numpy as np

from training.evaluation.evaluate import random_similarities
from training.metrics.links import score_documents


def test_scores_depend_on_document_and_seed_alone() -> None:
    assert np.array_equal(random_similarities("a", 3, 4), random_similarities("a", 3, 4))
    assert not np.array_equal(random_similarities("a", 3, 4), random_similarities("b", 3, 4))
    assert not np.array_equal(random_similarities("a", 3, 4), random_similarities("a", 3, 4, seed=1))
    assert random_similarities("a", 0, 4).shape == (0, 4)


def test_auc_is_half_and_precision_the_density() -> None:
    links = [(i, i) for i in range(5)]
    matrices = [random_similarities(str(number), 5, 5) for number in range(2000)]
    mean = score_documents(matrices, [links] * 2000).means()
    assert abs((mean["auc"].value or 0) - 50) < 1
    assert abs((mean["precision_at_1"].value or 0) - 20) < 3
