"""The configuration of a whole build, and the recipes: named complete builds, the first of a data set its default.

A configuration is the data set's name, its source, and the settings of every stage (`settings.py`); `multilink build
DATASET --set key=value` addresses its keys. A recipe is a function that returns one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

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
from pipelines.sources.archive import ArchiveSource
from pipelines.sources.coherence import CiteSource, ClueSource
from pipelines.sources.corpora.source import CorpusSource, Format
from pipelines.sources.diy.submissions import DiySource
from pipelines.sources.inputs import path_settings
from pipelines.sources.jsonl import DocumentsSource
from pipelines.sources.mscoco import MscocoSource
from pipelines.sources.multi_retrieval import MultiRetrievalSource
from pipelines.sources.news import NewsSource
from pipelines.sources.recipeqa import RecipeqaSource
from pipelines.sources.takedowns import Takedowns
from pipelines.sources.vist import VistSource
from pipelines.sources.wikipedia.imageclef import ImageclefSource
from pipelines.sources.wikipedia.live import WikipediaSource
from schemas.configs import Json, pick, require, resolve
from schemas.errors import ConfigError
from schemas.plugins import SOURCES, load_plugin, origin, plugins

Source = (
    DiySource
    | DocumentsSource
    | MultiRetrievalSource
    | MscocoSource
    | VistSource
    | RecipeqaSource
    | CiteSource
    | ClueSource
    | ImageclefSource
    | WikipediaSource
    | NewsSource
    | ArchiveSource
    | CorpusSource
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildConfig:
    """A complete build of one data set.

    Attributes:
        dataset: name it gets in the lake.
        max_failure_share: a stage that loses more than this share of what entered it, rejections by the data set's
            own rules apart, fails the build.
        takedown_list: path or URL of a file of what must not be in the data set (`pipelines.sources.takedowns`).
        takedowns: its entries; read from the file, not set by hand.
    """

    dataset: str
    source: Source
    http: HttpConfig = field(default_factory=HttpConfig)
    documents: DocumentsConfig = field(default_factory=DocumentsConfig)
    images: ImagesConfig = field(default_factory=ImagesConfig)
    dedupe: DedupeConfig = field(default_factory=DedupeConfig)
    quality: QualityConfig = field(default_factory=QualityConfig)
    features: FeaturesConfig = field(default_factory=FeaturesConfig)
    copy_detection: CopyDetectionConfig = field(default_factory=CopyDetectionConfig)
    splits: SplitsConfig = field(default_factory=SplitsConfig)
    shards: ShardsConfig = field(default_factory=ShardsConfig)
    max_failure_share: float = 0.5
    takedown_list: str = ""
    takedowns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        share = self.max_failure_share
        require(0 <= share <= 1, field="max_failure_share", value=share, rule="must be in [0, 1]")
        extractor, known = self.copy_detection.extractor, self.features.images
        rule = f"must be one of features.images: {', '.join(known) or 'none'}"
        require(not extractor or extractor in known, field="copy_detection.extractor", value=extractor, rule=rule)


# Settings of `http` that say which wishes of hosts and authors are honoured.
HONOURED = ("obey_ai_txt", "obey_content_usage", "obey_robots", "obey_robots_tags", "obey_tdm")
# Settings of features that change the speed, or that the extractors' fingerprints stand for.
_COMPUTING = frozenset({"weights", "device", "threads"})


def content_config(config: BuildConfig) -> dict[str, Json]:
    """Return the settings that change what is built: all but budgets, computing, paths of files, and most of `http`.

    Of that there is what is honoured of the wishes of hosts and authors. Weights are in the fingerprints of the
    extractors.
    """
    values = resolve(config)
    del values["max_failure_share"], values["takedown_list"]
    values["http"] = {name: getattr(config.http, name) for name in HONOURED}
    values["takedowns"] = Takedowns(config.takedowns).fingerprint  # not the entries: they would name what must go
    source, features = values["source"], values["features"]
    if isinstance(source, dict) and isinstance(features, dict):
        paths = path_settings(config.source)  # their content is fingerprinted instead
        values["source"] = {name: value for name, value in source.items() if name not in paths}
        values["features"] = {name: value for name, value in features.items() if name not in _COMPUTING}
    return values


_EVERY_DOCUMENT = DocumentsConfig(min_long_sentences=0, min_images=1, max_images=NO_LIMIT, long_sentence_tokens=1)


def diy() -> BuildConfig:
    """Reddit DIY posts with their imgur albums, by the rules of Hessel 2019 (SPEC 2)."""
    return BuildConfig(dataset="diy", source=DiySource(), documents=DocumentsConfig(is_judged_after_dedupe=True))


def documents() -> BuildConfig:
    """A user's own documents: all that have a sentence and an image are kept, near-duplicates included."""
    return _without_limits("documents", DocumentsSource(), _EVERY_DOCUMENT)


def multi_retrieval() -> BuildConfig:
    """The files Hessel 2019 released: documents and feature rows, no pixels, splits as published."""
    config = _without_limits("multi-retrieval", MultiRetrievalSource(), _EVERY_DOCUMENT)
    return replace(config, features=FeaturesConfig(images=()), splits=SplitsConfig(val=0.0, test=0.0))


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
    return replace(wiki(), source=WikipediaSource())


def news() -> BuildConfig:
    """News articles: up to four texts by their roles, one image."""
    return _as_published("news", NewsSource())


def archive() -> BuildConfig:
    """A picture archive to be searched: one picture a document, no sentence, all in one split."""
    thresholds = replace(_EVERY_DOCUMENT, min_sentences=0)
    config = _without_limits("archive", ArchiveSource(), thresholds)
    return replace(config, features=FeaturesConfig(sentences=()), splits=SplitsConfig(val=0.0, test=0.0))


def mmc4() -> BuildConfig:
    """MMC4: documents of sentences and pictures with CLIP's assignment, kept as a baseline (Zhu et al. 2023)."""
    return _corpus("mmc4", language="en")


def obelics() -> BuildConfig:
    """OBELICS, and MINT-1T's HTML documents: running text with pictures in the order of the page."""
    return _corpus("obelics", language="en")


def interleaved() -> BuildConfig:
    """NeMo Curator's interleaved rows, and MINT-1T's tars of documents."""
    return _corpus("interleaved")


def webdataset() -> BuildConfig:
    """Pictures with their captions in WebDataset's tars, or as img2dataset writes them."""
    return _corpus("webdataset")


def hf() -> BuildConfig:
    """A data set of Hugging Face on disk, in Arrow or Parquet."""
    return _corpus("hf")


def web() -> BuildConfig:
    """Pages in WARC files: main text and pictures in the order of the page."""
    return _corpus("web")


def _corpus(dataset: Format, **source: str) -> BuildConfig:
    """Return a build that keeps every document of a corpus; most of the links of an old one are dead."""
    config = _without_limits(dataset, CorpusSource(format=dataset, **source), _EVERY_DOCUMENT)  # type: ignore[arg-type]
    return replace(config, max_failure_share=0.95)


def _as_published(dataset: str, source: Source) -> BuildConfig:
    """Return a build that keeps every document whose images can all be had, in the splits the source gives."""
    thresholds = DocumentsConfig(min_long_sentences=0, min_images=1, max_images=NO_LIMIT, keep_partial=False)
    return _without_limits(dataset, source, thresholds)


def _without_limits(dataset: str, source: Source, thresholds: DocumentsConfig) -> BuildConfig:
    return BuildConfig(
        dataset=dataset,
        source=source,
        documents=replace(thresholds, max_sentences=NO_LIMIT),
        dedupe=DedupeConfig(policy=Policy.KEEP_ALL),
    )


def _of_plugin(name: str) -> BuildConfig:
    """Return the build of a data set of another package.

    Raises:
        ConfigError: its package cannot be loaded, or gives no build of that name.
    """
    make = load_plugin(SOURCES, name)
    found = make() if callable(make) else make
    if not (isinstance(found, BuildConfig) and found.dataset == name):
        raise ConfigError(f"{origin(SOURCES, name)}: expected a function that returns a BuildConfig of '{name}'")
    return found


_ALL = (
    diy, documents, multi_retrieval, mscoco, story_dii, story_sis, dii_stress, rqa, cite, clue, wiki, news, archive,
    mmc4, obelics, interleaved, webdataset, hf, web,
)  # fmt: skip
RECIPES: Mapping[str, Callable[[], BuildConfig]] = {make().dataset: make for make in _ALL} | {"wiki-live": wiki_live}


def datasets() -> list[str]:
    """Return the names of the data sets that can be built, those of other packages among them."""
    return sorted({*(recipe().dataset for recipe in RECIPES.values()), *plugins(SOURCES)})


def recipe(dataset: str, name: str | None = None) -> BuildConfig:
    """Return a data set's named recipe, or its default one.

    Raises:
        ConfigError: there is no such data set, or no such recipe for it.
    """
    pick(dict.fromkeys(datasets()), dataset, what="data set")
    fitting = {key: make for key, make in RECIPES.items() if make().dataset == dataset}
    if not fitting:
        fitting[dataset] = partial(_of_plugin, dataset)
    return pick(fitting, name or dataset, what="recipe")()
