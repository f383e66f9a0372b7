"""A lake that was built from the recorded web, with features, and what can be asked of its bytes."""

import shutil
from pathlib import Path

import pytest
from recorded_lakes import RECORDING, RecordedWeb, built

from schemas.lake import Lake


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "lake"
    with RecordedWeb(RECORDING) as web:
        built(folder, web.port)
        built(folder, web.port, "splits.seed=1")
    return folder


@pytest.fixture
def lake(made: Path, tmp_path: Path) -> Lake:
    """A lake with two versions of `diy`."""
    return Lake.at(str(shutil.copytree(made, tmp_path / "lake")))


@pytest.fixture(autouse=True)
def _others_are_known_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.raw.LISTED_S", 0.0)


@pytest.fixture(scope="session")
def made_strictly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("strict") / "lake"
    with RecordedWeb(RECORDING) as web:
        built(folder, web.port, "documents.max_images=4")
    return folder


@pytest.fixture
def strict(made_strictly: Path, tmp_path: Path) -> Lake:
    """A lake whose one version of `diy` left out two documents of three, after their images were fetched."""
    return Lake.at(str(shutil.copytree(made_strictly, tmp_path / "strict")))
