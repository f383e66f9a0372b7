"""What a configuration needs of a data set version, checked before anything is read or built.

First what its towers read; then requirements. Each looks at a configuration and a manifest and says in one line what
does not fit and what to do, or nothing. A part of the configuration that needs something of the data adds its own to
`REQUIREMENTS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from schemas.documents import Split
from schemas.errors import ConfigError, UsageError
from schemas.manifest import Manifest, SplitStatistics
from training.config import (
    FineTunedConfig,
    MultiSourceConfig,
    RegionConceptConfig,
    SentenceConfig,
    SubwordsConfig,
    TrainConfig,
    WordsConfig,
)
from training.data.documents import SplitIndex

RANDOM_WORDS = "random"
TAKEN_WORDS = "training.start_from"
Requirement = Callable[[TrainConfig, Manifest], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What is read of a data set beside the documents' texts.

    Attributes:
        image_vectors: one vector an image.
        regions: detected regions of the images.
        labels: the regions' labels, through the text tower's word vectors.
        jpegs: the pictures themselves.
        sentence_vectors: one vector a sentence.
        languages: those that words are looked up in; () where the documents' languages are not read.
    """

    image_vectors: bool
    regions: bool
    labels: bool
    jpegs: bool
    sentence_vectors: bool
    languages: tuple[str, ...]


def inputs_of(config: TrainConfig) -> Inputs:
    """Return what the towers of a configuration read.

    Raises:
        ConfigError: the two towers, or the tower and the roles, do not fit together.
    """
    text, image = config.text, config.image
    regions, jpegs = isinstance(image, RegionConceptConfig), isinstance(image, FineTunedConfig)
    found = Inputs(
        image_vectors=not regions and not jpegs,
        regions=regions,
        labels=isinstance(image, RegionConceptConfig) and image.concepts,
        jpegs=jpegs,
        sentence_vectors=isinstance(text, SentenceConfig),
        languages=tuple(item.partition("=")[0] for item in text.aligned_vectors)
        if isinstance(text, WordsConfig)
        else (),
    )
    if config.data.roles and isinstance(text, MultiSourceConfig):
        raise ConfigError(
            f"data.roles = {config.data.roles!r}: the multi-source tower reads the roles of text.sources; "
            "leave data.roles empty"
        )
    if found.labels and isinstance(text, SubwordsConfig | SentenceConfig):
        raise ConfigError(
            f"text.name = '{text.name}': region labels are read through the text tower's word vectors, and it has none "
            "to share; use one of bilstm-attention, gru, transformer, or --set image.concepts=false"
        )
    if found.labels and found.languages:
        raise ConfigError(
            "image.concepts = True: region labels have one language, the word vectors several; "
            "use --set image.concepts=false"
        )
    return found


def words_start(config: TrainConfig) -> str:
    """Return what the word vectors of a configuration start from; "" where its text tower reads no words."""
    if not isinstance(config.text, WordsConfig):
        return ""
    if config.training.start_from and config.training.start_words:
        return TAKEN_WORDS
    return ", ".join(config.text.aligned_vectors) or config.text.word_vectors or RANDOM_WORDS


def told(config: TrainConfig) -> dict[str, str]:
    """Return what runs are to be told apart by, in their tags, reports and cards: start of words, negatives."""
    negatives = "" if "negatives" in config.objective.unused else str(config.objective.negatives)
    found = {"word_vectors": words_start(config), "negatives": negatives}
    return {name: value for name, value in found.items() if value}


def check_fits(config: TrainConfig, manifest: Manifest) -> None:
    """Raise a `UsageError` with the first requirement that a data set version does not meet."""
    for requirement in REQUIREMENTS:
        problem = requirement(config, manifest)
        if problem is not None:
            raise UsageError(f"{manifest.dataset}@{manifest.version}: {problem}")


def check_pairs(config: TrainConfig, reference: str, index: SplitIndex) -> None:
    """Raise a `UsageError` where the objective is for pairs and a document, as the towers read it, is none.

    The manifest knows images; how many texts a document has also depends on which of them are read.
    """
    if not config.objective.is_for_pairs:
        return
    more = np.flatnonzero((index.sentences.counts > 1) | (index.images.counts > 1))
    if len(more):
        first = int(more[0])
        raise UsageError(
            f"{reference}: objective.name = '{config.objective.name}' is for documents of one text and one image, "
            f"{len(more)} have more (document {index.ids[first]}: {index.sentences.counts[first]} and "
            f"{index.images.counts[first]}); read one role (--set data.roles=caption), fuse several (--set "
            "text.name=multi-source), or use --set objective.name=cross-document"
        )


def one_image_where_pairs_are_needed(config: TrainConfig, manifest: Manifest) -> str | None:
    """Objectives of image-text pairs need documents of one image (and of one text, see `check_pairs`)."""
    if not config.objective.is_for_pairs:
        return None
    for name, split in _learnt_from(manifest):
        if split.max_images > 1:
            return (
                f"objective.name = '{config.objective.name}' is for documents of one text and one image, "
                f"split '{name}' has up to {split.max_images} images; use --set objective.name=cross-document"
            )
    return None


def links_where_relations_are_read(config: TrainConfig, manifest: Manifest) -> str | None:
    """Relations belong to links: without one, there is none to learn."""
    train = manifest.splits.get(str(Split.TRAIN))
    if not config.objective.reads_relations or train is None or train.links:
        return None
    return (
        f"objective.name = '{config.objective.name}' learns relations of links, the training split has no link; "
        "train on a data set with relations (cite, clue), or use --set objective.name=triplet-hardest"
    )


def links_where_they_are_shown(config: TrainConfig, manifest: Manifest) -> str | None:
    """The supervised objective needs known links, and its sentences and images numbered as the links number them."""
    if not config.objective.reads_links:
        return None
    name = f"objective.name = '{config.objective.name}'"
    train = manifest.splits.get(str(Split.TRAIN))
    if train is not None and not train.links:
        return f"{name} learns links, the training split has none; use another objective"
    if config.data.roles or isinstance(config.text, MultiSourceConfig):
        return f"{name} reads all sentences, each by itself; leave data.roles empty and use a tower of one source"
    if config.training.max_rows:
        return f"{name} reads whole documents; use --set training.max_rows=0"
    return None


def _learnt_from(manifest: Manifest) -> Iterator[tuple[str, SplitStatistics]]:
    """Yield the splits whose documents an objective sees."""
    for split in (Split.TRAIN, Split.VAL):
        if str(split) in manifest.splits:
            yield str(split), manifest.splits[str(split)]


REQUIREMENTS: tuple[Requirement, ...] = (
    one_image_where_pairs_are_needed,
    links_where_relations_are_read,
    links_where_they_are_shown,
)
