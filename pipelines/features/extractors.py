"""The one interface of everything that turns pictures or sentences into vectors, and the extractors known by name.

An extractor's vector of an item depends on that item alone: to the last bit, whatever shares its batch, its position,
the number of threads and processes, and the order of work, on one kind of machine. `fingerprint` names everything the
vector does depend on. A model is loaded when an extractor is first used, and kept: a worker makes one extractor, in its
set-up. Its module is imported only when it is asked for. Vectors a user already has are looked up: `given.py`.

To add an extractor: a module beside this one with a class that satisfies the protocol, and a line in a registry below.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from schemas.errors import ConfigError

Matrix = npt.NDArray[np.float32]  # N x d

# Name -> `module:class` in this package; a class takes the keyword `threads`.
_IMAGE_EXTRACTORS: Mapping[str, str] = {"efficientnet-lite0": "efficientnet_lite0:EfficientnetLite0"}
_SENTENCE_EXTRACTORS: Mapping[str, str] = {"use-multilingual": "sentences:UseMultilingual"}


class Extractor(Protocol):
    """What image and sentence extractors share."""

    @property
    def name(self) -> str:
        """The name of the column: `features.<name>`."""
        ...

    @property
    def dimensions(self) -> int:
        """The length d of a vector."""
        ...

    def fingerprint(self) -> str:
        """Return the SHA-256 (hex) of what vectors depend on: architecture, weights, preprocessing, library."""
        ...


class ImageExtractor(Extractor, Protocol):
    def extract(self, images: Sequence[bytes]) -> Matrix:
        """Return one vector per picture, N x d in order; a picture is a stored JPEG (`schemas.codecs.encode_jpeg`)."""
        ...


class SentenceExtractor(Extractor, Protocol):
    def extract(self, texts: Sequence[str]) -> Matrix:
        """Return one vector per text, N x d in order."""
        ...


def image_extractor(name: str, *, threads: int = 1) -> ImageExtractor:
    """Return the image extractor of this name.

    Args:
        name: one of `image_extractor_names()`.
        threads: pictures under way at once; it changes the speed and never the vectors.

    Raises:
        ConfigError: the name is unknown.
    """
    return cast(ImageExtractor, _make(name, _IMAGE_EXTRACTORS, field="features.images", threads=threads))


def sentence_extractor(name: str, *, threads: int = 1) -> SentenceExtractor:
    """Return the sentence extractor of this name; see `image_extractor`."""
    return cast(SentenceExtractor, _make(name, _SENTENCE_EXTRACTORS, field="features.sentences", threads=threads))


def image_extractor_names() -> list[str]:
    return sorted(_IMAGE_EXTRACTORS)


def sentence_extractor_names() -> list[str]:
    return sorted(_SENTENCE_EXTRACTORS)


def _make(name: str, registry: Mapping[str, str], *, field: str, threads: int) -> Any:
    if name not in registry:
        raise ConfigError(f"{field} = {name!r}: expected one of {', '.join(sorted(registry))}")
    module, _, attribute = registry[name].partition(":")
    return getattr(importlib.import_module(f"pipelines.features.{module}"), attribute)(threads=threads)
