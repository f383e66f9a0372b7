"""The extractors of DenseNet-169 (Hessel 2019, 4: the layer before the classifier)."""

from pipelines.features.networks import entries_of
from pipelines.features.pixels import CENTRE, Architecture

ENTRIES = entries_of(
    Architecture(
        name="densenet169",
        dimensions=1664,
        preprocessing=CENTRE,
        factory="torchvision.models:densenet169",
        cells=("features",),
        classifier="classifier",
    )
)
