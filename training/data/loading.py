"""A worker's share of a data set version, ready for the trainer: its own documents, and an index of all the others.

Of a split's D documents in part and row order, worker `r` of `w` holds those from `rD/w` on, up to the next worker's
first, and reads the shards that they lie in. So shares are even however many shards there are.

Training reads no link of the training split, and its relations for the coherence objective alone; links of the
validation split are read for the reported AUC and precision alone. The one exception is the supervised objective, an
upper bound: it is shown links (`show_links`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from schemas.documents import Split
from schemas.errors import ConfigError, UsageError
from schemas.features import FeatureKind
from schemas.lake import MANIFEST, Folder, Lake
from schemas.manifest import Manifest, read_manifest
from training.config import TrainConfig
from training.data.documents import DocumentSet, HeldSplit
from training.data.lake import Columns, Unreadable, read_index, read_links, read_split
from training.data.ragged import Int64
from training.data.requirements import check_fits
from training.data.streams import stream
from training.data.views import TextView


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
    hold = partial(hold_split, manifest, folder, identity, config, rank=rank, world_size=world_size)
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
        UsageError: the objective does not fit the data (`training.data.requirements`).
    """
    check_fits(config, manifest)
    reads, data = config.needs, config.data
    found = Columns(
        images=data.image_features if reads.image_vectors else None,
        sentences=data.sentence_features if reads.sentence_vectors else None,
        regions=data.region_features if reads.regions else None,
    ).resolved(manifest)
    images, regions = manifest.extractors("images"), manifest.extractors("images", FeatureKind.REGIONS)
    return DatasetIdentity(
        dataset=manifest.dataset,
        version=manifest.version,
        manifest_digest=hashlib.sha256(folder.read(MANIFEST)).hexdigest(),
        image_features=found.images,
        image_dimensions=images[found.images] if found.images else None,
        sentence_features=found.sentences,
        sentence_dimensions=manifest.extractors("documents")[found.sentences] if found.sentences else None,
        region_features=found.regions,
        region_dimensions=regions[found.regions] if found.regions else None,
    )


def columns_of(config: TrainConfig, identity: DatasetIdentity) -> Columns:
    """Return the columns that a model reads of any data set version: those it was, or is to be, trained on."""
    return Columns(
        images=identity.image_features,
        sentences=identity.sentence_features,
        regions=identity.region_features,
        jpegs=config.needs.jpegs,
    )


def read_for_model(
    config: TrainConfig,
    identity: DatasetIdentity,
    manifest: Manifest,
    folder: Folder,
    split: Split | str,
    *,
    with_truth: bool = False,
    shards: Sequence[int] | None = None,
    unreadable: list[Unreadable] | None = None,
) -> DocumentSet:
    """Return documents of a split, or of some of its shards, as a trained model reads them; see `read_split`.

    With the truth come their links and where their images stand: for evaluation.

    Raises:
        NotFoundError: the split is not there.
        UsageError: the data set version has no such vectors.
        IntegrityError: as for `read_split`.
    """
    columns = replace(columns_of(config, identity), links=with_truth, places=with_truth)
    view = TextView.of(config)
    try:
        return read_split(manifest, folder, split, columns, view=view, shards=shards, unreadable=unreadable)
    except ConfigError as problem:
        wanted = " and ".join(name for name in (columns.images, columns.sentences, columns.regions) if name)
        raise UsageError(
            f"{manifest.dataset}@{manifest.version} has not the features the model reads ({wanted}): {problem}; "
            "build the data set with these extractors, or evaluate a model trained on the ones it has"
        ) from problem


def hold_split(
    manifest: Manifest,
    folder: Folder,
    identity: DatasetIdentity,
    config: TrainConfig,
    split: Split,
    *,
    rank: int = 0,
    world_size: int = 1,
) -> HeldSplit:
    """Return worker `rank`'s share of a split, as a configuration that was identified with a data set reads it."""
    view = TextView.of(config)
    index = read_index(manifest, folder, split, view=view)
    columns = replace(
        columns_of(config, identity),
        links=split is Split.VAL,
        relations=bool(config.needs.relations) and split is Split.TRAIN,
    )
    first, end = (math.ceil(worker * len(index) / world_size) for worker in (rank, rank + 1))
    shards = np.unique(index.shards[first:end]).tolist()
    skipped = first - int(np.searchsorted(index.shards, shards[0])) if shards else 0
    rows = range(skipped, skipped + end - first)
    documents = read_split(manifest, folder, split, columns, view=view, shards=shards, rows=rows)
    local = np.full(len(index), -1, dtype=np.int64)
    local[first:end] = np.arange(end - first)
    shown = show_links(manifest, folder, split, config) if config.needs.links else None
    return HeldSplit(index=index, documents=documents, local=local, shown_links=shown)


def show_links(manifest: Manifest, folder: Folder, split: Split, config: TrainConfig) -> tuple[Int64 | None, ...]:
    """Return per document its links, None where they are not shown: of all but the labelled share.

    Every worker knows them all, as it knows the index: they are a few numbers a document. The share holds for
    validation too: an epoch that were chosen by all its links would have seen more.
    """
    links = read_links(manifest, folder, split)
    ids = read_index(manifest, folder, split).ids
    share, seed = config.needs.links, config.training.seed
    return tuple(row if is_labelled(id_, share=share, seed=seed) else None for id_, row in zip(ids, links, strict=True))


def is_labelled(document: str, *, share: float, seed: int) -> bool:
    """Return whether a document is of the labelled share; one that is, is of every larger share, too."""
    return float(stream("labelled", seed, document).random()) < share
