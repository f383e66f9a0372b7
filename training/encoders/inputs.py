"""What towers prepare their rows from: all that is known of some sentences, or of some images.

A tower takes what it reads and refuses what is missing. The loop makes them of a `DocumentSet`, inference of
`DocumentInput`s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from training.data.documents import DocumentSet, RegionBank

Float = npt.NDArray[np.floating[Any]]
Gather = Callable[[Tensor], list[Tensor]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextInput:
    """N sentences.

    Attributes:
        texts: the sentences.
        vectors: N x t vectors of a sentence encoder, where there are any.
        languages: N language codes, where they are known.
        sources: N tuples of texts, one a source, where the rows are fused.
        keys: N keys of random draws (document ids); empty: no draw is made.
    """

    texts: Sequence[str]
    vectors: Float | None = None
    languages: Sequence[str] | None = None
    sources: Sequence[tuple[str, ...]] | None = None
    keys: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageInput:
    """U images.

    Attributes:
        vectors: U x v vectors of an image extractor; v is 0 where there are none.
        regions: of the U images, where there are any.
        jpegs: U pictures, where there are any.
        keys: U keys of random draws (content hashes); empty: no draw is made.
    """

    vectors: Float
    regions: RegionBank | None = None
    jpegs: Sequence[bytes] | None = None
    keys: Sequence[str] = ()


def _alone(rows: Tensor) -> list[Tensor]:
    return [rows.detach()]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPass:
    """What a tower is told of the step it encodes rows for; without one (None) nothing is drawn or gathered.

    Attributes:
        seed: of the run.
        epoch: from 1.
        step: of the epoch, from 0.
        gather: every worker's rows, in rank order (`training.loop.context`).
    """

    seed: int
    epoch: int
    step: int
    gather: Gather = _alone


def text_input(documents: DocumentSet) -> TextInput:
    """Return all sentences of some documents."""
    owners = documents.sentences.owners.tolist()
    languages = None
    if documents.languages is not None:
        languages = tuple(documents.languages[document] for document in owners)
    return TextInput(
        texts=documents.texts,
        vectors=documents.sentence_vectors,
        languages=languages,
        sources=documents.sources,
        keys=tuple(documents.ids[document] for document in owners),
    )


def image_input(documents: DocumentSet) -> ImageInput:
    """Return all different images of some documents, in the order of their bank."""
    return ImageInput(
        vectors=documents.image_bank,
        regions=documents.regions,
        jpegs=documents.image_jpegs,
        keys=documents.image_hashes,
    )
