"""What programs import: from own documents to links, in Python alone."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image, ImageDraw

import multilink
from orchestration.steps import in_process
from schemas.errors import UsageError

PHOTOGRAPHS = Path(__file__).parent / "fixtures" / "photographs"
COLOURS = ("red", "green", "blue", "yellow", "black", "white")


def picture(number: int, colour: str) -> Image.Image:
    found = Image.new("RGB", (96 + number, 96), "grey")
    ImageDraw.Draw(found).ellipse((10, 10 + number, 70, 60 + number), fill=colour)
    return found


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with sixteen documents."""
    folder = tmp_path_factory.mktemp("own")
    lines = []
    for number in range(16):
        colours = [COLOURS[(number + place) % 6] for place in range(3)]
        for place, colour in enumerate(colours):
            picture(number, colour).save(folder / f"{number}-{place}.png")
        sentences = [f"This is a {colour} ball." for colour in colours]
        images = [{"path": f"{number}-{place}.png"} for place in range(3)]
        split = "train" if number < 12 else "val"
        links = [[place, place] for place in range(3)]
        record = {"id": f"d{number}", "sentences": sentences, "images": images, "links": links, "split": split}
        lines.append(json.dumps(record))
    (folder / "documents.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def trained(workspace: Path) -> dict[str, str]:
    """Return the addresses of models of them by recipe, registered in the folder."""
    lake, store = str(workspace / "lake"), f"sqlite:///{workspace}/mlflow.db"
    built = multilink.build("documents", lake=lake, settings=[f"source.documents={workspace}/documents.jsonl"])
    assert built["splits"]["train"]["documents"] == 12
    where = {"lake": lake, "tracking_uri": store}
    settings = {"tiny": ["training.epochs=2"], "closed-form": ["link.names=0.4"]}
    done = {name: multilink.train("documents", recipe=name, settings=own, **where) for name, own in settings.items()}
    assert done["closed-form"]["evaluation"]["baselines"].keys() >= {"class-names"}
    return {name: str(each["model_uri"]) for name, each in done.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiny", "closed-form"])
def test_a_model_links_raw_texts_and_pictures_as_the_command_does(
    workspace: Path, trained: dict[str, str], name: str
) -> None:
    """With the closed form's steps at link time, too."""
    record = json.loads((workspace / "documents.jsonl").read_text().splitlines()[0])
    store, output = f"sqlite:///{workspace}/mlflow.db", workspace / "links.parquet"
    (workspace / "one.jsonl").write_text(json.dumps(record) + "\n")
    files = ["--input", str(workspace / "one.jsonl"), "--output", str(output), "--tracking-uri", store]
    in_process(["link", "--model", trained[name], *files, "--json"], print)
    expected = {(row["sentence"], row["image"]): row["similarity"] for row in pq.read_table(output).to_pylist()}
    paths = [workspace / image["path"] for image in record["images"]]
    with multilink.load(trained[name], tracking_uri=store) as model:
        links = model.link(record["sentences"], paths)
        matrix = model.similarity(record["sentences"], [path.read_bytes() for path in paths])
        again = model.similarity(record["sentences"], [Image.open(path) for path in paths])
        assert {(link.sentence, link.image): link.similarity for link in links} == pytest.approx(expected, abs=1e-6)
        assert all(matrix[link.sentence, link.image] == pytest.approx(link.similarity, abs=1e-6) for link in links)
        assert np.allclose(matrix, again, atol=1e-6)
        with pytest.raises(UsageError, match="not-an-image"):
            model.link(["A ball."], [b"no picture"])
        assert model.similarity(["A ball.", " "], [paths[0], paths[0]]).shape == (2, 2)
        with pytest.raises(UsageError, match="roles: expected 1"):
            model.link(["A ball."], paths, roles=[])


def test_class_names_link_with_nothing_built_trained_or_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Photographs of a cat and a rocket go with the sentences that name them, in Python and by the command alike."""
    monkeypatch.chdir(tmp_path)
    sentences = ["A rocket stands on its launch pad.", "A cat looks into the camera."]
    paths = [Path(shutil.copy(PHOTOGRAPHS / name, tmp_path)) for name in ("cat.jpg", "rocket.jpg")]
    with multilink.load("class-names") as model:
        links = {(link.sentence, link.image): link.similarity for link in model.link(sentences, paths)}
        matrix = model.similarity(sentences, paths)
    assert links.keys() == {(0, 1), (1, 0)}
    assert all(matrix[pair] == pytest.approx(similarity) for pair, similarity in links.items())
    record = {"id": "a", "sentences": sentences, "images": [{"path": path.name} for path in paths]}
    (tmp_path / "new.jsonl").write_text(json.dumps(record) + "\n")
    in_process(["link", "--model", "class-names", "--input", "new.jsonl", "--output", "links.parquet", "--json"], print)
    rows = pq.read_table(tmp_path / "links.parquet").to_pylist()
    assert {(row["sentence"], row["image"]): row["similarity"] for row in rows} == pytest.approx(links, abs=1e-6)
    assert {path.name for path in tmp_path.iterdir()} == {"cat.jpg", "rocket.jpg", "new.jsonl", "links.parquet"}


@pytest.mark.slow
def test_a_version_is_read_as_arrow_and_as_tensors(workspace: Path, trained: dict[str, str]) -> None:
    lake, store = str(workspace / "lake"), f"sqlite:///{workspace}/mlflow.db"
    data = multilink.open_dataset("documents", lake=lake)
    assert data.splits == ["train", "val"]
    documents = data.table("documents", split="train", columns=["id"])
    assert sorted(documents["id"].to_pylist()) == sorted(f"d{number}" for number in range(12))
    name = "features.efficientnet-lite0"
    batches = list(data.batches("images", split="train", columns=["hash", name], rows=10))
    assert [len(batch["hash"]) for batch in batches] == [10, 10, 10, 6]
    vectors = batches[0][name]
    assert isinstance(vectors, torch.Tensor) and vectors.shape == (10, 1280) and vectors.dtype == torch.float32
    scores = multilink.evaluate(trained["tiny"], "documents", lake=lake, split="val", tracking_uri=store)
    assert scores["documents"] == 4 and 0 <= scores["auc"]["mean"] <= 100
    with pytest.raises(UsageError, match="no data set 'other'"):
        multilink.open_dataset("other", lake=lake)


def test_importing_the_package_imports_nothing_heavy() -> None:
    heavy = "{'torch', 'mlflow', 'ray', 'apache_beam', 'pyarrow'}"
    code = f"import sys, multilink; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        multilink.nothing  # noqa: B018
