"""The configuration of a whole build: the data set's name, its source, and the settings of every stage.

`multilink build DATASET --set key=value` addresses its keys. Named complete builds are in `recipes.py`; the settings
of the stages are in `settings.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pipelines.settings import (
    DedupeConfig,
    DocumentsConfig,
    FeaturesConfig,
    HttpConfig,
    ImagesConfig,
    ShardsConfig,
    SplitsConfig,
)
from pipelines.sources.coherence import CiteSource, ClueSource
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
from schemas.configs import Json, require, resolve

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
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildConfig:
    """A complete build of one data set.

    Attributes:
        dataset: name it gets in the lake.
        max_failure_share: a stage that loses more than this share of what entered it, rejections by the data set's
            own rules apart, fails the build.
        takedown_list: path of a file of what must not be in the data set (`pipelines.sources.takedowns`).
        takedowns: its entries; read from the file, not set by hand.
    """

    dataset: str
    source: Source
    http: HttpConfig = field(default_factory=HttpConfig)
    documents: DocumentsConfig = field(default_factory=DocumentsConfig)
    images: ImagesConfig = field(default_factory=ImagesConfig)
    dedupe: DedupeConfig = field(default_factory=DedupeConfig)
    features: FeaturesConfig = field(default_factory=FeaturesConfig)
    splits: SplitsConfig = field(default_factory=SplitsConfig)
    shards: ShardsConfig = field(default_factory=ShardsConfig)
    max_failure_share: float = 0.5
    takedown_list: str = ""
    takedowns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        share = self.max_failure_share
        require(0 <= share <= 1, field="max_failure_share", value=share, rule="must be in [0, 1]")


# Settings of features that change the speed, or that the extractors' fingerprints stand for.
_COMPUTING = frozenset({"weights", "device", "precision", "batch_images", "threads"})


def content_config(config: BuildConfig) -> dict[str, Json]:
    """Return the settings that change what is built: all but `http`, budgets, computing and paths of files.

    Weights and, where values depend on it, the precision are in the fingerprints of the extractors.
    """
    values = resolve(config)
    del values["http"], values["max_failure_share"], values["takedown_list"]
    values["takedowns"] = Takedowns(config.takedowns).fingerprint  # not the entries: they would name what must go
    source, features = values["source"], values["features"]
    if isinstance(source, dict) and isinstance(features, dict):
        paths = path_settings(config.source)  # their content is fingerprinted instead
        values["source"] = {name: value for name, value in source.items() if name not in paths}
        values["features"] = {name: value for name, value in features.items() if name not in _COMPUTING}
    return values
