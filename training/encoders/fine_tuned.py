"""Image tower whose CNN is trained end to end from the pictures in the shards (Hessel 2019, suppl. 2).

A picture is resized to 256 x 256. In training it is flipped, turned by up to 20 degrees and cropped to a random 224 x
224, all in one resampling; otherwise its centre is cropped. The draw's stream is keyed by seed, content hash, epoch
and step.
"""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from schemas.errors import ConfigError, UsageError
from training.data.streams import stream
from training.encoders.cnn import Network, hold_moments
from training.encoders.dropout import RowDropout
from training.encoders.inputs import ImageInput, TrainingPass
from training.encoders.linear import unit
from training.encoders.rows import PictureRows
from training.host_arrays import to_device

SIDE_PX, CROP_PX = 256, 224
MOST_DEGREES = 20.0
DECODING_THREADS = 4
PICTURES_AT_ONCE = 64


class FineTunedTower(nn.Module):
    """N pictures -> N x d unit vectors: CNN, dropout, affine map.

    Args:
        network: the CNN.
        dimensions: d, size of the joint space.
        dropout: probability on the CNN's features.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, network: Network, dimensions: int, *, dropout: float) -> None:
        super().__init__()
        self.cnn = network.module
        mean, deviation = network.normalisation
        self.register_buffer("mean", torch.tensor(mean).view(3, 1, 1))
        self.register_buffer("deviation", torch.tensor(deviation).view(3, 1, 1))
        self.dropout = RowDropout(dropout)
        self.affine = nn.Linear(network.features, dimensions)

    def train(self, mode: bool = True) -> FineTunedTower:
        """Switch dropout and augmentation; the CNN's batch normalisations always keep their moments."""
        super().train(mode)
        hold_moments(self.cnn)
        return self

    def prepare(self, given: ImageInput) -> PictureRows:
        """Return the pictures of given images; they are decoded when they are encoded.

        Raises:
            UsageError: there are no pictures.
        """
        if given.jpegs is None:
            raise UsageError("this model reads pictures; the images are given without them")
        return PictureRows(jpegs=given.jpegs, rows=np.arange(len(given.jpegs)), keys=tuple(given.keys))

    def forward(self, rows: PictureRows, training_pass: TrainingPass | None = None) -> Tensor:
        draws = training_pass if self.training else None
        step = len(rows) if self.training else PICTURES_AT_ONCE
        parts = [
            self._features(rows.take(np.arange(start, min(start + step, len(rows)))), draws)
            for start in range(0, len(rows), max(step, 1))
        ]
        features = torch.cat([self.affine.weight.new_zeros((0, self.affine.in_features)), *parts])
        return unit(self.affine(self.dropout(features)))

    def _features(self, rows: PictureRows, draws: TrainingPass | None) -> Tensor:
        pictures = to_device(decode(rows), self.mean.device).permute(0, 3, 1, 2)
        if draws is None:
            cropped = centre_crop(pictures)
        else:
            cropped = augment(pictures, to_device(augmentations(rows, draws), pictures.device))
        found: Tensor = self.cnn((cropped / 255 - self.mean) / self.deviation)
        return found


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


def augmentations(rows: PictureRows, training_pass: TrainingPass) -> npt.NDArray[np.float32]:
    """Return N x 2 x 3 affine maps from places in the crop to places in the picture (both in -1..1, x before y)."""
    maps = np.empty((len(rows), 2, 3), np.float32)
    for row, key in enumerate(rows.keys):
        draws = stream("augmentation", training_pass.seed, key, training_pass.epoch, training_pass.step).random(4)
        maps[row] = _affine(draws)
    return maps


def augment(pictures: Tensor, maps: Tensor) -> Tensor:
    """Return N x 3 x 224 x 224 crops of N x 3 x 256 x 256 pictures along affine maps; outside is black."""
    shape = (len(pictures), 3, CROP_PX, CROP_PX)
    grid = F.affine_grid(maps, list(shape), align_corners=False)
    return F.grid_sample(pictures.float(), grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def _affine(draws: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
    """Return the map that undoes, place by place: flip, turn about the centre, crop at an offset."""
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
        raise ConfigError(
            "encoder.image = 'fine-tuned': pictures are decoded by Pillow; pip install pillow"
        ) from problem
    try:
        with Image.open(io.BytesIO(jpeg)) as image:
            return np.asarray(image.convert("RGB").resize((SIDE_PX, SIDE_PX), Image.Resampling.BILINEAR))
    except OSError as problem:
        raise UsageError(f"expected a picture, found {len(jpeg)} bytes that are none: {problem}") from problem
