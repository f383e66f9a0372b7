"""The extractors of ResNet-152 (Liu 2020, 4.2: the layer before the logits).

The preprocessing is that of VSE++, whose features that paper shares.
"""

from pipelines.features.networks import entries_of
from pipelines.features.pixels import CENTRE, RESNET_CELLS, Architecture

ENTRIES = entries_of(
    Architecture(
        name="resnet152",
        dimensions=2048,
        preprocessing=CENTRE,
        factory="torchvision.models:resnet152",
        cells=RESNET_CELLS,
        classifier="fc",
    )
)
