"""A data set version as a training run reads it: which columns, whether it has what is needed, and its splits.

Training reads no link of the training split, and its relations for the coherence objective alone; links of the
validation split are read for the reported AUC and precision alone. The one exception is the supervised objective, an
upper bound: it is shown links (`TrainingSplit.links_shown`).
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from schemas.documents import Split
from schemas.features import NAMES, NAMES_ENCODER, FeatureKind, several
from schemas.lake import MANIFEST, Folder, Lake
from schemas.manifest import Manifest, read_manifest
from schemas.messages import ConfigError, UsageError
from schemas.parts import Shard
from training.data.documents import DocumentSet, TextView
from training.data.lake import Columns, Unreadable, read_split
from training.data.split import TrainingSplit
from training.parts import Reading

DOCUMENTS_AT_ONCE = 1 << 20


def check_fits(reading: Reading, manifest: Manifest) -> None:
    """Raise a `UsageError` with the first requirement of the objective that a data set version does not meet."""
    problem = next(_problems(reading, manifest), None)
    if problem is not None:
        raise UsageError(f"{manifest.dataset}@{manifest.version}: objective.name = '{reading.objective}' {problem}")


def check_pairs(reading: Reading, reference: str, split: TrainingSplit) -> None:
    """Raise a `UsageError` where the objective is for pairs and a document, as the towers read it, is none.

    The manifest knows images; how many texts a document has also depends on which of them are read.
    """
    if not reading.needs.pairs:
        return
    index, count, shown = split.index, 0, ""
    for first in range(0, len(index), DOCUMENTS_AT_ONCE):
        positions = np.arange(first, min(first + DOCUMENTS_AT_ONCE, len(index)))
        texts, images = index.sentences.sizes(positions), index.images.sizes(positions)
        more = np.flatnonzero((texts > 1) | (images > 1))
        if len(more) and not count:
            shown = f"{split.documents(positions[more[:1]]).ids[0]}: {texts[more[0]]} and {images[more[0]]}"
        count += len(more)
    if count:
        raise UsageError(
            f"{reference}: objective.name = '{reading.objective}' is for documents of one text and one image, "
            f"{count} have more (document {shown}); read one role (--set data.roles=caption), fuse several "
            "(--set text.name=multi-source), or use --set objective.name=cross-document"
        )


def _problems(reading: Reading, manifest: Manifest) -> Iterator[str]:
    """Yield what does not fit and what to do.

    Objectives of pairs need documents of one image (and of one text, see `check_pairs`). Relations belong to links:
    without one, there is none to learn. The supervised objective needs known links, and its sentences and images
    numbered as the links number them.
    """
    needs = reading.needs
    learnt_from = {name: manifest.splits[name] for name in (Split.TRAIN, Split.VAL) if name in manifest.splits}
    has_no_link = Split.TRAIN in learnt_from and not learnt_from[Split.TRAIN].links
    for name, split in learnt_from.items():
        if needs.pairs and split.max_images > 1:
            yield (
                f"is for documents of one text and one image, split '{name}' has up to {split.max_images} images; "
                "use --set objective.name=cross-document"
            )
    if needs.relations and has_no_link:
        yield (
            "learns relations of links, the training split has no link; train on a data set with relations "
            "(cite, clue), or use --set objective.name=triplet-hardest"
        )
    if needs.links and has_no_link:
        yield "learns from links, but the training split has none; use another objective"
    if needs.links and (reading.data.roles or needs.sources):
        yield "reads all sentences, each by itself; leave data.roles empty and use a tower of one source"
    if needs.links and reading.max_rows:
        yield "reads whole documents; use --set training.max_rows=0"


NamedColumns = tuple[slice, tuple[slice, ...]]  # of sentences' vectors, and each of images' class names


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetIdentity:
    """Which data a model comes from: name, version, SHA-256 (hex) of the manifest, feature columns and their sizes.

    A column that the towers do not read is None, as is its size. Several columns of one tower are named `A+B`; their
    size is that of all, and `image_sizes` and `sentence_sizes` are those of each, empty of a single one.
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
    image_sizes: tuple[int, ...] = ()
    sentence_sizes: tuple[int, ...] = ()

    @property
    def reference(self) -> str:
        return f"{self.dataset}@{self.version}"

    @property
    def image_columns(self) -> dict[str, slice]:
        """Return where each column of images stands in their vectors."""
        return _slices(self.image_features, self.image_sizes or (self.image_dimensions or 0,))

    @property
    def sentence_columns(self) -> dict[str, slice]:
        """Return where each column of sentences stands in their vectors."""
        return _slices(self.sentence_features, self.sentence_sizes or (self.sentence_dimensions or 0,))

    @property
    def named_columns(self) -> NamedColumns | None:
        """Return where sentences and names of images' classes stand in the vectors; None unless both are read.

        A column of another size than the sentences' encoder's is of another encoder: it is an input like others.
        """
        sentences = self.sentence_columns.get(NAMES_ENCODER, slice(0, 0))
        images = [part for name, part in self.image_columns.items() if name.endswith(NAMES)]
        names = tuple(part for part in images if part.stop - part.start == sentences.stop - sentences.start)
        return (sentences, names) if names else None


def joint_size(sentences: int | None, images: int | None) -> int:
    """Return the size of the sentence and image vectors of one joint model.

    Raises:
        UsageError: they are of two sizes.
    """
    if not sentences or sentences != images:
        raise UsageError(
            f"sentence vectors have {sentences or 'no'} numbers, image vectors {images or 'no'}: they are not of one "
            "joint model; name its two columns"
        )
    return sentences


def _slices(names: str | None, sizes: Sequence[int]) -> dict[str, slice]:
    ends = list(accumulate(sizes))
    return {name: slice(end - size, end) for name, size, end in zip(several(names), sizes, ends, strict=False)}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingData:
    """What `training.loop.trainer.train` consumes; `validation` is None where the split is absent or empty.

    `knows_links` says whether links of the data set are known, in whatever split.
    """

    identity: DatasetIdentity
    training: TrainingSplit
    validation: TrainingSplit | None
    knows_links: bool = False


def load_training_data(lake: Lake, reference: str, reading: Reading) -> TrainingData:
    """Return `NAME[@VERSION]` as a run trains on it, the same for every worker.

    Raises:
        NotFoundError: the data set, version or training split is not there.
        ConfigError: a feature column that is named is not there, or `auto` is ambiguous.
        UsageError: no training document has both a sentence and an image, or its images have no pictures that are read.
        IntegrityError: as `TrainingSplit.documents` says, of the first training document.
    """
    manifest, folder = read_manifest(lake, reference)
    identity = identify(manifest, folder, reading)
    training = open_split(manifest, folder, identity, reading, Split.TRAIN)
    if not len(training.index.usable):
        wanted = " or ".join(TextView.of(reading).roles) or "sentence"
        raise UsageError(f"{identity.reference}: expected training documents with a {wanted} and an image, found none")
    training.documents(training.index.usable[:1])  # what cannot be read is found before a run begins
    has_validation = bool(manifest.parts("documents", Split.VAL))
    validation = open_split(manifest, folder, identity, reading, Split.VAL) if has_validation else None
    if validation is not None and not len(validation.index.usable):
        validation = None
    knows_links = any(split.documents_with_known_links for split in manifest.splits.values())
    return TrainingData(identity=identity, training=training, validation=validation, knows_links=knows_links)


def identify(manifest: Manifest, folder: Folder, reading: Reading) -> DatasetIdentity:
    """Return which data set version and which of its feature columns are read.

    Raises:
        ConfigError: the data set lacks what the towers read.
        UsageError: the objective does not fit the data (`training.data.loading`).
    """
    check_fits(reading, manifest)
    needs, data = reading.needs, reading.data
    columns = Columns(
        images=data.image_features if needs.image_vectors else None,
        sentences=data.sentence_features if needs.sentence_vectors else None,
        regions=data.region_features if needs.regions else None,
    ).resolved(manifest)
    regions, tables = manifest.extractors("images", FeatureKind.REGIONS), ("images", "documents")
    images, sentences = (
        tuple(manifest.extractors(table)[name] for name in several(names))
        for table, names in zip(tables, (columns.images, columns.sentences), strict=True)
    )
    return DatasetIdentity(
        dataset=manifest.dataset,
        version=manifest.version,
        manifest_digest=hashlib.sha256(folder.read(MANIFEST)).hexdigest(),
        image_features=columns.images,
        image_dimensions=sum(images) if images else None,
        sentence_features=columns.sentences,
        sentence_dimensions=sum(sentences) if sentences else None,
        region_features=columns.regions,
        region_dimensions=regions[columns.regions] if columns.regions else None,
        image_sizes=images if len(images) > 1 else (),
        sentence_sizes=sentences if len(sentences) > 1 else (),
    )


def columns_of(reading: Reading, identity: DatasetIdentity) -> Columns:
    """Return the columns that a model reads of any data set version: those it was, or is to be, trained on."""
    return Columns(
        images=identity.image_features,
        sentences=identity.sentence_features,
        regions=identity.region_features,
        jpegs=reading.needs.jpegs,
        places=reading.places,
    )


def read_for_model(
    reading: Reading,
    identity: DatasetIdentity,
    manifest: Manifest,
    folder: Folder,
    split: Split | str,
    *,
    with_truth: bool = False,
    shards: Sequence[Shard] | None = None,
    unreadable: list[Unreadable] | None = None,
) -> DocumentSet:
    """Return documents of a split, or of some of its shards, as a trained model reads them; see `read_split`.

    With the truth come their links and where their images stand: for evaluation.

    Raises:
        NotFoundError: the split is not there.
        UsageError: the data set version has no such vectors.
        IntegrityError: as for `read_split`.
    """
    columns = replace(columns_of(reading, identity), links=with_truth, places=with_truth or reading.places)
    view = TextView.of(reading)
    try:
        return read_split(manifest, folder, split, columns, view=view, shards=shards, unreadable=unreadable)
    except ConfigError as problem:
        wanted = " and ".join(name for name in (columns.images, columns.sentences, columns.regions) if name)
        raise UsageError(
            f"{manifest.dataset}@{manifest.version} lacks features that the model reads ({wanted}): {problem}; "
            "build the data set with these extractors, or evaluate a model trained on the ones it has"
        ) from problem


def open_split(
    manifest: Manifest, folder: Folder, identity: DatasetIdentity, reading: Reading, split: Split
) -> TrainingSplit:
    """Return a split as a run that was identified with a data set trains on it, or is judged by it."""
    needs = reading.needs
    columns = replace(
        columns_of(reading, identity),
        links=split is Split.VAL or bool(needs.links),
        relations=bool(needs.relations) and split is Split.TRAIN,
    )
    return TrainingSplit(
        manifest=manifest,
        folder=folder,
        split=split,
        columns=columns,
        view=TextView.of(reading),
        labelled_share=needs.links,
        seed=reading.seed,
    )
