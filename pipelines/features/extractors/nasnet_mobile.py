"""The extractors of NASNet mobile (Hessel 2019, supplement 2: resized to 256, centre crop of 224)."""

from typing import Any

from pipelines.features.networks import entries_of
from pipelines.features.pixels import Architecture, Preprocessing


def build() -> Any:
    """Return the network in PyTorch, with random weights."""
    from networks.nasnet_mobile import NasnetMobile

    return NasnetMobile()


ENTRIES = entries_of(
    Architecture(
        name="nasnet-mobile",
        dimensions=1056,
        preprocessing=Preprocessing(mean=(127.5,) * 3, deviation=(127.5,) * 3),  # inception_preprocessing: -1..1
        factory=f"{__name__}:build",
        cells=("features",),
        classifier="last_linear",
    )
)
