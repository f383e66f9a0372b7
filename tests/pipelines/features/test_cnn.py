"""Vectors, classes and grids of convolutional networks, against the published networks run by hand."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pipelines.features.architectures import ARCHITECTURES
from pipelines.features.cnn import CnnClasses, CnnGrid, CnnVectors
from pipelines.features.imagenet import class_names
from pipelines.features.trunk import Part, Trunk, trunk_of
from pipelines.features.values import Compute, Device, Precision, RegionLimits, Rejected
from pipelines.features.weights import WeightFile
from schemas.errors import ConfigError

LITE = "efficientnet-lite0"
ON_CPU = Compute(device=Device.CPU)
ALL_CELLS = RegionLimits(least=49, most=49)
Checkpoint = Callable[[str], Path]


@cache
def vectors(name: str = LITE, *, threads: int = 1, checkpoint: Path | None = None) -> CnnVectors:
    weights = {} if checkpoint is None else {name: WeightFile(name, str(checkpoint))}
    return CnnVectors(name, compute=Compute(device=Device.CPU, threads=threads), weights=weights)


@cache
def most_probable() -> CnnClasses:
    return CnnClasses(f"{LITE}-classes", compute=ON_CPU, weights={})


@cache
def grid(limits: RegionLimits) -> CnnGrid:
    return CnnGrid("grid", compute=ON_CPU, weights={}, regions=limits)


def rgb(picture: bytes) -> Image.Image:
    return Image.open(io.BytesIO(picture)).convert("RGB")


@pytest.fixture
def pictures(photographs: dict[str, bytes]) -> list[bytes]:
    return list(photographs.values())


def test_the_embedded_default_recognises_photographs(photographs: dict[str, bytes]) -> None:
    found = dict(zip(photographs, most_probable().extract(list(photographs.values())), strict=True))
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
    architecture = ARCHITECTURES[LITE]
    network = architecture.build().eval()
    network.load_state_dict(torch.load(architecture.packaged(), weights_only=True))
    crops = [np.asarray(rgb(p).crop(((s := rgb(p).size)[0] // 2 - 112, 16, s[0] // 2 + 112, 240))) for p in pictures]
    # rgb(p).size[0] is even but for the cat: its crop begins at (385 - 224) // 2 = 80 = 385 // 2 - 112
    batch = torch.from_numpy((np.stack(crops).astype(np.float32) - 127) / 128).permute(0, 3, 1, 2)
    with torch.inference_mode():
        pooled = network._avg_pooling(network.extract_features(batch)).flatten(1).numpy()
        probabilities = network(batch).softmax(1).numpy()
    np.testing.assert_allclose(np.stack(vectors().extract(pictures)), pooled, atol=2e-4)
    classes = most_probable().extract(pictures)
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

    network = models.get_model(name, weights=None)
    network.load_state_dict(torch.load(random_checkpoint(name), weights_only=True))
    network.eval()
    published = models.get_model_weights(name).IMAGENET1K_V1.transforms()
    images = [rgb(picture) for picture in pictures[:2]]
    if is_squashed:
        tensors = [functional.to_tensor(image.resize((224, 224), Image.Resampling.BILINEAR)) for image in images]
        batch = torch.stack([functional.normalize(t, published.mean, published.std) for t in tensors])
    else:
        batch = torch.stack([published(image) for image in images])
    classifier = network.fc if is_squashed else network.classifier
    found = torch.from_numpy(np.stack(vectors(name, checkpoint=random_checkpoint(name)).extract(pictures[:2])))
    with torch.inference_mode():
        torch.testing.assert_close(classifier(found), network(batch), rtol=2e-3, atol=2e-3)


def test_a_first_densenet_checkpoint_loads(
    random_checkpoint: Checkpoint, pictures: list[bytes], tmp_path: Path
) -> None:
    """torchvision's published file still has `norm.1` for `norm1`."""
    present = torch.load(random_checkpoint("densenet169"), weights_only=True)
    old = {re.sub(r"(denselayer\d+\.(?:norm|conv))([12])", r"\1.\2", key): value for key, value in present.items()}
    assert "features.denseblock1.denselayer1.norm.1.weight" in old
    torch.save({"state_dict": {f"module.{key}": tensor for key, tensor in old.items()}}, tmp_path / "old.pth")
    found = [
        vectors("densenet169", checkpoint=path).extract(pictures[:1])
        for path in (tmp_path / "old.pth", random_checkpoint("densenet169"))
    ]
    np.testing.assert_array_equal(*found)


def test_a_safetensors_checkpoint_loads(pictures: list[bytes], tmp_path: Path) -> None:
    from safetensors.torch import save_file

    tensors = torch.load(ARCHITECTURES[LITE].packaged(), weights_only=True)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, tmp_path / "lite.safetensors")
    found = [vectors(checkpoint=path).extract(pictures[:1]) for path in (tmp_path / "lite.safetensors", None)]
    np.testing.assert_array_equal(*found)


def test_a_value_does_not_depend_on_its_company(pictures: list[bytes]) -> None:
    alone = [vectors().extract([picture])[0].tobytes() for picture in pictures]
    for seed, threads in ((0, 1), (1, 3)):
        order = np.random.default_rng(seed).permutation(len(pictures))[: len(pictures) - seed]
        together = vectors(threads=threads).extract([pictures[place] for place in order])
        assert [vector.tobytes() for vector in together] == [alone[place] for place in order]


def test_batches_give_what_single_pictures_give_up_to_rounding(pictures: list[bytes]) -> None:
    """The path of a GPU, on this machine's CPU: full and partly filled buffers, a bad picture among good ones."""
    trunk = Trunk(
        ARCHITECTURES[LITE], WeightFile(LITE, str(ARCHITECTURES[LITE].packaged())), Compute(device=Device.CPU, batch=3)
    )
    trunk.want(Part.VECTOR, Part.LOGITS)
    mixed = [*pictures[:2], b"no picture", *pictures[2:], pictures[0]]
    batched = list(trunk._in_batches(mixed, trunk.network, {Part.VECTOR, Part.LOGITS}))
    single = trunk.look(mixed)
    assert [isinstance(seen, Rejected) for seen in batched] == [False, False, True, False, False, False]
    assert batched[2] == single[2]
    for several, one in zip(batched, single, strict=True):
        for part in () if isinstance(one, Rejected) else (Part.VECTOR, Part.LOGITS):
            np.testing.assert_allclose(several[part], one[part], atol=2e-4)


def test_a_bad_picture_loses_nothing_but_itself(pictures: list[bytes]) -> None:
    cut = pictures[0][: len(pictures[0]) // 2]
    found = vectors().extract([pictures[0], cut, b"", pictures[1]])
    assert [isinstance(value, Rejected) for value in found] == [False, True, True, False]
    assert found[1].message.startswith("corrupt-image: jpeg of ")
    np.testing.assert_array_equal(found[3], vectors().extract([pictures[1]])[0])
    assert vectors().extract([]) == []


def test_extractors_of_one_network_share_its_forward_pass(pictures: list[bytes]) -> None:
    compute = Compute(device=Device.CPU, threads=2)
    shared = {"compute": compute, "weights": {}}
    grid_of_same = CnnGrid("grid", **shared, regions=ALL_CELLS)
    extractors = [CnnVectors(LITE, **shared), CnnClasses(f"{LITE}-classes", **shared), grid_of_same]
    passes: list[int] = []
    network = trunk_of(LITE, **shared).network.module
    network._conv_stem.register_forward_hook(lambda *_: passes.append(1))
    for extractor in extractors:
        assert len(extractor.extract(pictures)) == len(pictures)
    assert len(passes) == len(pictures)
    extractors[0].extract(pictures[:1])  # of the last call
    assert len(passes) == len(pictures)


def test_cells_of_a_grid_tile_the_square_and_explain_the_picture(photographs: dict[str, bytes]) -> None:
    picture = photographs["cat"]  # 385 x 256: the square is 224 / 256 of its height
    [found] = grid(ALL_CELLS).extract([picture])
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
    np.testing.assert_allclose(found.vectors.mean(0), vectors().extract([picture])[0], atol=1e-4)
    classifier = trunk_of(LITE, compute=ON_CPU, weights={}).network.classifier
    logits = found.vectors @ classifier.weight.numpy().T + classifier.bias.numpy()
    assert found.labels == tuple(class_names()[place] for place in logits.argmax(1))


def test_limits_of_regions_choose_by_score(photographs: dict[str, bytes]) -> None:
    picture = photographs["coffee"]

    def count(**limits: float) -> int:
        return len(grid(RegionLimits(**limits)).extract([picture])[0].labels)

    sure = int((grid(ALL_CELLS).extract([picture])[0].scores >= 0.9).sum())
    assert 10 < sure < 36
    assert count(least=10, most=49, score=0.9) == sure
    assert count(least=36, most=36, score=0.9) == 36
    assert count(least=5, most=sure - 1, score=0.9) == sure - 1


def test_fingerprints_name_what_values_depend_on(random_checkpoint: Checkpoint) -> None:
    made = [
        vectors(),
        vectors("densenet169", checkpoint=random_checkpoint("densenet169")),
        most_probable(),
        grid(ALL_CELLS),
        grid(RegionLimits(most=40)),
        CnnVectors(LITE, compute=Compute(device=Device.CPU, precision=Precision.BFLOAT16), weights={}),
    ]
    assert len({extractor.fingerprint() for extractor in made}) == len(made)
    assert vectors(threads=3).fingerprint() == vectors().fingerprint()


def test_what_cannot_be_loaded_is_one_clear_line(random_checkpoint: Checkpoint, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"give --set features\.weights=resnet50=FILE, a checkpoint of resnet50"):
        vectors("resnet50")
    other = vectors("nasnet-mobile", checkpoint=random_checkpoint("densenet169"))
    with pytest.raises(ConfigError, match=r"no checkpoint of nasnet-mobile: it lacks cell_0\."):
        other.extract([])
    (tmp_path / "text.pth").write_text("not tensors")
    with pytest.raises(ConfigError, match=r"text\.pth: expected a PyTorch or safetensors checkpoint"):
        vectors(checkpoint=tmp_path / "text.pth").extract([])
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(ConfigError, match=r"expected tensors by name, found list"):
        vectors(checkpoint=tmp_path / "list.pth").extract([])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there_is_one_clear_line() -> None:
    with pytest.raises(ConfigError, match=r"features\.device = cuda: PyTorch finds no GPU here"):
        CnnVectors(LITE, compute=Compute(device=Device.CUDA), weights={})
    with pytest.raises(ConfigError, match=r"features\.precision = float16: a CPU computes in"):
        CnnVectors(LITE, compute=Compute(precision=Precision.FLOAT16), weights={})


def test_a_worker_loads_no_library_that_was_not_asked_for() -> None:
    program = (
        "import sys; from pipelines.features.cnn import CnnVectors; from pipelines.features.values import Compute;"
        "CnnVectors('efficientnet-lite0', compute=Compute(), weights={}).extract([]);"
        "print([name for name in ('torchvision', 'onnxruntime', 'tokenizers', 'timm') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert found.stdout.strip() == "[]"


def test_bfloat16_on_a_cpu_is_near_float32(pictures: list[bytes]) -> None:
    half = CnnVectors(LITE, compute=Compute(device=Device.CPU, precision=Precision.BFLOAT16), weights={}).extract(
        pictures
    )
    for vector, exact in zip(half, vectors().extract(pictures), strict=True):
        assert vector.dtype == np.float32
        assert vector @ exact / np.linalg.norm(vector) / np.linalg.norm(exact) > 0.995
