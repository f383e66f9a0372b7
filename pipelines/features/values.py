"""What an extractor gives for one picture or document, and the column it is for.

Of a picture: a vector, regions or classes; of a document: a vector of each sentence. `Rejected` stands for one bad
picture among good ones. How values are stored is in `columns.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.settings import FeaturesConfig
from schemas.features import FeatureColumn, FeatureKind
from schemas.versions import fingerprint

Float32 = npt.NDArray[np.float32]
Vector = Float32  # d
Matrix = Float32  # N x d


@dataclass(frozen=True, slots=True, eq=False)
class Regions:
    """Regions of one picture, surest first.

    Attributes:
        boxes: R x 4 float32 (left, top, right, bottom), as shares 0..1 of the stored picture's width and height.
        labels: R class names ("concepts").
        scores: R float32 in 0..1, falling.
        vectors: R x d float32.
    """

    boxes: Float32
    labels: tuple[str, ...]
    scores: Float32
    vectors: Matrix


@dataclass(frozen=True, slots=True, eq=False)
class Classes:
    """The likeliest classes of one picture, and their probabilities (float32, falling)."""

    labels: tuple[str, ...]
    probabilities: Float32


@dataclass(frozen=True, slots=True)
class Rejected:
    """Why there is no value of one item; the others of its batch have theirs."""

    message: str


Value = Vector | Matrix | Regions | Classes
Row = tuple[Value | Rejected, ...]  # of one item, a value of each column


def feature_column(
    name: str,
    config: FeaturesConfig,
    dimensions: int,
    depends_on: dict[str, Any],
    kind: FeatureKind = FeatureKind.VECTOR,
) -> FeatureColumn:
    """Return an extractor's column.

    Args:
        name: of the column.
        config: says how it is stored.
        dimensions: of a vector, or of a region's vector; 0 for classes.
        depends_on: everything that values follow from beside the item and, for regions, the limits of the settings.
        kind: of its values.
    """
    if kind is FeatureKind.REGIONS:
        limits = {"least": config.min_regions, "most": config.max_regions, "score": config.min_score}
        depends_on = {**depends_on, "limits": limits}
    return FeatureColumn(
        name=name, kind=kind, dimensions=dimensions, storage=config.storage, fingerprint=fingerprint(depends_on)
    )


def kept_regions(scores: Float32, config: FeaturesConfig) -> npt.NDArray[np.intp]:
    """Return the rows of the regions that are kept, by falling score, equal ones in their order.

    Those of at least `min_score`; but no fewer than `min_regions` of what there is, and no more than `max_regions`
    (Anderson et al. 2018: 10 to 100 with a confidence of at least 0.2).
    """
    order = np.argsort(-scores, kind="stable")
    sure = int((scores >= config.min_score).sum())
    return order[: min(max(sure, config.min_regions), config.max_regions)]
