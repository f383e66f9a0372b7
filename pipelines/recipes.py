"""Named complete builds: each a function that returns a full configuration. The first of a data set is its default."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pipelines.config import (
    BuildConfig,
    DedupeConfig,
    DiySource,
    DocumentsConfig,
    DocumentsSource,
    FeaturesConfig,
    MultiRetrievalSource,
    Policy,
    SplitsConfig,
)
from schemas.errors import ConfigError

NO_LIMIT = 1_000_000


def diy() -> BuildConfig:
    """Reddit DIY posts with their imgur albums, by the rules of Hessel 2019 (SPEC 2)."""
    return BuildConfig(dataset="diy", source=DiySource())


def documents() -> BuildConfig:
    """A user's own documents: all that have a sentence and an image are kept, near-duplicates included."""
    return BuildConfig(
        dataset="documents",
        source=DocumentsSource(),
        documents=DocumentsConfig(
            min_long_sentences=0, min_images=1, max_images=NO_LIMIT, max_sentences=NO_LIMIT, long_sentence_tokens=1
        ),
        dedupe=DedupeConfig(policy=Policy.KEEP_ALL),
    )


def multi_retrieval() -> BuildConfig:
    """The files Hessel 2019 released: documents and feature rows, no pixels, splits as published."""
    return BuildConfig(
        dataset="multi-retrieval",
        source=MultiRetrievalSource(),
        documents=DocumentsConfig(
            min_long_sentences=0, min_images=1, max_images=NO_LIMIT, max_sentences=NO_LIMIT, long_sentence_tokens=1
        ),
        dedupe=DedupeConfig(policy=Policy.KEEP_ALL),
        features=FeaturesConfig(images=()),
        splits=SplitsConfig(val=0.0, test=0.0),
    )


RECIPES: Mapping[str, Callable[[], BuildConfig]] = {
    "diy": diy,
    "documents": documents,
    "multi-retrieval": multi_retrieval,
}


def datasets() -> list[str]:
    """Return the names of the data sets that can be built."""
    return sorted({recipe().dataset for recipe in RECIPES.values()})


def recipe(dataset: str, name: str | None = None) -> BuildConfig:
    """Return a data set's named recipe, or its default one.

    Raises:
        ConfigError: there is no such data set, or no such recipe for it.
    """
    if dataset not in datasets():
        raise ConfigError(f"unknown data set '{dataset}'; data sets: {', '.join(datasets())}")
    name = name or dataset
    fitting = [key for key, make in RECIPES.items() if make().dataset == dataset]
    if name not in fitting:
        raise ConfigError(f"unknown recipe '{name}' of {dataset}; recipes: {', '.join(fitting)}")
    return RECIPES[name]()
