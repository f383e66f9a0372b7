"""The first data set of `benchmarks/learning.py`, `posts`, and what all of its data sets share.

    posts    the demo's data set: posts with their albums, as the `diy` recipe builds it from the recorded web, with
             regions (`grid`), classes, and further columns beside the vectors

The others are made of the posts' pictures: `learning_scenes.py`, `learning_pairs.py`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from benchmarks.learning_columns import CLASSES, columns
from orchestration.demo.recorded_web import recording_at, scraping
from pipelines.config import recipe
from pipelines.recipe import BuildConfig
from pipelines.run import build_dataset
from schemas.documents import Split
from schemas.lake import Lake
from schemas.manifest import read_manifest
from schemas.overrides import override
from training.config import TrainConfig
from training.data.documents import DocumentSet
from training.data.lake import Columns, read_split
from training.data.loading import TrainingData, load_training_data
from training.model import LinkModel
from training.shards import embed_split

ROOT = Path(__file__).resolve().parent.parent
POSTS_SETTINGS = ("splits.val=0.1", "splits.test=0.2")  # the demo's test split, doubled: intervals are over documents


@dataclass(frozen=True)
class LakeData:
    """A built data set version, divided by split number `split`."""

    lake: Lake
    reference: str
    split: int

    @property
    def key(self) -> str:
        """Return what names this data among others: its version."""
        return self.reference

    def training(self, config: TrainConfig) -> TrainingData:
        return load_training_data(self.lake, self.reference, config.reading)

    def documents(self, model: LinkModel, split: Split) -> DocumentSet:
        return embed_split(model, *read_manifest(self.lake, self.reference), split)[0]

    def classified(self, split: Split) -> DocumentSet:
        """Return a split with its links and the classes of its images."""
        manifest, folder = read_manifest(self.lake, self.reference)
        return read_split(manifest, folder, split, Columns(classes=CLASSES, links=True))

    def size(self, split: Split) -> int:
        return read_manifest(self.lake, self.reference)[0].splits[str(split)].documents


def build_posts(lake: Lake, split: int) -> LakeData:
    """Build, or find, the demo's data set with all feature columns; `split` says how documents are divided."""
    with scraping(recording_at()) as web:
        config = override(recipe("diy"), [*web, *POSTS_SETTINGS, f"splits.seed={split}", *columns_in(lake)])
        return built(config, lake, split)


def columns_in(lake: Lake) -> tuple[str, ...]:
    """Return the settings of the feature columns; what they need is beside the lake."""
    return columns(Path(str(lake.root.local)).with_name("columns"))


def digest_of_code(*patterns: str) -> str:
    """Return the SHA-256 (hex) of source files, named by patterns relative to the repository."""
    digest = hashlib.sha256()
    for path in sorted(path for pattern in patterns for path in ROOT.glob(pattern)):
        digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def built(config: BuildConfig, lake: Lake, split: int) -> LakeData:
    summary = build_dataset(config, lake=lake, workers=1, say=_say)
    return LakeData(lake, f"{summary.manifest.dataset}@{summary.manifest.version}", split)


def _say(line: str) -> None:
    """Keep a build's progress out of the table."""
