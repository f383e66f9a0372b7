"""The extractors of ResNet-50 (Alikhani 2022: "Image is first resized to 224 x 224")."""

from dataclasses import replace

from pipelines.features.networks import entries_of
from pipelines.features.pixels import CENTRE, RESNET_CELLS, Architecture

ENTRIES = entries_of(
    Architecture(
        name="resnet50",
        dimensions=2048,
        preprocessing=replace(CENTRE, fit="squash"),
        factory="torchvision.models:resnet50",
        cells=RESNET_CELLS,
        classifier="fc",
    )
)
