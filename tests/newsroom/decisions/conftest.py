"""An archive of photographs in a lake, with words about them and no features; what editors could have seen of it."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from multilink.datasets import open_dataset
from newsroom.decisions.database import database_in, open_database
from newsroom.decisions.records import Ranking, ShownPicture
from newsroom.decisions.store import Store
from orchestration.cli import run

PHOTOGRAPHS = Path(__file__).parents[2] / "fixtures" / "photographs"
NAMES = ("cat", "coffee", "flower", "rocket")
TEXTS = {"headline": "Eine Rakete startet", "caption": "Die Rakete über Florida", "body": "Sie flog.\nSie kam an."}


@dataclass(frozen=True, slots=True)
class Archive:
    lake: str
    dataset: str
    images: dict[str, str]  # name -> content hash

    def shown(self, texts: dict[str, str] = TEXTS, **values: object) -> Ranking:
        pictures = tuple(ShownPicture(image=image, score=0.5) for image in self.images.values())
        known = {"models": ("models:/m/1",), "pictures": pictures, "dataset": self.dataset, "language": "de"}
        return Ranking(texts=texts, **known | values)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    folder = tmp_path_factory.mktemp("archive")
    lines = []
    for name in NAMES:
        shutil.copy(PHOTOGRAPHS / f"{name}.jpg", folder)
        said = {"title": f"A {name}", "licence": "CC0-1.0", "credit": "dpa", "keywords": ["k"]}
        lines.append(json.dumps({"id": name, "image": f"{name}.jpg", **said}) + "\n")
    (folder / "archive.jsonl").write_text("".join(lines))
    build = ["build", "archive", "--lake", f"{folder}/lake", "--set", f"source.archive={folder}/archive.jsonl"]
    assert run([*build, "--set", "features.images=[]"]) == 0
    dataset = open_dataset("archive", lake=f"{folder}/lake")
    rows = dataset.table("images", split="train", columns=["hash", "source"]).to_pylist()
    images = {row["source"].removesuffix(".jpg"): row["hash"] for row in rows}
    reference = f"archive@{dataset.manifest.version}"
    return Archive(f"{folder}/lake", reference, {name: images[name] for name in NAMES})


@pytest.fixture
def log(built: Archive) -> Iterator[Store]:
    """An empty log in the lake's own database."""
    address = database_in(built.lake)
    path = Path(address.removeprefix("sqlite:///"))
    for file in path.parent.glob("*") if path.parent.is_dir() else ():
        file.unlink()
    with Store(open_database(address)) as opened:
        yield opened


Multilink = Callable[..., list[str]]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Multilink:
    """`command("decisions", "list", ...)` returns the lines that a command prints."""

    def lines(*arguments: str) -> list[str]:
        capsys.readouterr()
        assert run(list(arguments)) == 0
        return capsys.readouterr().out.splitlines()

    return lines
