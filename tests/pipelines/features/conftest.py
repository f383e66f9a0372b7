"""Extractors of mean colours and word lengths: real and cheap, so that tests can count what they are asked for."""

from __future__ import annotations

import io
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from pipelines.features.extractors import IMAGE_EXTRACTORS, SENTENCE_EXTRACTORS, Entry
from pipelines.features.values import Classes, Compute, FeatureKind, Regions, Rejected
from schemas.versions import fingerprint

CELLS = 2  # a side
COUNTS: Counter[str] = Counter()


def cell_colours(jpeg: bytes) -> np.ndarray:
    """Return the mean colours of 2 x 2 cells, row by row, as 4 x 3 shares."""
    with Image.open(io.BytesIO(jpeg)) as picture:
        small = picture.convert("RGB").resize((CELLS, CELLS), Image.Resampling.BOX)
    return np.asarray(small, np.float32).reshape(-1, 3) / 255


class _Counted:
    def __init__(self, name: str, *, compute: Compute, weights: Mapping[str, object], regions: object = None) -> None:
        self.name = name

    def fingerprint(self) -> str:
        return fingerprint({"of": type(self).__name__})


class Colours(_Counted):
    kind = FeatureKind.VECTOR
    dimensions = 12

    def extract(self, images: Sequence[bytes]) -> list[np.ndarray | Rejected]:
        COUNTS[self.name] += len(images)
        found = [cell_colours(jpeg) for jpeg in images]
        return [Rejected("all white") if cells.min() > 0.999 else cells.reshape(-1) for cells in found]


class Cells(_Counted):
    kind = FeatureKind.REGIONS
    dimensions = 3

    def extract(self, images: Sequence[bytes]) -> list[Regions]:
        COUNTS[self.name] += len(images)
        corners = np.array([(x, y) for y in (0, 0.5) for x in (0, 0.5)], np.float32)
        found = []
        for colours in map(cell_colours, images):
            order = np.argsort(-colours.max(axis=1), kind="stable")
            labels = tuple(("red", "green", "blue")[place] for place in colours[order].argmax(axis=1))
            boxes = np.concatenate([corners, corners + 0.5], axis=1)[order]
            found.append(Regions(boxes, labels, colours[order].max(axis=1), colours[order]))
        return found


class Hues(_Counted):
    kind = FeatureKind.CLASSES
    dimensions = 0

    def extract(self, images: Sequence[bytes]) -> list[Classes]:
        COUNTS[self.name] += len(images)
        found = []
        for colours in map(cell_colours, images):
            shares = colours.mean(axis=0) / colours.mean(axis=0).sum()
            order = np.argsort(-shares, kind="stable")
            found.append(Classes(tuple(("red", "green", "blue")[place] for place in order), shares[order]))
        return found


class Lengths(_Counted):
    dimensions = 2

    def extract(self, texts: Sequence[str]) -> np.ndarray:
        COUNTS[self.name] += len(texts)
        return np.array([(len(text), len(text.split())) for text in texts], np.float32).reshape(-1, 2)


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Register the extractors `colours`, `cells`, `hues` and `lengths`, and return how much each was asked for."""
    module = ModuleType("pipelines.features.of_tests")
    for kind in (Colours, Cells, Hues, Lengths):
        setattr(module, kind.__name__, kind)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for kind in (Colours, Cells, Hues):
        entry = Entry(place=f"of_tests:{kind.__name__}", kind=kind.kind, dimensions=kind.dimensions)
        monkeypatch.setitem(IMAGE_EXTRACTORS, kind.__name__.lower(), entry)
    monkeypatch.setitem(SENTENCE_EXTRACTORS, "lengths", Entry(place="of_tests:Lengths", dimensions=2))
    COUNTS.clear()
    return COUNTS
