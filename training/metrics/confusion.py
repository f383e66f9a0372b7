"""How often a model confuses images that look alike: its choice for each linked sentence, by how close the nearest is.

Two images of one document are the nearer, the greater the cosine of the data set's own vectors. For a sentence with a
true image, the image chosen is the one of the largest similarity; of equals, each is chosen with equal probability.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from training.data.ragged import Float64, Floats, Int64
from training.metrics.scores import Score
from training.metrics.spread import unit_rows

GROUPS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenImage:
    """What a model chose for one sentence with true images.

    Attributes:
        document: position of the document among those given.
        sentence: index of the sentence.
        image: the true image that looks most like a false one.
        nearest: that false image.
        nearness: cosine of the two.
        right: probability that a true image is chosen (0 or 1 but for ties).
        confused: probability that `nearest` is chosen.
        chance: of a blind choice among the document's images to be `nearest`.
    """

    document: int
    sentence: int
    image: int
    nearest: int
    nearness: float
    right: float
    confused: float
    chance: float


def chosen_images(
    matrices: Sequence[Floats], links: Sequence[Int64 | None], images: Sequence[Floats]
) -> tuple[ChosenImage, ...]:
    """Return the choice for every sentence with a true and a false image.

    Args:
        matrices: n x m similarities of each document.
        links: L x 2 (sentence, image) links of each, or None where unknown.
        images: m x v vectors of each document's images.
    """
    found: list[ChosenImage] = []
    for document, (matrix, known, vectors) in enumerate(zip(matrices, links, images, strict=True)):
        if known is None or not len(known):
            continue
        near = nearness(vectors)
        for sentence in np.unique(known[:, 0]).tolist():
            true = np.unique(known[known[:, 0] == sentence, 1])
            if len(true) < matrix.shape[1]:
                found.append(_chosen_image(document, sentence, matrix[sentence], true, near))
    return tuple(found)


def nearness(vectors: Floats) -> Float64:
    """Return m x m cosines of images; a zero vector is near to none."""
    units = unit_rows(vectors)
    return np.asarray(units @ units.T, dtype=np.float64)


def confusion_scores(found: Sequence[ChosenImage], *, groups: int = GROUPS) -> Iterator[Score]:
    """Yield what is chosen, in percent, in groups of about equal size from the least alike images to the most alike.

    `right` and `confused` are the shares of sentences for which a true image and the nearest other one are chosen,
    `elsewhere` the rest, `chance` the share that a blind choice would confuse.
    """
    for part in np.array_split(np.array(sorted(found, key=attrgetter("nearness")), dtype=object), groups):
        if not len(part):
            continue
        right, confused, chance = (
            100 * float(np.mean([getattr(choice, name) for choice in part])) for name in ("right", "confused", "chance")
        )
        group = f"nearness {part[0].nearness:.3f} to {part[-1].nearness:.3f}"
        shares = {"right": right, "confused": confused, "elsewhere": max(0.0, 100 - right - confused), "chance": chance}
        for metric, value in shares.items():
            yield Score(metric, value, n=len(part), group=group)


def most_confused(found: Iterable[ChosenImage], *, max_count: int) -> tuple[ChosenImage, ...]:
    """Return the sentences for which the nearest image was chosen, the most alike images first, one a document."""
    kept: dict[int, ChosenImage] = {}
    wrong = [choice for choice in found if choice.confused == 1.0]
    for choice in sorted(wrong, key=lambda each: (-each.nearness, each.document, each.sentence)):
        kept.setdefault(choice.document, choice)
    return tuple(kept.values())[:max_count]


def _chosen_image(document: int, sentence: int, row: Floats, true: Int64, near: Float64) -> ChosenImage:
    false = np.setdiff1d(np.arange(len(row)), true)
    cosines = near[np.ix_(true, false)]
    image, nearest = np.unravel_index(int(cosines.argmax()), cosines.shape)
    is_largest = row == row.max()
    return ChosenImage(
        document=document,
        sentence=sentence,
        image=int(true[image]),
        nearest=int(false[nearest]),
        nearness=float(cosines[image, nearest]),
        right=float(is_largest[true].sum() / is_largest.sum()),
        confused=float(is_largest[false[nearest]] / is_largest.sum()),
        chance=1 / len(row),
    )
