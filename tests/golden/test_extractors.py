"""A golden file per extractor: photographs in, a few numbers out, so that preprocessing and networks stay as they are.

Where no package has the weights, they are random ones of seed 7: what is guarded is the path from bytes to the network,
and its architecture. The tolerance allows for another processor or JPEG library, and is a fifth of what the least
change of preprocessing makes (red and blue exchanged in the mean: 0.026).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from large_networks import by_size

from pipelines.features.catalogue import extractors
from pipelines.features.extractors import faster_rcnn
from pipelines.features.values import Classes, Regions
from pipelines.settings import Device, FeaturesConfig

FOLDER = Path(__file__).parent
CNNS = ("densenet169", "efficientnet-lite0", "nasnet-mobile", "resnet152", "resnet50")
EXTRACTORS = [*CNNS, "efficientnet-lite0-classes", "grid", "faster-rcnn"]
PHOTOGRAPHS = ("cat", "flower")
DIRECTIONS = 6


def extractor(name: str, checkpoint: Callable[[str], Path]) -> Any:
    weights: tuple[str, ...] = ()
    if name == "faster-rcnn":
        weights = (f"{name}={random_detector(checkpoint('resnet50').with_name('detector.pth'))}",)
    elif name in CNNS and name != "efficientnet-lite0":
        weights = (f"{name}={checkpoint(name)}",)
    config = FeaturesConfig(device=Device.CPU, weights=weights, min_regions=3, max_regions=3, min_score=1.0)
    return extractors([name], "images", config)[0]


def random_detector(path: Path) -> Path:
    """Return the path of torchvision's own Faster R-CNN with random weights of seed 7."""
    import torch
    from torchvision.models.detection import fasterrcnn_resnet50_fpn

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        torch.save(fasterrcnn_resnet50_fpn(weights=None, weights_backbone=None).state_dict(), path)
    return path


def numbers(value: Any) -> dict[str, Any]:
    if isinstance(value, Classes):
        return {"labels": value.labels[:5], "probabilities": rounded(value.probabilities[:5])}
    if isinstance(value, Regions):
        boxes = [rounded(box) for box in value.boxes]
        vectors = [directions(vector) for vector in value.vectors[:2]]
        return {"labels": value.labels, "boxes": boxes, "scores": rounded(value.scores), "vectors": vectors}
    return directions(value)


def directions(vector: np.ndarray) -> dict[str, Any]:
    """Return the vector's length, and how far it points into a few fixed random directions."""
    fixed = np.random.default_rng(0).normal(size=(DIRECTIONS, len(vector)))
    length = float(np.linalg.norm(vector))
    return {"dimensions": len(vector), "length": float(f"{length:.4g}"), "directions": rounded(fixed @ vector / length)}


def rounded(values: np.ndarray) -> list[float]:
    return [round(float(value), 4) for value in values]


def assert_near(found: Any, expected: Any, *, place: str) -> None:
    if isinstance(expected, dict | list):
        keys = list(expected) if isinstance(expected, dict) else range(len(expected))
        assert len(found) == len(expected), place
        for key in keys:
            assert_near(found[key], expected[key], place=f"{place}.{key}")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=0.005, abs=0.005), place
    else:
        assert found == expected, place


@pytest.mark.parametrize("name", by_size(EXTRACTORS))
def test_golden_numbers(
    name: str,
    request: pytest.FixtureRequest,
    photographs: dict[str, bytes],
    random_checkpoint: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(faster_rcnn, "SHORTER_SIDE_PX", 192)
    rows = extractor(name, random_checkpoint).extract([photographs[photograph] for photograph in PHOTOGRAPHS])
    found = dict(zip(PHOTOGRAPHS, (numbers(row[0]) for row in rows), strict=True))
    path = FOLDER / f"extractor-{name}.json"
    text = json.dumps(found, indent=1) + "\n"
    if request.config.getoption("--refresh-golden"):
        path.write_text(text, encoding="utf-8")
    assert_near(json.loads(text), json.loads(path.read_text(encoding="utf-8")), place=name)
