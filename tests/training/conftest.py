import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch


def _load_lakes() -> ModuleType:
    """Return the lake factory, which lies beside this file (the tests are no package)."""
    spec = importlib.util.spec_from_file_location("training_test_lakes", Path(__file__).with_name("lakes.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def lakes() -> ModuleType:
    return _load_lakes()


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)
