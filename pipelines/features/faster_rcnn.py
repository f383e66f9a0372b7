"""Regions by torchvision's Faster R-CNN (ResNet-50, feature pyramid), with any checkpoint of that architecture.

COCO's 91 classes are known by name; another number of classes (Visual Genome's 1,600 of Anderson et al. 2018) comes
with a file of its class names, one a line, as the weight `faster-rcnn-classes`. As in Anderson et al., a region is a
proposal with its most probable class; its vector is what the box head makes of it, and non-maximum suppression is per
class. One picture a forward pass: in a batch, pictures are padded to the largest.
"""

from __future__ import annotations

import importlib.metadata
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.models.detection import FasterRCNN, FasterRCNN_ResNet50_FPN_Weights
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
from torchvision.ops import FrozenBatchNorm2d, batched_nms, clip_boxes_to_image, remove_small_boxes

from pipelines.features.architectures import fit_checkpoint, read_checkpoint
from pipelines.features.devices import place_of
from pipelines.features.pixels import decoded
from pipelines.features.regions import kept_regions
from pipelines.features.values import Compute, FeatureKind, RegionLimits, Regions, Rejected
from pipelines.features.weights import WeightFile, digest_of, weight_of
from schemas.configs import resolve
from schemas.errors import ConfigError
from schemas.versions import fingerprint

CLASS_LIST = "faster-rcnn-classes"
SHORTER_SIDE_PX, LONGER_SIDE_PX = 800, 1333  # torchvision's; a picture is resized to fit
MIN_SIDE_PX = 1e-2  # of a region, as torchvision has it
_BACKGROUND = "__background__"
# torchvision's COCO checkpoint was trained with a batch normalisation that adds nothing to the variance.
_COCO_DIGEST = "258fb6c6"


class FasterRcnn:
    """Image extractor `faster-rcnn`; the network is loaded at the first use."""

    kind = FeatureKind.REGIONS

    def __init__(
        self,
        name: str,
        *,
        compute: Compute,
        weights: Mapping[str, WeightFile],
        regions: RegionLimits,
        shorter_side_px: int = SHORTER_SIDE_PX,
    ) -> None:
        """Make the extractor.

        Args:
            shorter_side_px: what a picture's shorter side is resized to.
        """
        self.name = name
        self._weights = weight_of(name, weights, what="a checkpoint of torchvision's fasterrcnn_resnet50_fpn")
        self._class_list = weights.get(CLASS_LIST)
        self._place = place_of(compute)
        self._limits = regions
        self._shorter_side_px = shorter_side_px
        self._loading = threading.Lock()
        self._pool = ThreadPoolExecutor(compute.threads, name, initializer=torch.set_num_threads, initargs=(1,))

    @cached_property
    def dimensions(self) -> int:
        """Width of the box head: 1024 in torchvision's checkpoint."""
        return int(self._tensor("roi_heads.box_head.fc7.weight").shape[0])

    def fingerprint(self) -> str:
        return fingerprint(
            {
                "architecture": "fasterrcnn_resnet50_fpn, box head of proposals, most probable class",
                "weights": self._digest,
                "names": self._names,
                "preprocessing": f"shorter side {self._shorter_side_px}, longer at most {LONGER_SIDE_PX}",
                "limits": resolve(self._limits),
                **self._place.describe(),
                **{name: importlib.metadata.version(name) for name in ("torch", "torchvision")},
            }
        )

    def extract(self, images: Sequence[bytes]) -> list[Regions | Rejected]:
        """Return the regions of each stored picture, in order."""
        self._load()
        return list(self._pool.map(self._one, images))

    def bare(self, pictures: Sequence[bytes]) -> Callable[[], object]:
        """Return the forward passes alone over these pictures, decoded beforehand: the bound of `extract`."""
        self._load()
        values = [self._values(image) for image in map(decoded, pictures) if not isinstance(image, Rejected)]

        def run() -> None:
            for _ in self._pool.map(self._regions, values):
                pass

        return run

    def _one(self, picture: bytes) -> Regions | Rejected:
        image = decoded(picture)
        return image if isinstance(image, Rejected) else self._regions(self._values(image))

    def _values(self, image: Image.Image) -> Tensor:
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)
        return pixels.to(self._place.device).float().div_(255)

    def _regions(self, values: Tensor) -> Regions:
        network = self._network
        with torch.inference_mode(), torch.autocast(self._place.device.type, self._place.dtype, self._is_mixed):
            images, _ = network.transform([values])
            places = OrderedDict(network.backbone(images.tensors))
            proposals, _ = network.rpn(images, places)
            heads = network.roi_heads
            vectors = heads.box_head(heads.box_roi_pool(places, proposals, images.image_sizes))
            logits, changes = heads.box_predictor(vectors)
            boxes = heads.box_coder.decode(changes.float(), proposals)
            return self._kept(logits.float(), boxes, vectors.float(), images.image_sizes[0], heads.nms_thresh)

    def _kept(
        self, logits: Tensor, boxes: Tensor, vectors: Tensor, size: tuple[int, int], max_overlap: float
    ) -> Regions:
        """Return the kept regions of R proposals.

        Args:
            logits: R x classes, the background first.
            boxes: R x classes x 4, in pixels of the network's picture.
            vectors: R x d.
            size: height and width of the network's picture.
            max_overlap: intersection over union of two regions of one class.
        """
        scores, classes = logits.softmax(-1)[:, 1:].max(-1)
        boxes = clip_boxes_to_image(boxes[torch.arange(len(boxes)), classes + 1], size)
        whole = remove_small_boxes(boxes, MIN_SIDE_PX)
        distinct = whole[batched_nms(boxes[whole], scores[whole], classes[whole], max_overlap)]
        kept = distinct[
            torch.from_numpy(kept_regions(scores[distinct].cpu().numpy(), self._limits)).to(distinct.device)
        ]
        height, width = size
        shares = boxes[kept] / boxes.new_tensor([width, height, width, height])
        return Regions(
            boxes=shares.cpu().numpy(),
            labels=tuple(self._names[place] for place in classes[kept].tolist()),
            scores=scores[kept].cpu().numpy(),
            vectors=vectors[kept].cpu().numpy(),
        )

    def _load(self) -> None:
        with self._loading:
            self._network  # noqa: B018 - loaded once, before threads ask for it

    @property
    def _is_mixed(self) -> bool:
        return self._place.dtype is not torch.float32

    @cached_property
    def _network(self) -> FasterRCNN:
        tensors = {_present_name(name): tensor for name, tensor in self._checkpoint.items()}
        backbone = resnet_fpn_backbone(backbone_name="resnet50", weights=None)
        head = TwoMLPHead(backbone.out_channels * 7**2, self.dimensions)
        predictor = FastRCNNPredictor(self.dimensions, len(self._names) + 1)
        sides = {"min_size": self._shorter_side_px, "max_size": LONGER_SIDE_PX}
        network = FasterRCNN(backbone, box_head=head, box_predictor=predictor, **sides)
        fit_checkpoint(network, tensors, what=self.name, path=self._weights.path())
        del self._checkpoint  # the network has its own copy
        if self._digest.startswith(_COCO_DIGEST):
            for module in network.modules():
                if isinstance(module, FrozenBatchNorm2d):
                    module.eps = 0.0
        return network.eval().requires_grad_(False).to(self._place.device)

    @cached_property
    def _names(self) -> tuple[str, ...]:
        """The names of the classes, without the background."""
        count = int(self._tensor("roi_heads.box_predictor.cls_score.bias").shape[0]) - 1
        if self._class_list is not None:
            return _read_names(self._class_list.path(), count)
        coco: Sequence[str] = FasterRCNN_ResNet50_FPN_Weights.COCO_V1.meta["categories"]
        if count != len(coco) - 1:
            raise ConfigError(
                f"features.weights: {self._weights.path()} has {count} classes, COCO {len(coco) - 1}: give their "
                f"names, one a line, with --set features.weights={CLASS_LIST}=FILE"
            )
        return tuple(coco[1:])

    def _tensor(self, name: str) -> Tensor:
        if name not in self._checkpoint:
            raise ConfigError(
                f"features.weights: {self._weights.path()}: no checkpoint of {self.name}: it lacks {name}"
            )
        return self._checkpoint[name]

    @cached_property
    def _checkpoint(self) -> dict[str, Tensor]:
        return read_checkpoint(self._weights.path())

    @cached_property
    def _digest(self) -> str:
        return self._weights.sha256 or digest_of(self._weights.path())


def _present_name(name: str) -> str:
    """Return today's name of a tensor of torchvision's first checkpoints, when these layers had nothing beside them."""
    name = re.sub(r"(fpn\.(?:inner|layer)_blocks\.\d)\.(weight|bias)$", r"\1.0.\2", name)
    return re.sub(r"(rpn\.head\.conv)\.(weight|bias)$", r"\1.0.0.\2", name)


def _read_names(path: Path, count: int) -> tuple[str, ...]:
    """Return class names, one a line, the first of several after commas; a line for the background may come first."""
    names = [line.partition(",")[0].strip() for line in path.read_text(encoding="utf-8").splitlines()]
    names = names[1:] if names[:1] == [_BACKGROUND] else names
    if len(names) != count or not all(names):
        raise ConfigError(f"features.weights: {CLASS_LIST}: {path}: expected {count} names, found {len(names)}")
    return tuple(names)
