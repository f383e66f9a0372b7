"""Extractors from a network of the user's own: an `.onnx` file and, beside it, a JSON file that says what it is.

The weights `NAME=FILE.onnx` make the extractor NAME; `onnx_sidecars.py` says what stands in FILE.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pipelines.features.onnx_sidecars import DetectorSidecar, OnnxFiles, TextSidecar, VectorSidecar
from pipelines.features.values import Compute, RegionLimits
from pipelines.features.weights import WeightFile
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from pipelines.features.onnx_images import OnnxDetector, OnnxVectors
    from pipelines.features.onnx_text import OnnxText


def image_extractor(
    name: str, *, compute: Compute, weights: Mapping[str, WeightFile], regions: RegionLimits
) -> OnnxVectors | OnnxDetector:
    """Return the image extractor that the sidecar of `name` describes: vectors or regions.

    Raises:
        ConfigError: the sidecar is wrong, or describes a text tower.
    """
    from pipelines.features.onnx_images import OnnxDetector, OnnxVectors

    files = OnnxFiles(name, weights)
    sidecar = files.sidecar()
    if isinstance(sidecar, VectorSidecar):
        return OnnxVectors(files, sidecar, compute)
    if isinstance(sidecar, DetectorSidecar):
        return OnnxDetector(files, sidecar, compute, regions)
    raise ConfigError(f"features.images = {name!r}: its sidecar describes a text tower; name it in features.sentences")


def sentence_extractor(
    name: str, *, compute: Compute, weights: Mapping[str, WeightFile], regions: RegionLimits | None = None
) -> OnnxText:
    """Return the sentence extractor that the sidecar of `name` describes; `regions` has no meaning for one.

    Raises:
        ConfigError: the sidecar is wrong, or describes a network that looks at pictures.
    """
    from pipelines.features.onnx_text import OnnxText

    files = OnnxFiles(name, weights)
    sidecar = files.sidecar()
    if not isinstance(sidecar, TextSidecar):
        raise ConfigError(f"features.sentences = {name!r}: its sidecar describes a network that looks at pictures")
    return OnnxText(files, sidecar, compute)
