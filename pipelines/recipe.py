"""The configuration of a whole build, and how recipes make one.

A configuration is the data set's name, its source, and the settings of every stage (`settings.py`); `multilink build
DATASET --set key=value` addresses its keys. A recipe is a function that returns one; it stands beside its source, in
`pipelines/sources/datasets/`, or in another package.
"""

from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from msgspec import Meta

from pipelines.settings import (
    NO_LIMIT,
    CopyDetectionConfig,
    DedupeConfig,
    DocumentsConfig,
    FeaturesConfig,
    HttpConfig,
    ImagesConfig,
    Policy,
    QualityConfig,
    ShardsConfig,
    SplitsConfig,
)
from schemas.configs import Outside, Settings, outside, require
from schemas.lake import check_name

EVERY_DOCUMENT = DocumentsConfig(min_long_sentences=0, min_images=1, max_images=NO_LIMIT, long_sentence_tokens=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildConfig(Settings):
    """A complete build of one data set.

    Attributes:
        dataset: name of the data set in the lake.
        source: settings of its source, a dataclass (`pipelines.sources.source.Settings`).
        max_failure_share: the build fails if a stage loses more than this share of its input, apart from rejections by
            the data set's own rules.
        takedown_list: path or URL of a list of documents, addresses and images to leave out
            (`pipelines.sources.takedowns`).
        takedowns: fingerprint of the entries of the list, set by the build.
    """

    dataset: str
    source: Any
    http: HttpConfig = field(default_factory=HttpConfig)
    documents: DocumentsConfig = field(default_factory=DocumentsConfig)
    images: ImagesConfig = field(default_factory=ImagesConfig)
    dedupe: DedupeConfig = field(default_factory=DedupeConfig)
    quality: QualityConfig = field(default_factory=QualityConfig)
    features: FeaturesConfig = field(default_factory=FeaturesConfig)
    copy_detection: CopyDetectionConfig = field(default_factory=CopyDetectionConfig)
    splits: SplitsConfig = field(default_factory=SplitsConfig)
    shards: ShardsConfig = field(default_factory=ShardsConfig)
    max_failure_share: Annotated[float, Meta(ge=0, le=1)] = outside(0.5, Outside.PACE)
    takedown_list: str = outside("", Outside.PATH)
    takedowns: str = ""

    def __post_init__(self) -> None:
        Settings.__post_init__(self)
        check_name(self.dataset)
        extractor, known = self.copy_detection.extractor, self.features.images
        rule = f"must be one of features.images: {', '.join(known) or 'none'}"
        require(not extractor or extractor in known, field="copy_detection.extractor", value=extractor, rule=rule)


def as_published(dataset: str, source: Any) -> BuildConfig:
    """Return a build that keeps every document whose images can all be had, in the splits the source gives."""
    thresholds = DocumentsConfig(min_long_sentences=0, min_images=1, max_images=NO_LIMIT, keep_partial=False)
    return without_limits(dataset, source, thresholds)


def without_limits(dataset: str, source: Any, thresholds: DocumentsConfig = EVERY_DOCUMENT) -> BuildConfig:
    """Return a build that keeps near-duplicates and documents of any length."""
    return BuildConfig(
        dataset=dataset,
        source=source,
        documents=replace(thresholds, max_sentences=NO_LIMIT),
        dedupe=DedupeConfig(policy=Policy.KEEP_ALL),
    )
