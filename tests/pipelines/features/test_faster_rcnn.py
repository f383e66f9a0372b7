"""Regions of Faster R-CNN against torchvision's own detections, with random weights and small heads."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torchvision.models.detection import FasterRCNN, fasterrcnn_resnet50_fpn

from pipelines.features.extractors import faster_rcnn
from pipelines.features.extractors.faster_rcnn import FasterRcnn
from pipelines.features.values import Regions, Rejected
from pipelines.features.weights import WeightFile
from pipelines.settings import Device, FeaturesConfig
from schemas.messages import ConfigError

NAMES = ["table", "red oak,oak", "saw", "hand"]
SIDE = 128
WIDTH = 1024  # of the box head
BLOCKS = ("fpn.inner_blocks", "fpn.layer_blocks")


def network(classes: int = len(NAMES) + 1) -> FasterRCNN:
    """Return torchvision's network, made certain enough to tell classes apart."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        made = fasterrcnn_resnet50_fpn(
            weights=None, weights_backbone=None, num_classes=classes, min_size=SIDE, box_score_thresh=0.0
        )
        torch.nn.init.normal_(made.roi_heads.box_predictor.cls_score.weight, std=0.3)
    made.roi_heads.detections_per_img = 10_000
    return made.eval()


@pytest.fixture(autouse=True)
def small_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faster_rcnn, "SHORTER_SIDE_PX", SIDE)


@pytest.fixture(scope="module")
def torchvision_network() -> FasterRCNN:
    return network()


@pytest.fixture(scope="module")
def checkpoint(torchvision_network: FasterRCNN, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("detector") / "detector.pth"
    torch.save(torchvision_network.state_dict(), path)
    path.with_suffix(".txt").write_text("".join(f"{name}\n" for name in NAMES))
    return path


def extractor(checkpoint: Path, *, names: Path | None = None, **limits: float) -> FasterRcnn:
    files = {"faster-rcnn": checkpoint, "faster-rcnn-classes": names or checkpoint.with_suffix(".txt")}
    weights = {name: WeightFile(name, str(path)) for name, path in files.items()}
    config = FeaturesConfig(device=Device.CPU, threads=2, **limits)
    return FasterRcnn("faster-rcnn", ["faster-rcnn"], config, weights)


def regions(made: FasterRcnn, picture: bytes) -> Regions:
    [(found,)] = made.extract([picture])
    assert isinstance(found, Regions)
    return found


def detections(network: FasterRCNN, picture: bytes) -> tuple[Tensor, Tensor, Tensor, tuple[int, int]]:
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255
    with torch.inference_mode():
        [found] = network([pixels])
    return found["boxes"], found["labels"], found["scores"], image.size


def test_every_region_is_one_of_torchvisions_detections(
    torchvision_network: FasterRCNN, checkpoint: Path, photographs: dict[str, bytes]
) -> None:
    picture = photographs["cat"]
    found = regions(extractor(checkpoint, min_regions=36), picture)
    boxes, labels, scores, (width, height) = detections(torchvision_network, picture)
    shares = (boxes / torch.tensor([width, height, width, height])).numpy()
    short = [name.partition(",")[0] for name in NAMES]
    assert found.boxes.shape == (36, 4) and found.vectors.shape == (36, WIDTH)
    assert (np.diff(found.scores) <= 0).all()
    for box, label, score in zip(found.boxes, found.labels, found.scores, strict=True):
        same = (labels.numpy() == short.index(label) + 1) & (abs(scores.numpy() - score) < 1e-4)
        assert abs(shares[same] - box).max(axis=1).min() < 1e-3
    # torchvision keeps a box once for each class, we for its most probable: the surest detection is the same.
    np.testing.assert_allclose(found.scores[0], scores.max(), atol=1e-4)
    # and what the classifier makes of a region's vector is its label and score.
    predictor = torchvision_network.roi_heads.box_predictor
    with torch.inference_mode():
        probabilities = predictor.cls_score(torch.from_numpy(found.vectors)).softmax(1)[:, 1:]
    np.testing.assert_allclose(probabilities.max(1).values, found.scores, atol=1e-4)
    assert [short[place] for place in probabilities.argmax(1)] == list(found.labels)


def test_regions_of_one_class_do_not_overlap_much(checkpoint: Path, photographs: dict[str, bytes]) -> None:
    from torchvision.ops import box_iou

    found = regions(extractor(checkpoint, min_regions=60, max_regions=100, min_score=0.0), photographs["coffee"])
    for name in set(found.labels):
        of_class = torch.from_numpy(found.boxes[[label == name for label in found.labels]])
        assert box_iou(of_class, of_class).fill_diagonal_(0).max() <= 0.5 + 1e-4
    assert found.boxes.min() >= 0 and found.boxes.max() <= 1
    assert (found.boxes[:, 2:] > found.boxes[:, :2]).all()


def test_a_picture_depends_on_itself_alone(checkpoint: Path, photographs: dict[str, bytes]) -> None:
    """Of another form, and beside one that cannot be read."""
    made = extractor(checkpoint)
    alone = regions(made, photographs["coffee"])
    together = [row[0] for row in made.extract([photographs["cat"], b"no picture", photographs["coffee"]])]
    assert isinstance(together[1], Rejected)
    assert [each.tobytes() for each in (together[2].boxes, together[2].vectors)] == [
        alone.boxes.tobytes(), alone.vectors.tobytes()
    ]  # fmt: skip
    assert 10 <= len(alone.labels) <= 36 and made.columns[0].dimensions == WIDTH


def test_the_first_names_of_a_checkpoint_load(checkpoint: Path, photographs: dict[str, bytes], tmp_path: Path) -> None:
    """torchvision's published COCO file has no `.0` for the layers that now have an activation beside them."""
    old = {}
    for name, tensor in torch.load(checkpoint, weights_only=True).items():
        parts = name.split(".")
        if name.startswith(tuple(f"backbone.{block}" for block in BLOCKS)):
            del parts[4]
        old[".".join(parts).replace("rpn.head.conv.0.0.", "rpn.head.conv.")] = tensor
    assert "backbone.fpn.inner_blocks.0.weight" in old and "rpn.head.conv.bias" in old
    torch.save(old, tmp_path / "old.pth")
    found = [
        regions(extractor(path, names=checkpoint.with_suffix(".txt")), photographs["cat"])
        for path in (tmp_path / "old.pth", checkpoint)
    ]
    np.testing.assert_array_equal(found[0].vectors, found[1].vectors)


def test_class_lists_are_checked(checkpoint: Path, tmp_path: Path) -> None:
    names = tmp_path / "names.txt"
    names.write_text("table\nsaw\n")
    with pytest.raises(ConfigError, match=r"names\.txt: expected 4 names, found 2"):
        _ = extractor(checkpoint, names=names).columns
    names.write_text("".join(f"{name}\n" for name in ["__background__", *NAMES]))
    assert extractor(checkpoint, names=names).columns == extractor(checkpoint).columns
    weights = {"faster-rcnn": WeightFile("faster-rcnn", str(checkpoint))}
    with pytest.raises(ConfigError, match=r"has 4 classes, COCO 90: give their names"):
        _ = FasterRcnn("faster-rcnn", ["faster-rcnn"], FeaturesConfig(device=Device.CPU), weights).columns
    with pytest.raises(ConfigError, match=r"give --set features\.weights=faster-rcnn=FILE"):
        FasterRcnn("faster-rcnn", ["faster-rcnn"], FeaturesConfig(), {})
