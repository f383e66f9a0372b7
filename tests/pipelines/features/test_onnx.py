"""Networks of a user's own: small real ones, built and run, against the same arithmetic in numpy."""

import io
import json
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tokenizers
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from pipelines.features.onnx import OnnxText, OnnxVectors
from pipelines.features.values import Rejected
from pipelines.features.weights import WeightFile
from pipelines.settings import Device, FeaturesConfig
from schemas.features import FeatureKind
from schemas.messages import ConfigError, NotFoundError

SIZE, DIMENSIONS, VOCABULARY = 32, 6, 9
RANDOM = np.random.default_rng(0)
KERNEL = RANDOM.normal(size=(DIMENSIONS, 3)).astype(np.float32)
EMBEDDING = RANDOM.normal(size=(VOCABULARY, DIMENSIONS)).astype(np.float32)
MEAN, DEVIATION = (120.0, 115.0, 100.0), (60.0, 58.0, 57.0)
CONFIG = FeaturesConfig(device=Device.CPU, threads=2)


def save(path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any], **constants: np.ndarray) -> None:
    values = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, path)


def tensor(name: str, *shape: int | str, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def write(folder: Path, name: str, sidecar: dict[str, Any]) -> dict[str, WeightFile]:
    (folder / f"{name}.json").write_text(json.dumps(sidecar))
    return {name: WeightFile(name, str(folder / f"{name}.onnx"))}


def image_tower(folder: Path, *, batch: int | str = "n", **sidecar: Any) -> dict[str, WeightFile]:
    """A 1 x 1 convolution, and the mean over places: `embedding` (N x 6), beside the places themselves."""
    save(
        folder / "tower.onnx",
        [
            helper.make_node("Conv", ["pixels", "kernel"], ["places"]),
            helper.make_node("GlobalAveragePool", ["places"], ["pooled"]),
            helper.make_node("Flatten", ["pooled"], ["embedding"]),
        ],
        [tensor("pixels", batch, 3, SIZE, SIZE)],
        [tensor("embedding", batch, DIMENSIONS), tensor("places", batch, DIMENSIONS, SIZE, SIZE)],
        kernel=KERNEL[:, :, None, None],
    )
    settings = {"output": "embedding", "size_px": SIZE, "shorter_side_px": 40, "mean": MEAN, "deviation": DEVIATION}
    return write(folder, "tower", {"kind": "vector", **settings, **sidecar})


def text_tower(folder: Path, **sidecar: Any) -> dict[str, WeightFile]:
    """An embedding of each token (`tokens`, 1 x T x 6), the mean of those that the mask has (`embedding`, 1 x 6)."""
    save(
        folder / "text.onnx",
        [
            helper.make_node("Gather", ["table", "input_ids"], ["tokens"]),
            helper.make_node("Cast", ["attention_mask"], ["weights"], to=TensorProto.FLOAT),
            helper.make_node("Unsqueeze", ["weights", "last"], ["column"]),
            helper.make_node("Mul", ["tokens", "column"], ["kept"]),
            helper.make_node("ReduceSum", ["kept", "one"], ["total"], keepdims=0),
            helper.make_node("ReduceSum", ["weights", "one"], ["count"], keepdims=1),
            helper.make_node("Div", ["total", "count"], ["embedding"]),
        ],
        [tensor("input_ids", 1, "t", kind=TensorProto.INT64), tensor("attention_mask", 1, "t", kind=TensorProto.INT64)],
        [tensor("embedding", 1, DIMENSIONS), tensor("tokens", 1, "t", DIMENSIONS)],
        table=EMBEDDING,
        last=np.array([-1]),
        one=np.array([1]),
    )
    words = {"[UNK]": 0, "a": 1, "saw": 2, "cuts": 3, "red": 4, "oak": 5, "[PAD]": 8}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    return write(folder, "text", {"kind": "text", "mask": "attention_mask", "output": "embedding", **sidecar})


def images(weights: dict[str, WeightFile], **settings: Any) -> OnnxVectors:
    return OnnxVectors("tower", ["tower"], replace(CONFIG, **settings), weights)


def texts_of(weights: dict[str, WeightFile]) -> OnnxText:
    return OnnxText("text", ["text"], CONFIG, weights)


def values(made: Any, pictures: list[bytes]) -> list[Any]:
    return [row[0] for row in made.extract(pictures)]


def expected_vectors(pictures: list[bytes], *, channels: slice = slice(None)) -> np.ndarray:
    """The mean colour of the middle, through the kernel."""
    found = []
    for picture in pictures:
        image = Image.open(io.BytesIO(picture))
        small = image.resize((round(image.width * 40 / 256), 40), Image.Resampling.BILINEAR)
        left, top = (small.width - SIZE) // 2, (40 - SIZE) // 2
        pixels = np.asarray(small)[top : top + SIZE, left : left + SIZE].reshape(-1, 3).astype(np.float64)
        found.append(KERNEL @ ((pixels.mean(0) - MEAN) / DEVIATION)[channels])
    return np.array(found)


@pytest.fixture
def pictures(photographs: dict[str, bytes]) -> list[bytes]:
    return list(photographs.values())


def test_vectors_are_the_networks(pictures: list[bytes], tmp_path: Path) -> None:
    made = images(image_tower(tmp_path))
    found = values(made, [pictures[0], b"no picture", *pictures[1:]])
    columns = [(column.kind, column.dimensions, column.name) for column in made.columns]
    assert columns == [(FeatureKind.VECTOR, DIMENSIONS, "tower")]
    assert isinstance(found.pop(1), Rejected)
    np.testing.assert_allclose(np.stack(found), expected_vectors(pictures), atol=1e-4)
    assert values(made, [pictures[2]])[0].tobytes() == found[2].tobytes()


def test_a_sidecar_sets_channels_and_length(pictures: list[bytes], tmp_path: Path) -> None:
    found = np.stack(values(images(image_tower(tmp_path, channels="bgr", normalise=True)), pictures))
    expected = expected_vectors(pictures, channels=slice(None, None, -1))
    np.testing.assert_allclose(found, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=1e-5)


@pytest.mark.parametrize(("batch", "takes_batches"), [("n", True), (1, False)])
def test_batches_are_for_networks_that_take_them(batch: int | str, takes_batches: bool, tmp_path: Path) -> None:
    made = images(image_tower(tmp_path, batch=batch))
    _ = made.network.session
    made.network.is_gpu = True
    _ = made.columns
    assert (made.batch > 1) is takes_batches


def test_texts_have_the_vectors_of_their_tower(tmp_path: Path) -> None:
    texts = ["a saw cuts red oak", "oak", "", "never seen words"]
    ids = [[1, 2, 3, 4, 5], [5], [], [0, 0, 0]]
    expected = np.array([EMBEDDING[i].mean(0) if i else np.zeros(DIMENSIONS) for i in ids])
    variants = [
        {},
        {"pad_to_max": True, "pad_id": 8, "max_tokens": 7},
        {"output": "tokens", "pooling": "mean"},
        {"output": "tokens", "pooling": "mean", "pad_to_max": True, "pad_id": 8},
    ]
    for sidecar in variants:
        made = texts_of(text_tower(tmp_path, **sidecar))
        assert made.columns[0].dimensions == DIMENSIONS
        [(found,), (none,)] = made.extract([texts, []])
        np.testing.assert_allclose(found, expected, atol=1e-6)
        assert none.shape == (0, DIMENSIONS)
    for pooling, place in (("first", 0), ("last", -1)):
        sidecar = {"output": "tokens", "pooling": pooling, "max_tokens": 4, "normalise": True}
        made = texts_of(text_tower(tmp_path, **sidecar))
        row = EMBEDDING[ids[0][:4][place]]
        np.testing.assert_allclose(made.extract([texts[:1]])[0][0][0], row / np.linalg.norm(row), atol=1e-6)


def test_fingerprints_follow_network_sidecar_and_tokenizer(tmp_path: Path) -> None:
    settings: tuple[dict[str, Any], ...] = ({}, {"normalise": True}, {"batch": 1})
    found = [images(image_tower(tmp_path, **each)).columns[0].fingerprint for each in settings]
    text = text_tower(tmp_path)
    found.append(texts_of(text).columns[0].fingerprint)
    (tmp_path / "tokenizer.json").write_text((tmp_path / "tokenizer.json").read_text().replace("oak", "ash"))
    found.append(texts_of(text).columns[0].fingerprint)
    assert len(set(found)) == len(found)
    assert images(image_tower(tmp_path, batch=1)).columns[0].fingerprint == found[2]


@pytest.mark.parametrize(
    ("sidecar", "message"),
    [
        ({"kind": "picture"}, r"tower\.json: expected an object whose `kind` is one of vector, text"),
        ({"colour": "rgb"}, r"tower\.json: unknown key 'colour'"),
        ({"mean": [1, 2]}, r"tower\.json: mean = \(1\.0, 2\.0\): three values"),
        ({"deviation": [1, 0, 1]}, "three values above 0"),
        ({"size_px": "big"}, "size_px = 'big': expected `int`"),
        ({"shorter_side_px": 10}, "shorter_side_px = 10: at least size_px, 32"),
        ({"output": "logits"}, r"its sidecar names 'logits', which the network lacks; it has embedding, places"),
        ({"output": ""}, r"its sidecar names '', which the network lacks; it has embedding, places"),
        ({"output": "places"}, r"expected 1 x d values, found 1 x 6 x 32 x 32: name an output behind the pooling"),
        ({"size_px": 16}, "the network does not run with the settings of its sidecar"),
    ],
)
def test_a_wrong_sidecar_is_one_clear_line(
    sidecar: dict[str, Any], message: str, pictures: list[bytes], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        images(image_tower(tmp_path, **sidecar)).extract(pictures[:1])


def test_missing_and_wrong_files_are_one_clear_line(tmp_path: Path) -> None:
    weights = image_tower(tmp_path)
    (tmp_path / "tower.json").write_text("{")
    with pytest.raises(ConfigError, match=r"tower\.json: expected JSON"):
        images(weights)
    (tmp_path / "tower.json").unlink()
    with pytest.raises(NotFoundError, match=r"tower: there is no .*tower\.json, and no weight 'tower/tower\.json'"):
        images(weights)
    (tmp_path / "elsewhere.json").write_text('{"kind": "text"}')
    weights["tower/tower.json"] = WeightFile("tower/tower.json", str(tmp_path / "elsewhere.json"))
    with pytest.raises(ConfigError, match=r"features\.images = 'tower': its sidecar describes a text tower"):
        images(weights)
    with pytest.raises(ConfigError, match=r"features\.sentences = 'tower': its sidecar describes a network that"):
        OnnxText("tower", ["tower"], CONFIG, image_tower(tmp_path))
    text = text_tower(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"tokenizer\.json: no tokenizer"):
        texts_of(text).extract([["a"]])
    (tmp_path / "tower.onnx").write_bytes(b"no network")
    (tmp_path / "tower.json").write_text('{"kind": "vector"}')
    with pytest.raises(ConfigError, match=r"tower\.onnx: no ONNX network"):
        _ = images({"tower": weights["tower"]}).columns
    with pytest.raises(ConfigError, match=r"onnxruntime finds no GPU here"):
        images(image_tower(tmp_path), device=Device.CUDA)


def test_an_error_of_a_sidecar_names_the_file_alone(tmp_path: Path) -> None:
    """A worker's error is read from its traceback, whose first line must say which file it is."""
    with pytest.raises(ConfigError) as caught:
        images(image_tower(tmp_path, size_px=0))
    lines = [line for line in traceback.format_exception(caught.value) if "messages.ConfigError" in line]
    [only] = [line for each in lines for line in each.splitlines() if line.startswith("schemas.messages.ConfigError")]
    assert "tower.json: size_px = 0" in only
