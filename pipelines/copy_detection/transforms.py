"""Copy detection in Beam: the search of `pipelines.dedupe` among documents with features, by the vectors of one column.

    documents -> vectors, packed -----> in cells -> neighbours and clusters, as in dedupe -> near copies

Vectors travel in float16, once for each cell. The centres of cells are the vectors of a sample of images.
"""

from __future__ import annotations

from collections.abc import Iterator
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

_MAX_PARTITIONS = 1 << 14


def by_vector(config: CopyDetectionConfig, plan: FeaturePlan, *, exact_below: int = EXACT_BELOW) -> Search | None:
    """Return the search for images with near vectors, or None where none is asked for."""
    if config.extractor not in [column.name for column in plan.extracted(IMAGES)]:
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


def _of_vectors(documents: Any, _: Any, count: Any, *, pack: Any, exact_below: int) -> beam.PCollection:
    points = documents | "vectors" >> Pack(pack)
    some = points | "sample" >> beam.Map(_sample, count, exact_below) | "whole sample" >> beam.combiners.ToList()
    centres = some | "centres" >> beam.Map(lambda parts: centres_of(Points.concatenate(parts)))
    return points | "in cells" >> beam.FlatMap(_in_cells, count, AsSingleton(centres))


def _sample(points: Points, count: int, exact_below: int) -> Points:
    """Return the points that cells are named by, about 2 sqrt(count); none below `exact_below`: all are in one cell."""
    cells = 0 if count < exact_below else int(2 * np.sqrt(count))
    return sample(points, cells / max(1, count))


def _in_cells(points: Points, count: int, centres: npt.NDArray[np.float32]) -> Iterator[tuple[Partition, Points]]:
    return divide(in_cells(points, centres), count * PROBES, by="keys", rows=CROWDED, most=_MAX_PARTITIONS)
