"""Which features a build has, decided before it starts: the columns, what they are computed with, where they are kept.

A plan travels to the workers. There each extractor is made anew, and must be the one that was planned: a worker with
other weights, libraries or another kind of device than the machine that started the build says so and stops.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from pipelines.config import BuildConfig
from pipelines.features.cache import FeatureCache, folder_of
from pipelines.features.extractors import (
    Extractor,
    ImageExtractor,
    SentenceExtractor,
    image_extractor,
    sentence_extractor,
)
from pipelines.features.given import GivenVectors
from pipelines.features.values import Compute, RegionLimits
from pipelines.features.weights import parse_weights
from pipelines.settings import FeaturesConfig
from pipelines.sources.multi_retrieval import MultiRetrievalSource
from schemas.configs import resolve
from schemas.errors import BuildError
from schemas.features import FeatureColumn, FeatureKind
from schemas.lake import Folder, Lake


class Given(NamedTuple):
    """Vectors that the source brings: name of the column, path of the array."""

    name: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FeaturePlan:
    """The features of a build.

    Attributes:
        images: feature columns of the images part, sorted.
        sentences: feature columns of the documents part, sorted.
        given: vectors of images that the source brings, or None.
        config: names, storage, limits, weights.
        compute: what one worker process computes with.
        lake: whose cache keeps what was computed.
        jpeg_quality: of the pictures that extractors look at.
    """

    images: tuple[FeatureColumn, ...]
    sentences: tuple[FeatureColumn, ...]
    given: Given | None = None
    config: FeaturesConfig
    compute: Compute
    lake: Lake
    jpeg_quality: int

    @property
    def extracted(self) -> tuple[FeatureColumn, ...]:
        """Return the image columns that are computed, not given."""
        return tuple(column for column in self.images if self.given is None or column.name != self.given.name)

    @property
    def fingerprints(self) -> tuple[tuple[str, str], ...]:
        """Return (extractor, fingerprint) of every extractor: part of the version."""
        return tuple(sorted((column.name, column.fingerprint) for column in (*self.extracted, *self.sentences)))

    def image_cache(self, column: FeatureColumn) -> FeatureCache:
        """Return where the values of an image column are kept."""
        return FeatureCache(image_folder(self.lake, column, self.jpeg_quality, self.config.region_limits))

    def sentence_cache(self, column: FeatureColumn) -> FeatureCache:
        """Return where the vectors of documents' sentences are kept."""
        return FeatureCache(sentence_folder(self.lake, column))

    def image_extractor(self, column: FeatureColumn) -> ImageExtractor:
        """Return the extractor of a column, made for this process; see `make_image_extractor`."""
        extractor = make_image_extractor(column.name, self.config, self.compute)
        _check(extractor, column)
        return extractor

    def sentence_extractor(self, column: FeatureColumn) -> SentenceExtractor:
        """Return the extractor of a column, made for this process."""
        extractor = make_sentence_extractor(column.name, self.config, self.compute)
        _check(extractor, column)
        return extractor


def plan_features(config: BuildConfig, *, lake: Lake, workers: int) -> FeaturePlan:
    """Return the features of a build.

    Raises:
        ConfigError: an extractor is not known, or its weights are not given.
        NotFoundError: a weight file or the array of given vectors is not there.
    """
    features = config.features
    compute = features.compute(workers=workers)
    images = [make_image_extractor(name, features, compute) for name in features.images]
    sentences = [make_sentence_extractor(name, features, compute) for name in features.sentences]
    columns = [_column(extractor, features, kind=extractor.kind) for extractor in images]
    given = None
    if isinstance(config.source, MultiRetrievalSource):
        given = Given(config.source.extractor, config.source.features)
        size = GivenVectors(given.name, given.path).dimensions
        columns.append(FeatureColumn(name=given.name, dimensions=size, storage=features.storage))
    return FeaturePlan(
        images=tuple(sorted(columns)),
        sentences=tuple(sorted(_column(extractor, features) for extractor in sentences)),
        given=given,
        config=features,
        compute=compute,
        lake=lake,
        jpeg_quality=config.images.jpeg_quality,
    )


def image_folder(lake: Lake, column: FeatureColumn, jpeg_quality: int, limits: RegionLimits) -> Folder:
    """Return the folder that an image column's values are kept in: its name follows from all they depend on."""
    depends_on: dict[str, Any] = {"extractor": column.fingerprint, "jpeg_quality": jpeg_quality}
    if column.kind is FeatureKind.REGIONS:
        depends_on["regions"] = resolve(limits)
    return folder_of(lake, column.name, depends_on)


def sentence_folder(lake: Lake, column: FeatureColumn) -> Folder:
    """Return the folder that the vectors of a documents column are kept in."""
    return folder_of(lake, column.name, {"extractor": column.fingerprint})


def make_image_extractor(name: str, config: FeaturesConfig, compute: Compute) -> ImageExtractor:
    """Return an image extractor with the weights and limits of a configuration."""
    return image_extractor(name, compute=compute, weights=parse_weights(config.weights), regions=config.region_limits)


def make_sentence_extractor(name: str, config: FeaturesConfig, compute: Compute) -> SentenceExtractor:
    """Return a sentence extractor with the weights of a configuration."""
    return sentence_extractor(name, compute=compute, weights=parse_weights(config.weights))


def _column(extractor: Extractor, features: FeaturesConfig, *, kind: FeatureKind = FeatureKind.VECTOR) -> FeatureColumn:
    return FeatureColumn(
        name=extractor.name,
        kind=kind,
        dimensions=extractor.dimensions,
        storage=features.storage,
        fingerprint=extractor.fingerprint(),
    )


def _check(extractor: Extractor, planned: FeatureColumn) -> None:
    if extractor.fingerprint() != planned.fingerprint:
        raise BuildError(
            f"extractor {planned.name}: this worker's weights, libraries, device or precision differ from those of "
            "the machine that started the build; set features.device and features.precision, and install the same"
        )
