"""Which features a build has, decided before it starts: the columns, what they are computed with, their packs.

A plan travels to the workers. There each extractor is made anew, and must be the one that was planned: a worker with
other weights, libraries or another kind of device than the machine that started the build says so and stops.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import pyarrow as pa

from pipelines.features.catalogue import Extractor, extractors
from pipelines.features.columns import DOCUMENTS, IMAGES, feature_array
from pipelines.images.copies import METHOD
from pipelines.images.given import given_array
from pipelines.packs import PackRef
from pipelines.settings import FeaturesConfig, HttpConfig, ImagesConfig
from schemas.codecs import picture_libraries
from schemas.configs import require
from schemas.errors import BuildError
from schemas.features import FeatureColumn
from schemas.lake import Lake
from schemas.versions import canonical_json, fingerprint


@dataclass(frozen=True, slots=True, kw_only=True)
class FeaturePlan:
    """The features of a build.

    Attributes:
        images: feature columns of the images part, sorted.
        sentences: feature columns of the documents part, sorted.
        given: path of the array of vectors that the source brings: the column of images without a fingerprint.
        config: names, storage, limits, weights, and what one worker process computes with.
        http: how weights are fetched.
        lake: whose packs keep what was computed.
        copies: how the pictures that extractors read were made.
    """

    images: tuple[FeatureColumn, ...]
    sentences: tuple[FeatureColumn, ...]
    given: str = ""
    config: FeaturesConfig
    http: HttpConfig
    lake: Lake
    copies: str

    def extracted(self, table: str) -> tuple[FeatureColumn, ...]:
        """Return the columns of `images` or `documents` that are computed, not given."""
        columns = self.images if table == IMAGES else self.sentences
        return tuple(column for column in columns if column.fingerprint)

    @property
    def fingerprints(self) -> tuple[tuple[str, str], ...]:
        """Return (extractor, fingerprint) of every extractor: part of the version."""
        columns = (*self.extracted(IMAGES), *self.extracted(DOCUMENTS))
        return tuple(sorted((column.name, column.fingerprint) for column in columns))

    def extractors(self, table: str) -> list[Extractor]:
        """Return the extractors of `extracted(table)`: one of each for all threads of a process."""
        return _extractors(self, table)

    def arrays(self, table: str, refs: Sequence[Sequence[PackRef]]) -> dict[str, pa.Array]:
        """Return the computed columns of a shard by name, for the references of each of its images or documents.

        Raises:
            BuildError: a pack is gone.
        """
        return {
            column.column: feature_array(self.lake, column, table, [of_item[number] for of_item in refs])
            for number, column in enumerate(self.extracted(table))
        }


@lru_cache(maxsize=2)
def _extractors(plan: FeaturePlan, table: str) -> list[Extractor]:
    names = plan.config.images if table == IMAGES else plan.config.sentences
    made = extractors(names, table, plan.config, plan.http)
    differing = {*_columns(made, table, plan.copies)} ^ {*plan.extracted(table)}
    if differing:
        raise BuildError(
            f"extractor {min(differing).name}: this worker's weights, libraries, device or precision differ from those "
            "of the machine that started the build; set features.device and features.precision, and install the same"
        )
    return made


def plan_features(
    config: FeaturesConfig,
    images: ImagesConfig,
    http: HttpConfig,
    *,
    given: tuple[str, str] | None,
    lake: Lake,
    workers: int,
) -> FeaturePlan:
    """Return the features of a build.

    Args:
        config: names, storage, limits, weights.
        images: how the copies are made.
        http: how weights are fetched.
        given: name of the column and path of the array of vectors that the source brings instead of pictures.
        lake: where values are kept.
        workers: processes that share this machine's cores.

    Raises:
        ConfigError: an extractor is not known, or its weights are not given.
        NotFoundError: a weight file or the array of given vectors is not there.
    """
    config = replace(config, threads=config.threads or max(1, (os.cpu_count() or 1) // workers))
    copies = canonical_json([METHOD, images.jpeg_quality, picture_libraries()])
    columns = _columns(extractors(config.images, IMAGES, config, http), IMAGES, copies)
    if given is not None:
        rule = "the source brings vectors of images, and no pictures: expected none"
        require(not columns, field="features.images", value=config.images, rule=rule)
        name, path = given
        columns = [FeatureColumn(name=name, dimensions=given_array(path).shape[1], storage=config.storage)]
    sentences = _columns(extractors(config.sentences, DOCUMENTS, config, http), DOCUMENTS, copies)
    return FeaturePlan(
        images=tuple(sorted(columns)),
        sentences=tuple(sorted(sentences)),
        given=given[1] if given else "",
        config=config,
        http=http,
        lake=lake,
        copies=copies,
    )


def _columns(made: Iterable[Extractor], table: str, copies: str) -> list[FeatureColumn]:
    """Return the columns of extractors; fingerprints of images' columns also name how the copies were made."""
    columns = [column for extractor in made for column in extractor.columns]
    if table == DOCUMENTS:
        return columns
    return [replace(c, fingerprint=fingerprint({"extractor": c.fingerprint, "copies": copies})) for c in columns]
