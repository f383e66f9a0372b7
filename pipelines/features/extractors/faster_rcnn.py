"""Regions by torchvision's Faster R-CNN (ResNet-50, feature pyramid), with any checkpoint of that architecture.

COCO's 91 classes are known by name; another number of classes (Visual Genome's 1,600 of Anderson et al. 2018) comes
with a file of its class names, one a line, as the weight `faster-rcnn-classes`. As in Anderson et al., a region is a
proposal with its most probable class; its vector is what the box head makes of it, and non-maximum suppression is per
class. One picture a forward pass: in a batch, pictures are padded to the largest.

It runs in PyTorch: its proposals, and what suppression leaves of them, are as many as a picture has, which its exporter
to ONNX does not express.
"""

import importlib.metadata
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import cached_property

import torch
from torch import Tensor, nn
from torchvision.models.detection import FasterRCNN, FasterRCNN_ResNet50_FPN_Weights, fasterrcnn_resnet50_fpn
from torchvision.ops import batched_nms, clip_boxes_to_image, remove_small_boxes

from pipelines.features.catalogue import Entry
from pipelines.features.convert import fit_checkpoint, read_checkpoint
from pipelines.features.pixels import PictureExtractor, Pixels, Preprocessing, Square
from pipelines.features.values import Regions, Row, feature_column, kept_regions
from pipelines.features.weights import LocalFile, WeightFile, weight_of
from pipelines.settings import Device, FeaturesConfig
from schemas.features import FeatureColumn, FeatureKind
from schemas.messages import ConfigError

CLASS_LIST = "faster-rcnn-classes"
SHORTER_SIDE_PX, LONGER_SIDE_PX = 800, 1333  # torchvision's; a picture is resized to fit
WIDTH = 1024  # of the box head
MIN_SIDE_PX = 1e-2  # of a region, as torchvision has it
_BACKGROUND = "__background__"
# torchvision's COCO checkpoint was trained with a batch normalisation that adds nothing to the variance.
_COCO_DIGEST = "258fb6c6"


class FasterRcnn(PictureExtractor):
    """Extractor of regions; the network is loaded at the first use."""

    def __init__(
        self, network: str, names: Sequence[str], config: FeaturesConfig, weights: Mapping[str, WeightFile]
    ) -> None:
        what = "a checkpoint of torchvision's fasterrcnn_resnet50_fpn"
        whole = Preprocessing(fit="whole", mean=(0.0,) * 3, deviation=(255.0,) * 3)
        super().__init__(config, whole)
        self._name, self._weight = names[0], weight_of(network, weights, what=what)
        self._class_list = weights.get(CLASS_LIST)
        is_gpu = config.device is not Device.CPU and torch.cuda.is_available()
        if config.device is Device.CUDA and not is_gpu:
            raise ConfigError("features.device = cuda: PyTorch finds no GPU here; auto takes one where there is one")
        self._device = "cuda" if is_gpu else "cpu"

    @cached_property
    def file(self) -> LocalFile:
        """The weight file."""
        return self._weight.local()

    @cached_property
    def columns(self) -> tuple[FeatureColumn, ...]:
        depends_on = {
            "architecture": "fasterrcnn_resnet50_fpn, box head of proposals, most probable class",
            "names": self._class_names,
            "preprocessing": f"shorter side {SHORTER_SIDE_PX}, longer at most {LONGER_SIDE_PX}",
            "weights": self.file.sha256,
            "device": self._device if self._device == "cuda" else torch.backends.cpu.get_cpu_capability(),
            **{name: importlib.metadata.version(name) for name in ("torch", "torchvision")},
        }
        return (feature_column(self._name, self.config, WIDTH, depends_on, FeatureKind.REGIONS),)

    def rows(self, squares: Sequence[Square], pixels: Pixels) -> list[Row]:
        """Return the regions of one picture."""
        torch.set_num_threads(1)  # of this thread: arithmetic depends on the number
        values = torch.from_numpy(pixels[0]).permute(2, 0, 1).to(self._device)
        network = self._network
        heads = network.roi_heads
        with torch.inference_mode():
            images, _ = network.transform([values.float().div_(255)])
            maps = OrderedDict(network.backbone(images.tensors))
            proposals, _ = network.rpn(images, maps)
            vectors = heads.box_head(heads.box_roi_pool(maps, proposals, images.image_sizes))
            logits, changes = heads.box_predictor(vectors)
            boxes = heads.box_coder.decode(changes, proposals)
            found = self._kept(logits, boxes, vectors, images.image_sizes[0], heads.nms_thresh)
            return [(found,)]

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
        best = kept_regions(scores[distinct].cpu().numpy(), self.config)
        kept = distinct[torch.from_numpy(best).to(distinct.device)]
        height, width = size
        return Regions(
            boxes=(boxes[kept] / boxes.new_tensor([width, height, width, height])).cpu().numpy(),
            labels=tuple(self._class_names[number] for number in classes[kept].tolist()),
            scores=scores[kept].cpu().numpy(),
            vectors=vectors[kept].cpu().numpy(),
        )

    @cached_property
    def _network(self) -> FasterRCNN:
        tensors, name = read_checkpoint(self.file.path), "roi_heads.box_predictor.cls_score.bias"
        network = fasterrcnn_resnet50_fpn(
            weights=None,
            weights_backbone=None,
            num_classes=len(tensors.get(name, range(91))),
            min_size=SHORTER_SIDE_PX,
            max_size=LONGER_SIDE_PX,
        )
        fit_checkpoint(network, tensors, what=self._name, path=self.file.path)
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d) and self.file.sha256.startswith(_COCO_DIGEST):
                module.eps = 0.0
        return network.eval().requires_grad_(False).to(self._device)

    @cached_property
    def _class_names(self) -> tuple[str, ...]:
        """The names of the classes, without the background."""
        count = int(self._network.roi_heads.box_predictor.cls_score.out_features) - 1
        if self._class_list is not None:
            path = self._class_list.local().path
            # One a line, the first of several after commas; a line for the background may come first.
            names = [line.partition(",")[0].strip() for line in path.read_text(encoding="utf-8").splitlines()]
            names = names[1:] if names[:1] == [_BACKGROUND] else names
            if len(names) != count or not all(names):
                raise ConfigError(f"features.weights: {CLASS_LIST}: {path}: expected {count} names, found {len(names)}")
            return tuple(names)
        coco: Sequence[str] = FasterRCNN_ResNet50_FPN_Weights.COCO_V1.meta["categories"]
        if count != len(coco) - 1:
            raise ConfigError(
                f"features.weights: {self.file.path} has {count} classes, COCO {len(coco) - 1}: give their names, "
                f"one a line, with --set features.weights={CLASS_LIST}=FILE"
            )
        return tuple(coco[1:])


ENTRIES = {"faster-rcnn": Entry(factory=FasterRcnn, network="faster-rcnn")}
