"""Which of the regions an extractor finds in a picture are kept: the rule, apart from any network."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pipelines.features.values import RegionLimits


def kept_regions(scores: npt.NDArray[np.float32], limits: RegionLimits) -> npt.NDArray[np.intp]:
    """Return the rows that are kept, by falling score, equal ones in their order.

    Those of at least `limits.score`; but no fewer than `least` of what there is, and no more than `most` (Anderson et
    al. 2018: 10 to 100 with a confidence of at least 0.2).
    """
    order = np.argsort(-scores, kind="stable")
    sure = int((scores >= limits.score).sum())
    return order[: min(max(sure, limits.least), limits.most)]
