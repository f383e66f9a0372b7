"""Whether a model confuses images that look alike: its choice for each linked sentence, by how close the nearest is.

Two images of one document are the nearer, the greater the cosine of the data set's own vectors. For a sentence with a
true image, the image chosen is the one of the largest similarity; of equals, each is chosen with equal probability.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.floating[Any]]
Float64 = npt.NDArray[np.float64]
Links = npt.NDArray[np.int64]
GROUPS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a model chose for one sentence with true images.

    Attributes:
        document: place of the document among those given.
        sentence: index of the sentence.
        image: the true image that looks most like a false one.
        nearest: that false image.
        nearness: cosine of the two.
        right: probability that a true image is chosen (0 or 1 but for ties).
        confused: probability that `nearest` is chosen.
    """

    document: int
    sentence: int
    image: int
    nearest: int
    nearness: float
    right: float
    confused: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfusionGroup:
    """Sentences whose true image is about equally near to another one; shares in percent.

    Attributes:
        low: smallest nearness in the group.
        high: largest.
        sentences: how many.
        right: share for which a true image is chosen.
        confused: share for which the nearest other image is chosen.
        elsewhere: share for which a third one is.
        chance: share a blind choice would confuse.
    """

    low: float
    high: float
    sentences: int
    right: float
    confused: float
    elsewhere: float
    chance: float


def choices(
    matrices: Sequence[Vectors], links: Sequence[Links | None], images: Sequence[Vectors]
) -> tuple[tuple[Choice, ...], Float64]:
    """Return the choice for every sentence with a true and a false image, and for each 100 / number of images.

    Args:
        matrices: n x m similarities of each document.
        links: L x 2 (sentence, image) links of each, or None where unknown.
        images: m x v vectors of each document's images.
    """
    found: list[Choice] = []
    chances: list[float] = []
    for document, (matrix, known, vectors) in enumerate(zip(matrices, links, images, strict=True)):
        if known is None or not len(known):
            continue
        near = nearness(vectors)
        for sentence in np.unique(known[:, 0]).tolist():
            true = np.unique(known[known[:, 0] == sentence, 1])
            if len(true) < matrix.shape[1]:
                found.append(_choice(document, sentence, matrix[sentence], true, near))
                chances.append(100 / matrix.shape[1])
    return tuple(found), np.array(chances)


def nearness(vectors: Vectors) -> Float64:
    """Return m x m cosines of images; a zero vector is near to none."""
    rows = np.asarray(vectors, dtype=np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    units = rows / np.where(lengths > 0, lengths, 1.0)
    return np.asarray(units @ units.T, dtype=np.float64)


def confusion_groups(found: Sequence[Choice], chances: Float64, *, groups: int = GROUPS) -> tuple[ConfusionGroup, ...]:
    """Return the choices in groups of about equal size, from the least alike images to the most alike."""
    if not found:
        return ()
    order = np.argsort([choice.nearness for choice in found], kind="stable")
    parts = [part for part in np.array_split(order, min(groups, len(order))) if len(part)]
    return tuple(_group([found[place] for place in part], chances[part]) for part in parts)


def most_confused(found: Iterable[Choice], *, most: int) -> tuple[Choice, ...]:
    """Return the sentences for which the nearest image was chosen, the most alike images first, one a document."""
    kept: dict[int, Choice] = {}
    wrong = [choice for choice in found if choice.confused == 1.0]
    for choice in sorted(wrong, key=_by_nearness):
        kept.setdefault(choice.document, choice)
    return tuple(kept.values())[:most]


def _choice(document: int, sentence: int, row: Vectors, true: npt.NDArray[np.int64], near: Float64) -> Choice:
    false = np.setdiff1d(np.arange(len(row)), true)
    cosines = near[np.ix_(true, false)]
    image, nearest = np.unravel_index(int(cosines.argmax()), cosines.shape)
    is_largest = row == row.max()
    return Choice(
        document=document,
        sentence=sentence,
        image=int(true[image]),
        nearest=int(false[nearest]),
        nearness=float(cosines[image, nearest]),
        right=float(is_largest[true].sum() / is_largest.sum()),
        confused=float(is_largest[false[nearest]] / is_largest.sum()),
    )


def _group(part: Sequence[Choice], chances: Float64) -> ConfusionGroup:
    right = 100 * float(np.mean([choice.right for choice in part]))
    confused = 100 * float(np.mean([choice.confused for choice in part]))
    return ConfusionGroup(
        low=part[0].nearness,
        high=part[-1].nearness,
        sentences=len(part),
        right=right,
        confused=confused,
        elsewhere=max(0.0, 100 - right - confused),
        chance=float(chances.mean()),
    )


def _by_nearness(choice: Choice) -> tuple[float, int, int]:
    return -choice.nearness, choice.document, choice.sentence
