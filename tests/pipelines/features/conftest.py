"""Extractors of mean colours and word lengths: real and cheap, so that tests can count what they are asked for."""

import io
import sys
from collections import Counter
from collections.abc import Sequence
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from pipelines.features import catalogue
from pipelines.features.catalogue import Entry
from pipelines.features.values import DOCUMENTS, IMAGES, Classes, Regions, Rejected, Row, feature_column
from pipelines.settings import FeaturesConfig
from schemas import plugins
from schemas.features import FeatureKind

CELLS = 2  # a side
COUNTS: Counter[str] = Counter()


def cell_colours(jpeg: bytes) -> np.ndarray:
    """Return the mean colours of 2 x 2 cells, row by row, as 4 x 3 shares."""
    with Image.open(io.BytesIO(jpeg)) as picture:
        small = picture.convert("RGB").resize((CELLS, CELLS), Image.Resampling.BOX)
    return np.asarray(small, np.float32).reshape(-1, 3) / 255


class _Counted:
    kind = FeatureKind.VECTOR
    dimensions = 0

    def __init__(self, network: str, names: Sequence[str], config: FeaturesConfig, weights: object) -> None:
        self.columns = (feature_column(network, config, self.dimensions, {"of": network}, self.kind),)

    def extract(self, items: Sequence[object]) -> list[Row]:
        COUNTS[self.columns[0].name] += len(items)
        return [(self.value(item),) for item in items]


class Colours(_Counted):
    dimensions = 12

    def value(self, jpeg: bytes) -> np.ndarray | Rejected:
        cells = cell_colours(jpeg)
        return Rejected("all white") if cells.min() > 0.999 else cells.reshape(-1)


class Cells(_Counted):
    kind = FeatureKind.REGIONS
    dimensions = 3

    def value(self, jpeg: bytes) -> Regions:
        colours = cell_colours(jpeg)
        corners = np.array([(x, y) for y in (0, 0.5) for x in (0, 0.5)], np.float32)
        order = np.argsort(-colours.max(axis=1), kind="stable")
        labels = tuple(("red", "green", "blue")[number] for number in colours[order].argmax(axis=1))
        boxes = np.concatenate([corners, corners + 0.5], axis=1)[order]
        return Regions(boxes, labels, colours[order].max(axis=1), colours[order])


class Hues(_Counted):
    kind = FeatureKind.CLASSES

    def value(self, jpeg: bytes) -> Classes:
        shares = cell_colours(jpeg).mean(axis=0)
        shares /= shares.sum()
        order = np.argsort(-shares, kind="stable")
        return Classes(tuple(("red", "green", "blue")[number] for number in order), shares[order])


class Lengths(_Counted):
    dimensions = 2

    def value(self, texts: Sequence[str]) -> np.ndarray:
        COUNTS["sentences"] += len(texts)
        return np.array([(len(text), len(text.split())) for text in texts], np.float32).reshape(-1, 2)


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Register the extractors `colours`, `cells`, `hues` and `lengths`, and return how much each was asked for."""
    for kind in (Colours, Cells, Hues, Lengths):
        name, table = kind.__name__.lower(), DOCUMENTS if kind is Lengths else IMAGES
        register(monkeypatch, Entry(factory=kind, network=name, table=table))
    COUNTS.clear()
    return COUNTS


def register(monkeypatch: pytest.MonkeyPatch, entry: Entry) -> None:
    """Register an extractor as a module of the project does."""
    known, module = catalogue.own_parts, ModuleType(f"of_tests_{entry.network}")
    module.ENTRIES = {entry.network: entry}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def with_entry(group: plugins.Group) -> dict[str, str]:
        return {**known(group), entry.network: module.__name__} if group is plugins.EXTRACTORS else known(group)

    monkeypatch.setattr(catalogue, "own_parts", with_entry)
    monkeypatch.setattr(catalogue, "part_names", lambda group: [*with_entry(group), *plugins.plugins(group)])
