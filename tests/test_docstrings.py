"""Examples in docstrings say what the code does: they are run."""

import doctest
import importlib
import pkgutil
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

import multilink
import training.metrics
import training.similarity
import training.text
from training.data.ragged import Ragged

NAMES = {"np": np, "torch": torch, "Ragged": Ragged}
PACKAGES = (multilink, training.metrics, training.similarity, training.text)
MODULES = sorted(
    module.name for package in PACKAGES for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
)
FOLDER = Path(__file__).parent / "fixtures" / "formats" / "0.1.0"  # has a lake
FUNCTIONS_NEED_EXAMPLES = ("training.metrics.", "training.similarity.")
HAS_NO_SMALL_INPUT = {"calibration_scores", "linked_pool", "read_calibration"}


@pytest.mark.parametrize("name", MODULES)
def test_examples_are_true(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER)
    assert doctest.testmod(importlib.import_module(name), extraglobs=NAMES).failed == 0


def test_public_functions_have_an_example() -> None:
    names = [name for name in MODULES if name.startswith(FUNCTIONS_NEED_EXAMPLES) and not name.endswith(".intervals")]
    modules = [importlib.import_module(name) for name in names]
    documented = {name: getattr(module, name).__doc__ or "" for module in modules for name in public_functions(module)}
    assert {name for name, text in documented.items() if ">>>" not in text} == HAS_NO_SMALL_INPUT


def public_functions(module: ModuleType) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if callable(value) and not isinstance(value, type) and not name.startswith("_")
        if getattr(value, "__module__", "") == module.__name__
    ]
