"""The one interface of everything that turns pictures or sentences into features, and the extractors known by name.

An extractor's value of an item depends on that item alone. On a CPU that holds to the last bit, whatever shares its
batch, its position, the number of threads and processes, and the order of work, on one kind of machine; on a GPU up to
the rounding of its arithmetic. `fingerprint` names everything the value does depend on. A model is loaded when an
extractor is first used, and kept: a worker makes one extractor, in its set-up. Its module is imported only when it is
asked for. Vectors a user already has are looked up: `given.py`.

To add an extractor: a module beside this one with a class that satisfies the protocol, and an entry in a registry.
A class is made by `Class(name, compute=..., weights=...)`, one of regions by `Class(name, compute=..., weights=...,
regions=...)`. A name that is in no registry but has a weight file ending in `.onnx` is a network of the user's own.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

from pipelines.features.values import Compute, FeatureKind, ImageValue, Matrix, RegionLimits, Rejected
from pipelines.features.weights import WeightFile
from schemas.errors import ConfigError

PACKAGED = "packaged"
_EMBEDDED, _LICENCE = "efficientnet-lite0", "Apache-2.0"
_NETWORK = ".onnx"


class Extractor(Protocol):
    """What image and sentence extractors share."""

    @property
    def name(self) -> str:
        """The name of the column: `features.<name>`, `regions.<name>` or `classes.<name>`."""
        ...

    @property
    def dimensions(self) -> int:
        """The length d of a vector, or of a region's vector; 0 for classes."""
        ...

    def fingerprint(self) -> str:
        """Return the SHA-256 (hex) of what values depend on.

        That is architecture, weights, preprocessing and library versions, and precision and kind of device where the
        values depend on them.
        """
        ...


class ImageExtractor(Extractor, Protocol):
    @property
    def kind(self) -> FeatureKind:
        """What it gives for a picture."""
        ...

    def extract(self, images: Sequence[bytes]) -> Sequence[ImageValue | Rejected]:
        """Return one value per picture, in order; a picture is a stored JPEG (`schemas.codecs.encode_jpeg`)."""
        ...


class SentenceExtractor(Extractor, Protocol):
    def extract(self, texts: Sequence[str]) -> Matrix:
        """Return one vector per text, N x d in order."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An extractor known by name, described without importing it.

    Attributes:
        place: `module:Class` in this package.
        kind: what it gives; a sentence extractor gives vectors.
        dimensions: of a vector, or of a region's vector; 0 for classes.
        weights: where its weights come from: `packaged`, or the name that `features.weights` has to give.
        licence: of the weights, where they are packaged.
    """

    place: str
    kind: FeatureKind = FeatureKind.VECTOR
    dimensions: int
    weights: str = PACKAGED
    licence: str = ""


# Networks of `architectures.py` with the size of their vectors; each gives a vector, classes, or the cells of a grid.
_NETWORKS = {_EMBEDDED: 1280, "densenet169": 1664, "nasnet-mobile": 1056, "resnet152": 2048, "resnet50": 2048}


def _entries_of(network: str, dimensions: int) -> dict[str, Entry]:
    """Return the three extractors of a network."""
    is_packaged = network == _EMBEDDED
    entry = partial(Entry, weights=PACKAGED if is_packaged else network, licence=_LICENCE if is_packaged else "")
    return {
        network: entry(place="cnn:CnnVectors", dimensions=dimensions),
        f"{network}-classes": entry(place="cnn:CnnClasses", kind=FeatureKind.CLASSES, dimensions=0),
        f"{network}-grid": entry(place="cnn:CnnGrid", kind=FeatureKind.REGIONS, dimensions=dimensions),
    }


IMAGE_EXTRACTORS: Mapping[str, Entry] = {
    **{name: entry for network, size in _NETWORKS.items() for name, entry in _entries_of(network, size).items()},
    "grid": Entry(place="cnn:CnnGrid", kind=FeatureKind.REGIONS, dimensions=1280, licence=_LICENCE),
    "faster-rcnn": Entry(
        place="faster_rcnn:FasterRcnn", kind=FeatureKind.REGIONS, dimensions=1024, weights="faster-rcnn"
    ),
}
SENTENCE_EXTRACTORS: Mapping[str, Entry] = {
    "use-multilingual": Entry(place="sentences:UseMultilingual", dimensions=512, licence="Apache-2.0"),
}


class _Registry(NamedTuple):
    """Extractors by name, the setting that names them, and `module:function` for a user's own `.onnx` file."""

    entries: Mapping[str, Entry]
    field: str
    own: str


_IMAGES = _Registry(IMAGE_EXTRACTORS, "features.images", "onnx:image_extractor")
_SENTENCES = _Registry(SENTENCE_EXTRACTORS, "features.sentences", "onnx:sentence_extractor")


def image_extractor(
    name: str,
    *,
    compute: Compute | None = None,
    weights: Mapping[str, WeightFile] | None = None,
    regions: RegionLimits | None = None,
) -> ImageExtractor:
    """Return the image extractor of this name.

    Args:
        name: one of `image_extractor_names()`, or the name of an `.onnx` file in `weights`.
        compute: what it computes with.
        weights: weight files by name.
        regions: how many regions of a picture are kept, by an extractor of regions.

    Raises:
        ConfigError: the name is unknown, or its weights are not given.
    """
    made = _make(name, _IMAGES, compute, weights, regions)
    return cast(ImageExtractor, made)


def sentence_extractor(
    name: str, *, compute: Compute | None = None, weights: Mapping[str, WeightFile] | None = None
) -> SentenceExtractor:
    """Return the sentence extractor of this name; see `image_extractor`."""
    made = _make(name, _SENTENCES, compute, weights, None)
    return cast(SentenceExtractor, made)


def image_extractor_names() -> list[str]:
    return sorted(IMAGE_EXTRACTORS)


def sentence_extractor_names() -> list[str]:
    return sorted(SENTENCE_EXTRACTORS)


def own_networks(weights: Mapping[str, WeightFile]) -> list[str]:
    """Return the names of the user's own networks among weight files."""
    known = {*IMAGE_EXTRACTORS, *SENTENCE_EXTRACTORS}
    return [name for name, file in weights.items() if file.uri.endswith(_NETWORK) and name not in known]


def _make(
    name: str,
    registry: _Registry,
    compute: Compute | None,
    weights: Mapping[str, WeightFile] | None,
    regions: RegionLimits | None,
) -> Any:
    """Return the extractor of a registry's entry, or that of the user's own network under this name."""
    files = weights or {}
    settings: dict[str, Any] = {"compute": compute or Compute(), "weights": files}
    entry = registry.entries.get(name)
    if entry is None and name not in own_networks(files):
        known = ", ".join(sorted(registry.entries))
        own = f"a network of your own: features.weights={name}=PATH{_NETWORK}"
        raise ConfigError(f"{registry.field} = {name!r}: expected one of {known}, or {own}")
    if registry is _IMAGES and (entry is None or entry.kind is FeatureKind.REGIONS):
        settings["regions"] = regions or RegionLimits()
    module, _, attribute = (registry.own if entry is None else entry.place).partition(":")
    return getattr(importlib.import_module(f"pipelines.features.{module}"), attribute)(name, **settings)
