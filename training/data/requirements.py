"""What a configuration needs of a data set version, checked before anything is read or built.

First what its towers read; then what its objective needs. What does not fit is said in one line, with what to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from schemas.documents import Split
from schemas.errors import ConfigError, UsageError
from schemas.manifest import Manifest
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
    """Raise a `UsageError` with the first requirement of the objective that a data set version does not meet."""
    problem = next(_problems(config, manifest), None)
    if problem is not None:
        raise UsageError(f"{manifest.dataset}@{manifest.version}: objective.name = '{config.objective.name}' {problem}")


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


def _problems(config: TrainConfig, manifest: Manifest) -> Iterator[str]:
    """Yield what does not fit and what to do.

    Objectives of pairs need documents of one image (and of one text, see `check_pairs`). Relations belong to links:
    without one, there is none to learn. The supervised objective needs known links, and its sentences and images
    numbered as the links number them.
    """
    objective = config.objective
    learnt_from = {name: manifest.splits[name] for name in (Split.TRAIN, Split.VAL) if name in manifest.splits}
    has_no_link = Split.TRAIN in learnt_from and not learnt_from[Split.TRAIN].links
    for name, split in learnt_from.items():
        if objective.is_for_pairs and split.max_images > 1:
            yield (
                f"is for documents of one text and one image, split '{name}' has up to {split.max_images} images; "
                "use --set objective.name=cross-document"
            )
    if objective.reads_relations and has_no_link:
        yield (
            "learns relations of links, the training split has no link; train on a data set with relations "
            "(cite, clue), or use --set objective.name=triplet-hardest"
        )
    if objective.reads_links and has_no_link:
        yield "learns links, the training split has none; use another objective"
    if objective.reads_links and (config.data.roles or isinstance(config.text, MultiSourceConfig)):
        yield "reads all sentences, each by itself; leave data.roles empty and use a tower of one source"
    if objective.reads_links and config.training.max_rows:
        yield "reads whole documents; use --set training.max_rows=0"
