"""The extractors of NASNet mobile (Hessel 2019, supplement 2: resized to 256, centre crop of 224)."""

from pipelines.features.architectures import Architecture
from pipelines.features.networks import entries_of
from pipelines.features.pixels import Preprocessing

ENTRIES = entries_of(
    Architecture(
        name="nasnet-mobile",
        dimensions=1056,
        preprocessing=Preprocessing(mean=(127.5,) * 3, deviation=(127.5,) * 3),  # inception_preprocessing: -1..1
        factory="multilink.nasnet_mobile:NasnetMobile",
        cells=("features",),
        classifier="last_linear",
    )
)
