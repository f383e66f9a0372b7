"""What a convolutional network is, described without importing what builds it, and the columns that it gives.

    densenet169                  vector: the mean over the cells of the last feature map, the input of the classifier
    densenet169-mirrored         vector: the mean of that one and the one of the mirrored picture; a second pass
    densenet169-classes          classes: the 20 most probable of ImageNet (Hessel 2019, object detection)
    densenet169-names            vector: the names of these classes as a sentence (`networks.ClassNames`)
    densenet169-grid             regions: the cells of the last feature map
    efficientnet-lite0-middle    vector: the means of the maps behind blocks 4, 7, 10 and 15, one after the other
    efficientnet-lite0-int8      the same network in 8-bit integers (`convert.quantised`), with columns as above

A network here is its last feature map and the classifier behind the mean over its cells.
"""

from dataclasses import dataclass
from enum import StrEnum
from pkgutil import resolve_name
from typing import Any

from pipelines.features.pixels import Preprocessing
from schemas.features import FeatureKind

# Of torchvision's ImageNet networks, for values 0..255.
CENTRE = Preprocessing(mean=(0.485 * 255, 0.456 * 255, 0.406 * 255), deviation=(0.229 * 255, 0.224 * 255, 0.225 * 255))
RESNET_CELLS = ("conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3", "layer4")


class Output(StrEnum):
    """What a column of a network has."""

    VECTOR = "vector"
    MIRRORED = "mirrored"
    MIDDLE = "middle"
    CLASSES = "classes"
    NAMES = "names"
    GRID = "grid"

    @property
    def kind(self) -> FeatureKind:
        return {Output.CLASSES: FeatureKind.CLASSES, Output.GRID: FeatureKind.REGIONS}.get(self, FeatureKind.VECTOR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A convolutional network.

    Attributes:
        dimensions: d, channels of the last feature map.
        factory: `module:callable` that returns the network in PyTorch, with random weights.
        cells: names of the parts that make the last feature map, one after the other; a ReLU follows.
        classifier: name of the part that makes logits of d values.
        packaged: `module:callable` that returns the path of weights that come with a package; empty: none do.
        licence: of these.
        middle: names of the parts behind which maps in the middle are taken.
        middle_dimensions: their channels together.
        is_quantised: whether its graph computes in 8-bit integers.
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
    is_quantised: bool = False

    def build(self) -> Any:
        """Return the network in PyTorch, with random weights."""
        return resolve_name(self.factory)()

    @property
    def outputs(self) -> dict[str, Output]:
        """Return what each column has, by its name."""
        names = {output: self.name if output is Output.VECTOR else f"{self.name}-{output}" for output in Output}
        return {name: output for output, name in names.items() if output is not Output.MIDDLE or self.middle}
