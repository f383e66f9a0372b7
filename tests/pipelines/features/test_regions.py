"""The plain rules: which regions are kept, which classes are the most probable."""

from __future__ import annotations

import numpy as np
import pytest

from pipelines.features.imagenet import class_names, softmax, top_classes
from pipelines.features.regions import kept_regions
from pipelines.features.values import RegionLimits

SCORES = np.float32([0.1, 0.9, 0.3, 0.3, 0.05, 0.6])


@pytest.mark.parametrize(
    ("least", "most", "score", "kept"),
    [
        (0, 6, 0.2, [1, 5, 2, 3]),
        (0, 3, 0.2, [1, 5, 2]),
        (5, 6, 0.2, [1, 5, 2, 3, 0]),
        (6, 6, 1.0, [1, 5, 2, 3, 0, 4]),
        (10, 36, 0.95, [1, 5, 2, 3, 0, 4]),
        (0, 6, 0.95, []),
        (0, 6, 0.3, [1, 5, 2, 3]),
    ],
)
def test_regions_are_kept_by_score_within_limits(least: int, most: int, score: float, kept: list[int]) -> None:
    limits = RegionLimits(least=least, most=most, score=score)
    # 0.3 as float32 is a little above 0.3.
    assert kept_regions(SCORES, limits).tolist() == kept
    assert kept_regions(SCORES[:0], limits).tolist() == []


def test_classes_are_the_most_probable() -> None:
    logits = np.zeros(1000, np.float32)
    logits[[281, 282]] = 5, 4
    probabilities = softmax(logits)
    found = top_classes(probabilities, count=4)
    assert found.labels == ("tabby", "tiger cat", *class_names()[:2])
    total = np.exp(5) + np.exp(4) + 998
    np.testing.assert_allclose(found.probabilities, [np.exp(5) / total, np.exp(4) / total, 1 / total, 1 / total], 1e-5)
    assert softmax(np.float32([1e4, 0])).tolist() == [1, 0]
