"""An archive of photographs in a lake, with words about them and no features; what editors could have seen of it."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from archives import Archive, write_photographs

from multilink.datasets import open_dataset
from newsroom.decisions.database import database_in, open_database
from newsroom.decisions.store import Store
from orchestration.cli import run

NAMES = ("cat", "coffee", "flower", "rocket")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    folder = tmp_path_factory.mktemp("archive")
    of_each = {"licence": "CC0-1.0", "credit": "dpa", "keywords": ["k"]}
    listed = write_photographs(folder, {name: {"title": f"A {name}", **of_each} for name in NAMES})
    build = ["build", "archive", "--lake", f"{folder}/lake", "--set", f"source.archive={listed}"]
    assert run([*build, "--set", "features.images=[]"]) == 0
    dataset = open_dataset("archive", lake=f"{folder}/lake")
    rows = dataset.table("images", split="train", columns=["hash", "source"]).to_pylist()
    images = {row["source"].removesuffix(".jpg"): row["hash"] for row in rows}
    return Archive(f"{folder}/lake", f"archive@{dataset.manifest.version}", {name: images[name] for name in NAMES})


@pytest.fixture
def log(built: Archive) -> Iterator[Store]:
    """An empty log in the lake's own database."""
    address = database_in(built.lake)
    shutil.rmtree(Path(address.removeprefix("sqlite:///")).parent, ignore_errors=True)
    with Store(open_database(address)) as opened:
        yield opened


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """`command("decisions", "list", ...)` returns the lines that a command prints."""

    def lines(*arguments: str) -> list[str]:
        capsys.readouterr()
        assert run(list(arguments)) == 0
        return capsys.readouterr().out.splitlines()

    return lines
