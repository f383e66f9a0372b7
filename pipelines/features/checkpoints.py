"""Checkpoints of published networks: reading their tensors, and giving them to a network. Needs PyTorch."""

import re
from collections.abc import Mapping
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch
from torch import Tensor, nn

from schemas.errors import ConfigError

MESSAGE_WIDTH = 160
# Names of torchvision's first checkpoints, and today's: DenseNet's `norm.1`, and Faster R-CNN's layers from the time
# when they had no activation beside them.
_RENAMED = (
    (r"(denselayer\d+\.(?:norm|relu|conv))\.([12]\.)", r"\1\2"),
    (r"(fpn\.(?:inner|layer)_blocks\.\d)\.(weight|bias)$", r"\1.0.\2"),
    (r"(rpn\.head\.conv)\.(weight|bias)$", r"\1.0.0.\2"),
)


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
