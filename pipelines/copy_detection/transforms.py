"""Copy detection in Beam: the search of `pipelines.dedupe` among documents with features, by the vectors of one column.

    documents -> vectors, packed -----> in cells -> neighbours and clusters, as in dedupe -> near copies
    documents -> vectors, packed ----.
    parts of an earlier version -----`> in cells -> nearest of each image -> what was seen before

Vectors travel in float16, once for each cell. The centres of cells are the vectors of a sample of images.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import numpy.typing as npt
from apache_beam.pvalue import AsSingleton, TaggedOutput

from pipelines.copy_detection.near_copies import (
    add_counts,
    count_copies,
    near_copy_rows,
    pack_points,
    pack_shown,
    worst_pairs,
)
from pipelines.copy_detection.seen import SeenCount, add_seen, find_seen, read_known
from pipelines.copy_detection.vectors import (
    CROWDED,
    EXACT_BELOW,
    PROBES,
    Points,
    Role,
    cell_count,
    centres_of,
    in_cells,
    near_points,
    sample,
)
from pipelines.dedupe.duplicates import Codes, Duplicates, Neighbours, Occurrences
from pipelines.dedupe.transforms import COUNTS, ROWS, Compare, CountRows, Pack, Partition, Search, divide
from pipelines.features.extraction import FeaturePlan
from pipelines.features.values import IMAGES
from pipelines.settings import CopyDetectionConfig
from pipelines.transforms import nothing
from schemas.documents import Split
from schemas.duplicates import SeenImage
from schemas.features import FeatureColumn
from schemas.lake import Lake
from schemas.manifest import read_manifest

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
        rows_of=partial(_rows, lake=plan.lake, column=column),
        add_counts=add_counts,
        of_itself=False,
        of_clusters=True,
        message="an image of it is a copy of another, by its vector; see the table of near copies",
    )


def _column(config: CopyDetectionConfig, plan: FeaturePlan) -> FeatureColumn | None:
    return next((column for column in plan.extracted(IMAGES) if column.name == config.extractor), None)


def _of_vectors(documents: Any, _: Any, count: Any, *, pack: Any, exact_below: int) -> beam.PCollection:
    points = documents | "vectors" >> Pack(pack)
    centres = points | "centres" >> Centres(count, exact_below)
    return points | "in cells" >> beam.FlatMap(_in_cells, count, centres)


def _rows(found: Duplicates, is_dropped: npt.NDArray[np.bool_], lake: Lake, column: FeatureColumn) -> Iterator[Any]:
    worst = worst_pairs(found, lake, column)
    yield TaggedOutput(COUNTS, count_copies(found, worst))
    yield from near_copy_rows(found, is_dropped, worst)


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


def _in_cells(
    points: Points, count: int, centres: npt.NDArray[np.float32], role: Role = Role.BOTH
) -> Iterator[tuple[Partition, Points]]:
    found = in_cells(points, centres, role)
    return divide(found, count * PROBES, by="keys", rows=CROWDED, most=_MAX_PARTITIONS)


class EarlierImages(NamedTuple):
    """Rows of images that earlier versions have, and their number for each version."""

    rows: beam.PCollection[SeenImage]
    counts: beam.PCollection[SeenCount]


@dataclass(eq=False)
class FindSeen(beam.PTransform):
    """Documents to what the earlier versions that the settings name have of their images: gives `EarlierImages`."""

    config: CopyDetectionConfig
    plan: FeaturePlan

    def expand(self, documents: beam.PCollection) -> EarlierImages:
        versions = self.config.against
        found = [documents | version >> FindSeenIn(version, self.config, self.plan) for version in versions]
        none = nothing(documents.pipeline)
        rows = (none, *(each.rows for each in found)) | "rows" >> beam.Flatten()
        return EarlierImages(rows, (none, *(each.counts for each in found)) | "counts" >> beam.Flatten())


@dataclass(eq=False)
class FindSeenIn(beam.PTransform):
    """Documents to what an earlier version has of their images: gives `EarlierImages`.

    Attributes:
        version: NAME@VERSION.
    """

    version: str
    config: CopyDetectionConfig
    plan: FeaturePlan
    exact_below: int = EXACT_BELOW

    def expand(self, documents: beam.PCollection) -> EarlierImages:
        column = _column(self.config, self.plan)
        earlier, folder = read_manifest(self.plan.lake, self.version)
        shared = column if column in earlier.columns(IMAGES) else None
        entries = [entry for split in Split for entry in earlier.parts(IMAGES, split)]
        parts = documents.pipeline | "parts" >> beam.Create(entries, reshuffle=False) | "spread" >> beam.Reshuffle()
        known = parts | "read" >> beam.FlatMap(read_known, folder, shared)
        shown = documents | "images" >> Pack(partial(pack_shown, also_flat=True))
        count = (known, shown) | "both" >> beam.Flatten() | "count" >> CountRows()
        by_code = beam.FlatMap(divide, count, by="codes")
        of_known = known | "hashes" >> beam.Map(Points.hashes) | "known by code" >> by_code
        near = self._near(documents, known, count) if shared else nothing(documents.pipeline)
        joined = {"shown": shown | "by code" >> by_code, "known": of_known, "near": near | "near by code" >> by_code}
        find = beam.FlatMapTuple(partial(self._find, has_vectors=bool(shared))).with_outputs(COUNTS, main=ROWS)
        found = joined | beam.CoGroupByKey() | "find" >> find
        add = partial(add_seen, version=self.version, has_vectors=bool(shared))
        return EarlierImages(found[ROWS], found[COUNTS] | "add" >> beam.CombineGlobally(add))

    def _near(self, documents: beam.PCollection, known: beam.PCollection, count: Any) -> beam.PCollection[Neighbours]:
        pack = partial(pack_points, plan=self.plan, extractor=self.config.extractor, also_flat=True)
        centres = known | "centres" >> Centres(count, self.exact_below)
        queries = documents | "vectors" >> Pack(pack) | "queries" >> beam.FlatMap(_in_cells, count, centres, Role.QUERY)
        keyed = (queries, known | "bases" >> beam.FlatMap(_in_cells, count, centres, Role.BASE)) | beam.Flatten()
        near = partial(near_points, cosine=self.config.cosine, among_bases=False)
        return keyed | "near" >> Compare(Points, near, CROWDED) | "neighbours" >> beam.Keys()

    def _find(self, _: Partition, parts: dict[str, Any], has_vectors: bool) -> Iterator[Any]:
        shown, known = Occurrences.concatenate(parts["shown"]), Codes.concatenate(parts["known"])
        *rows, count = find_seen(self.version, shown, known, Neighbours.concatenate(parts["near"]), has_vectors)
        yield TaggedOutput(COUNTS, count)
        yield from rows
