"""A worker's share of a data set version, ready for the trainer: its own shards in full, an index of all the others.

Shard `s` of a split belongs to worker `s mod world size`. Training reads no link of the training split, and
its relations for the coherence objective alone; links of the validation split are read for the reported AUC and
precision alone. The one exception is the supervised objective, an upper bound: it is shown links (`shown_links.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from schemas.documents import Split
from schemas.errors import UsageError
from schemas.features import FeatureKind
from schemas.lake import MANIFEST, Folder, Lake
from schemas.manifest import Manifest, read_manifest
from training.config import TrainConfig
from training.data.documents import HeldSplit
from training.data.reading import choose_extractor, read_index, read_split
from training.data.roles import TextView
from training.data.shown_links import show_links
from training.fitting import choose_regions, inputs_of
from training.requirements import check_fits


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetIdentity:
    """Which data a model comes from: name, version, SHA-256 (hex) of the manifest, feature columns and their sizes.

    A column that the towers do not read is None, as is its size.
    """

    dataset: str
    version: str
    manifest_digest: str
    image_features: str | None
    image_dimensions: int | None
    sentence_features: str | None
    sentence_dimensions: int | None
    region_features: str | None = None
    region_dimensions: int | None = None
    class_features: str | None = None

    @property
    def reference(self) -> str:
        return f"{self.dataset}@{self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingData:
    """What `training.loop.trainer.train` consumes; `validation` is None where the split is absent or empty."""

    identity: DatasetIdentity
    training: HeldSplit
    validation: HeldSplit | None


def load_training_data(
    lake: Lake, reference: str, config: TrainConfig, *, rank: int = 0, world_size: int = 1
) -> TrainingData:
    """Return worker `rank`'s share of `NAME[@VERSION]`.

    Raises:
        NotFoundError: the data set, version or training split is not there.
        ConfigError: a feature column that the configuration names is not there, or `auto` is ambiguous.
        UsageError: no training document has both a sentence and an image.
    """
    manifest, folder = read_manifest(lake, reference)
    identity = identify(manifest, folder, config)
    hold = partial(_hold, manifest, folder, identity, config, rank=rank, world_size=world_size)
    training = hold(Split.TRAIN)
    if not len(training.index.usable):
        wanted = " or ".join(TextView.of(config).roles) or "sentence"
        raise UsageError(f"{identity.reference}: expected training documents with a {wanted} and an image, found none")
    validation = hold(Split.VAL) if manifest.parts("documents", Split.VAL) else None
    has_validation = validation is not None and len(validation.index.usable) > 0
    return TrainingData(identity=identity, training=training, validation=validation if has_validation else None)


def identify(manifest: Manifest, folder: Folder, config: TrainConfig) -> DatasetIdentity:
    """Return which data set version and which of its feature columns a configuration trains on.

    Raises:
        ConfigError: the data set lacks what the configuration's towers read.
        UsageError: the objective does not fit the data (`training.requirements`).
    """
    check_fits(config, manifest)
    reads = inputs_of(config)
    images = sentences = regions = None
    if reads.image_vectors:
        images = choose_extractor(
            manifest.extractors("images"), config.data.image_features, field="data.image_features"
        )
    if reads.sentence_vectors:
        known = manifest.extractors("documents")
        sentences = choose_extractor(known, config.data.sentence_features, field="data.sentence_features")
    if reads.regions:
        regions = choose_regions(manifest.extractors("images", FeatureKind.REGIONS), config.data.region_features)
    classes = _wanted(
        manifest.extractors("images", FeatureKind.CLASSES), config.data.class_features, field="data.class_features"
    )
    return DatasetIdentity(
        dataset=manifest.dataset,
        version=manifest.version,
        manifest_digest=hashlib.sha256(folder.read(MANIFEST)).hexdigest(),
        image_features=images,
        image_dimensions=manifest.extractors("images")[images] if images else None,
        sentence_features=sentences,
        sentence_dimensions=manifest.extractors("documents")[sentences] if sentences else None,
        region_features=regions,
        region_dimensions=manifest.extractors("images", FeatureKind.REGIONS)[regions] if regions else None,
        class_features=classes,
    )


def _wanted(extractors: Mapping[str, int], name: str, *, field: str) -> str | None:
    """Return the extractor a setting names, or None where the setting is empty."""
    return choose_extractor(extractors, name, field=field) if name else None


def _hold(
    manifest: Manifest,
    folder: Folder,
    identity: DatasetIdentity,
    config: TrainConfig,
    split: Split,
    *,
    rank: int,
    world_size: int,
) -> HeldSplit:
    view = TextView.of(config)
    index = read_index(manifest, folder, split, view=view)
    documents = read_split(
        manifest,
        folder,
        split,
        image_features=identity.image_features,
        sentence_features=identity.sentence_features,
        region_features=identity.region_features,
        class_features=identity.class_features,
        with_links=split is Split.VAL,
        with_relations=config.objective.reads_relations and split is Split.TRAIN,
        with_jpegs=inputs_of(config).jpegs,
        view=view,
        shards=range(rank, len(manifest.parts("documents", split)), world_size),
    )
    local = np.full(len(index), -1, dtype=np.int64)
    local[index.shards % world_size == rank] = np.arange(len(documents))
    shown = show_links(manifest, folder, split, config) if config.objective.reads_links else None
    return HeldSplit(index=index, documents=documents, local=local, shown_links=shown)
