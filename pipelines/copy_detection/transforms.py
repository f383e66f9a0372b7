"""Copy detection in Beam: the search of `pipelines.dedupe` among documents with features, by the vectors of one column.

    documents -> vectors, packed -----> in cells -> neighbours and clusters, as in dedupe -> near copies

Vectors travel in float16, once for each cell. The centres of cells are the vectors of a sample of images.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import apache_beam as beam
import numpy as np
import numpy.typing as npt
from apache_beam.pvalue import AsSingleton

from pipelines.copy_detection.vectors import (
    CROWDED,
    EXACT_BELOW,
    PROBES,
    Points,
    cell_count,
    centres_of,
    in_cells,
    near_copy_rows,
    near_points,
    pack_points,
    pack_shown,
    sample,
)
from pipelines.dedupe.transforms import Search
from pipelines.features.extraction import FeaturePlan
from pipelines.features.values import IMAGES
from pipelines.partitions.transforms import Pack, Partition, divide
from pipelines.settings import CopyDetectionConfig
from schemas.failures import Stage
from schemas.features import FeatureColumn

_MAX_PARTITIONS = 1 << 14


def by_vector(config: CopyDetectionConfig, plan: FeaturePlan, *, exact_below: int = EXACT_BELOW) -> Search | None:
    """Return the search for images with near vectors, or None where none is asked for."""
    column = _column(config, plan)
    if column is None:
        return None
    pack = partial(pack_points, plan=plan, extractor=config.extractor)
    return Search(
        pack=pack_shown,
        candidates=partial(_of_vectors, pack=pack, exact_below=exact_below),
        kind=Points,
        near=partial(near_points, cosine=config.cosine),
        crowded=CROWDED,
        rows_of=near_copy_rows,
        of_itself=False,
        stage=Stage.COPY_DETECTION,
        table="near-copies",
        message="an image of it is a copy of another, by its vector; see the table of near copies",
    )


def _column(config: CopyDetectionConfig, plan: FeaturePlan) -> FeatureColumn | None:
    return next((column for column in plan.extracted(IMAGES) if column.name == config.extractor), None)


def _of_vectors(documents: Any, _: Any, count: Any, *, pack: Any, exact_below: int) -> beam.PCollection:
    points = documents | "vectors" >> Pack(pack)
    centres = points | "centres" >> Centres(count, exact_below)
    return points | "in cells" >> beam.FlatMap(_in_cells, count, centres)


@dataclass(eq=False)
class Centres(beam.PTransform):
    """Points to the centres of their cells, as a side input; there are none where all are in one cell.

    Attributes:
        count: of the points, as a side input.
    """

    count: Any
    exact_below: int

    def expand(self, points: beam.PCollection) -> AsSingleton:
        some = points | "sample" >> beam.Map(self._sample, self.count) | "all" >> beam.combiners.ToList()
        return AsSingleton(some | "of sample" >> beam.Map(_centres))

    def _sample(self, points: Points, count: int) -> Points:
        return sample(points, cell_count(count, self.exact_below) / max(1, count))


def _centres(parts: list[Points]) -> npt.NDArray[np.float32]:
    return centres_of(Points.concatenate(parts))


def _in_cells(points: Points, count: int, centres: npt.NDArray[np.float32]) -> Iterator[tuple[Partition, Points]]:
    return divide(in_cells(points, centres), count * PROBES, by="keys", rows=CROWDED, most=_MAX_PARTITIONS)
