"""The plain rule: which regions are kept."""

import numpy as np
import pytest

from pipelines.features.values import kept_regions
from pipelines.settings import FeaturesConfig

SCORES = np.array([0.1, 0.9, 0.3, 0.3, 0.05, 0.6], np.float32)


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
    config = FeaturesConfig(min_regions=least, max_regions=most, min_score=score)
    # 0.3 as float32 is a little above 0.3.
    assert kept_regions(SCORES, config).tolist() == kept
    assert kept_regions(SCORES[:0], config).tolist() == []
