"""Named complete builds: each a function that returns a full configuration. The first of a data set is its default."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from pipelines.config import BuildConfig, Source
from pipelines.settings import DedupeConfig, DocumentsConfig, FeaturesConfig, Policy, SplitsConfig
from pipelines.sources.coherence import CiteSource, ClueSource
from pipelines.sources.diy.submissions import DiySource
from pipelines.sources.jsonl import DocumentsSource
from pipelines.sources.mscoco import MscocoSource
from pipelines.sources.multi_retrieval import MultiRetrievalSource
from pipelines.sources.news import NewsSource
from pipelines.sources.recipeqa import RecipeqaSource
from pipelines.sources.vist import VistSource
from pipelines.sources.wikipedia.imageclef import ImageclefSource
from pipelines.sources.wikipedia.live import WikipediaSource
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


def mscoco() -> BuildConfig:
    """Ten-image documents of captioned images and images whose captions are withheld (Hessel 2019, suppl. 1)."""
    return _as_published("mscoco", MscocoSource())


def story_dii() -> BuildConfig:
    """VIST's descriptions in isolation: five photos, a description each."""
    return _as_published("story-dii", VistSource(kind="dii"))


def story_sis() -> BuildConfig:
    """VIST's stories in sequence: five photos, a sentence of the story each."""
    return _as_published("story-sis", VistSource(kind="sis"))


def dii_stress() -> BuildConfig:
    """story-dii with 45 captions of other photos in every document."""
    return _as_published("dii-stress", VistSource(kind="dii-stress"))


def rqa() -> BuildConfig:
    """RecipeQA's recipes: a sentence a step, linked to the step's images."""
    thresholds = DocumentsConfig(min_sentences=2, min_images=2, min_long_sentences=0, max_images=NO_LIMIT)
    return _without_limits("rqa", RecipeqaSource(), thresholds)


def cite() -> BuildConfig:
    """CITE and CITE++: one sentence, one image, seven relations between them."""
    return _as_published("cite", CiteSource())


def clue() -> BuildConfig:
    """CLUE: one caption, one image, six relations between them."""
    return _as_published("clue", ClueSource())


def wiki() -> BuildConfig:
    """Wikipedia articles of the ImageCLEF collection: no link is known."""
    thresholds = DocumentsConfig(min_sentences=10, min_images=3, min_long_sentences=0, max_images=NO_LIMIT)
    return _without_limits("wiki", ImageclefSource(), thresholds)


def wiki_live() -> BuildConfig:
    """Articles of a live MediaWiki, by a list of titles or a category, with their Commons images."""
    return dataclasses.replace(wiki(), source=WikipediaSource())


def news() -> BuildConfig:
    """News articles: up to four texts by their roles, one image."""
    return _as_published("news", NewsSource())


def _as_published(dataset: str, source: Source) -> BuildConfig:
    """Return a build that keeps every document whose images can all be had, in the splits the source gives."""
    thresholds = DocumentsConfig(min_long_sentences=0, min_images=1, max_images=NO_LIMIT, keep_partial=False)
    return _without_limits(dataset, source, thresholds)


def _without_limits(dataset: str, source: Source, thresholds: DocumentsConfig) -> BuildConfig:
    return BuildConfig(
        dataset=dataset,
        source=source,
        documents=dataclasses.replace(thresholds, max_sentences=NO_LIMIT),
        dedupe=DedupeConfig(policy=Policy.KEEP_ALL),
    )


_ALL = (diy, documents, multi_retrieval, mscoco, story_dii, story_sis, dii_stress, rqa, cite, clue, wiki, news)
RECIPES: Mapping[str, Callable[[], BuildConfig]] = {make().dataset: make for make in _ALL} | {"wiki-live": wiki_live}


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
