"""The 1,000 class names of ImageNet's classification task, and the most probable of them.

Names come with torchvision, in the order in which its networks and those of the lite family were trained; it is
imported when they are first asked for.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from pipelines.features.values import Classes

CLASSES = 1000
TOP = 20  # Hessel 2019, 3.3: K in 1..20


@cache
def class_names() -> tuple[str, ...]:
    from torchvision.models import ResNet50_Weights

    return tuple(ResNet50_Weights.IMAGENET1K_V1.meta["categories"])


def softmax(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return probabilities along the last axis."""
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    probabilities: npt.NDArray[np.float32] = shifted / shifted.sum(axis=-1, keepdims=True)
    return probabilities


def top_classes(probabilities: npt.NDArray[np.float32], *, count: int = TOP) -> Classes:
    """Return the `count` most probable of 1,000 classes, equal ones in the order of their numbers."""
    order = np.argsort(-probabilities, kind="stable")[:count]
    names = class_names()
    return Classes(tuple(names[place] for place in order), probabilities[order])
