"""Options and fixtures of the whole suite: `--refresh-golden` writes the golden files anew instead of comparing."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

PHOTOGRAPHS = Path(__file__).parent / "fixtures" / "photographs"
SEED = 7


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--refresh-golden", action="store_true", help="write golden files instead of comparing")


@pytest.fixture(scope="session")
def photographs() -> dict[str, bytes]:
    """Stored pictures by name; their origins are in the folder's README."""
    return {path.stem: path.read_bytes() for path in sorted(PHOTOGRAPHS.glob("*.jpg"))}


@pytest.fixture(scope="session")
def random_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the path of a checkpoint of an architecture, with the random weights of seed 7."""

    @cache
    def make(name: str) -> Path:
        import torch

        from pipelines.features.architectures import ARCHITECTURES

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            tensors = ARCHITECTURES[name].build().state_dict()
        path = tmp_path_factory.mktemp("checkpoints") / f"{name}.pth"
        torch.save(tensors, path)
        return path

    return make
