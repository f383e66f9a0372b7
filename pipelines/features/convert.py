"""A published network's checkpoint as an ONNX graph, perhaps in 8-bit integers: the one file that needs PyTorch for it.

    values N x 3 x H x W --> vector N x d               the mean over the cells of the last feature map
                             cells N x h x w x d        that map
                             middle N x e               means of maps in the middle, one after the other; not of all
    of_vectors, of_cells --> probabilities, cell_probabilities    of the rows with these numbers, by the classifier

Rows that are not wanted are not classified: with no number, that part of the graph costs nothing. Each row is one of a
product whose shape is always the same, so that a column does not depend on which others are wanted.

A graph is made once for each checkpoint: a lake keeps it, and a folder of this machine (`pipelines.features.weights`).
Workers read it and need no PyTorch.
"""

import json
import re
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipelines.features.catalogue import made_up_pictures
from pipelines.features.pixels import Architecture, Preprocessing, Square
from schemas.messages import ConfigError

OUTPUTS = ["vector", "cells", "probabilities", "cell_probabilities", "middle"]
PICTURES = 32
_QUANTISED = ["Conv", "Clip", "Add"]
MESSAGE_WIDTH = 160
# Names of torchvision's first checkpoints, and today's: DenseNet's `norm.1`, and Faster R-CNN's layers from the time
# when they had no activation beside them.
_RENAMED = (
    (r"(denselayer\d+\.(?:norm|relu|conv))\.([12]\.)", r"\1\2"),
    (r"(fpn\.(?:inner|layer)_blocks\.\d)\.(weight|bias)$", r"\1.0.\2"),
    (r"(rpn\.head\.conv)\.(weight|bias)$", r"\1.0.0.\2"),
)


def graph_of(architecture: Architecture, checkpoint: Path) -> bytes:
    """Return the graph of a checkpoint, which names the classes in its metadata.

    Raises:
        ConfigError: the file is no checkpoint of this architecture.
    """
    from onnx.helper import set_model_props

    network = architecture.build()
    fit_checkpoint(network, read_checkpoint(checkpoint), what=architecture.name, path=checkpoint)
    size = architecture.preprocessing.size_px
    example = (torch.zeros(2, 3, size, size), torch.arange(2), torch.arange(3))
    axes = [torch.export.Dim(name) for name in ("pictures", "vectors", "cells")]
    with warnings.catch_warnings(action="ignore"):  # of packages about one another
        program = torch.onnx.export(
            _Columns(network, architecture).eval().requires_grad_(False),
            example,
            input_names=["values", "of_vectors", "of_cells"],
            output_names=OUTPUTS if architecture.middle else OUTPUTS[:-1],
            dynamic_shapes=[{0: axis} for axis in axes],
            verbose=False,
        )
    assert program is not None
    model, graph = program.model_proto, program.model_proto.graph
    for part in (model, graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        part.ClearField("metadata_props")  # which name files of this machine
    set_model_props(model, {"classes": json.dumps(class_names())})
    return bytes(model.SerializeToString(deterministic=True))


def class_names() -> tuple[str, ...]:
    """Return ImageNet's 1,000 class names in the order of all these networks' outputs."""
    from torchvision.models import ResNet50_Weights

    return tuple(ResNet50_Weights.IMAGENET1K_V1.meta["categories"])


class _Columns(nn.Module):
    """What columns are made of (see above)."""

    def __init__(self, network: nn.Module, architecture: Architecture) -> None:
        super().__init__()
        self.network, self.cells = network, architecture.cells
        self.classifier = network.get_submodule(architecture.classifier)
        self.middle: list[Tensor] = []
        for name in architecture.middle:
            network.get_submodule(name).register_forward_hook(lambda _, __, cells: self.middle.append(cells))

    def forward(self, values: Tensor, of_vectors: Tensor, of_cells: Tensor) -> tuple[Tensor, ...]:
        self.middle.clear()
        for name in self.cells:
            values = getattr(self.network, name)(values)
        cells = F.relu(values)
        vector = cells.mean((2, 3))
        cells = cells.permute(0, 2, 3, 1)
        both = [(vector, of_vectors), (cells.flatten(0, 2), of_cells)]
        classified = [self.classifier(rows.index_select(0, numbers)).softmax(-1) for rows, numbers in both]
        means = [torch.cat([each.mean((2, 3)) for each in self.middle], 1)] if self.middle else []
        return (vector, cells, *classified, *means)


def read_checkpoint(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a PyTorch or safetensors file by their present names; no code in the file is run.

    Raises:
        ConfigError: the file is neither, or holds something other than named tensors.
    """
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            found: Any = load_file(path)
        else:
            found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        summary = str(error).partition("\n")[0]
        raise ConfigError(
            f"features.weights: {path}: expected a PyTorch or safetensors checkpoint: {summary}"
        ) from error
    for inner in ("state_dict", "model"):
        found = found.get(inner, found) if isinstance(found, Mapping) else found
    if not isinstance(found, Mapping) or not all(isinstance(tensor, Tensor) for tensor in found.values()):
        raise ConfigError(f"features.weights: {path}: expected tensors by name, found {type(found).__name__}")
    tensors = dict(found)
    for old, new in (("^module[.]", ""), *_RENAMED):
        tensors = {re.sub(old, new, name): tensor for name, tensor in tensors.items()}
    return tensors


def fit_checkpoint(module: nn.Module, tensors: Mapping[str, Tensor], *, what: str, path: Path) -> None:
    """Give a network the tensors of its checkpoint; each must be there, and of its shape.

    Raises:
        ConfigError: a tensor is missing, left over, or of another shape; the message names the first.
    """
    try:
        module.load_state_dict(tensors)
    except RuntimeError as error:
        first = shorten(str(error).partition(":")[2], MESSAGE_WIDTH, placeholder=" ...")
        raise ConfigError(f"features.weights: {path}: no checkpoint of {what}: {first}") from error


def quantised(graph: bytes, preprocessing: Preprocessing) -> bytes:
    """Return a graph in 8-bit integers; on one kind of processor always in the same bytes.

    The convolutions and what stands between them are quantised; the means over cells and the classifier stay in
    float32. Weights have a scale for each channel. Activations have one for each tensor, from their least and largest
    values for drawn pictures. On a processor without an instruction for such products (AVX-512 VNNI, AVX-VNNI) sums of
    two products may be cut off: its values are others, as its fingerprint is.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_static
    from onnxruntime.quantization.quant_utils import add_pre_process_metadata

    model = onnx.load_from_string(graph)
    classes = [*model.metadata_props]
    add_pre_process_metadata(model)  # says that batch normalisation is folded; else a warning is printed
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "quantised.onnx")
        quantize_static(
            model,
            path,
            _Drawn(preprocessing),
            op_types_to_quantize=_QUANTISED,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
        found = onnx.load(path)
    del found.metadata_props[:]
    found.metadata_props.extend(classes)
    return bytes(found.SerializeToString(deterministic=True))


class _Drawn:
    """Drawn pictures, one at a time, as ONNX Runtime's quantisation reads them."""

    def __init__(self, preprocessing: Preprocessing) -> None:
        squares = [preprocessing.square(picture) for picture in made_up_pictures(PICTURES)]
        pixels = [square.pixels[None] for square in squares if isinstance(square, Square)]
        none = np.arange(0)
        self.rest = iter(
            [{"values": preprocessing.values(each), "of_vectors": none, "of_cells": none} for each in pixels]
        )

    def get_next(self) -> dict[str, Any] | None:
        return next(self.rest, None)
