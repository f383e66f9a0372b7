"""`multilink index` and `multilink search` from the command line: an archive's files to ranked pictures."""

import json
import tempfile
from pathlib import Path

import pytest
import torch
from archives import write_photographs

import multilink
from orchestration.cli import run
from training.config import TrainConfig
from training.data.loading import DatasetIdentity
from training.model import LinkModel, ModelCard
from training.towers.vectors import LinearSettings, SentenceSettings

pytestmark = pytest.mark.slow  # loads two extractors for every command
SAID = {
    "cat": {"title": "A cat", "date": "2019-05-01", "credit": "dpa", "keywords": ["animal"]},
    "coffee": {"title": "Ein Kaffee", "date": "2020-01-01", "credit": "AFP"},
    "flower": {"caption": "Une fleur", "date": "2021", "licence": "CC0-1.0"},
    "rocket": {"title": "A rocket starts", "date": "2022-02-02", "place": "Florida"},
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    data = DatasetIdentity(
        dataset="x",
        version="1",
        manifest_digest="",
        image_features="efficientnet-lite0",
        image_dimensions=1280,
        sentence_features="use-multilingual",
        sentence_dimensions=512,
    )
    config = TrainConfig(dimensions=32, text=SentenceSettings(), image=LinearSettings())
    folder = tmp_path_factory.mktemp("model")
    LinkModel(ModelCard(config=config, data=data), None).save(folder)
    return folder


@pytest.fixture(scope="module")
def archive(model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Make an index of four photographs; return where it is and where its data set is."""
    folder = tmp_path_factory.mktemp("archive")
    (folder / "m.db").touch()  # a store without models
    lake, listed = folder / "lake", write_photographs(folder, SAID)
    arguments = ["index", "--lake", str(lake), "--model", str(model), "--pictures", str(listed)]
    assert run([*arguments, "--tracking-uri", f"sqlite:///{folder}/m.db"]) == 0
    (index,) = (lake / "indexes" / "archive").glob("*/model-*")
    return {"index": str(index), "lake": str(lake), "folder": str(folder), "version": index.parent.name}


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert run(["search", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def names(found: dict[str, object]) -> list[str]:
    return [each["picture"]["source"] for each in found["images"]]  # type: ignore[index,attr-defined]


def test_filters_words_and_a_picture(archive: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    index = ("--index", archive["index"])
    found = said(capsys, *index, "--caption", "x", "--where", "date>=2020", "--where", "date<2022")
    assert found["searched"] == 2 and set(names(found)) == {"coffee.jpg", "flower.jpg"}
    assert names(said(capsys, *index, "--caption", "x", "--entity", "florida")) == ["rocket.jpg"]
    assert names(said(capsys, *index, "--lead", "der kaffee", "--rank-by", "lexical")) == ["coffee.jpg"]
    picture = said(capsys, *index, "--image", f"{archive['folder']}/flower.jpg")
    assert names(picture)[0] == "flower.jpg"
    assert picture["images"][0]["similarity"] == pytest.approx(1, abs=1e-3)  # type: ignore[index]
    assert run(["search", *index, "--caption", "x"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("4 of 4 images, ranked by: visual\nrank") and "A rocket starts" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--caption", "x", "--where", "colour=red"], "no field 'colour'"),
        (["--caption", "x", "--rank-by", "luck"], "expected one of visual"),
        (["--image", "/nowhere/x.jpg"], "not-found"),
        ([], "found none"),
    ],
)
def test_a_mistake_is_one_line(
    archive: dict[str, str], arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert run(["search", "--index", archive["index"], *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_an_index_is_taken_over(archive: dict[str, str], model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = archive["folder"]
    arguments = ["index", "--lake", archive["lake"], "--model", str(model), "--dataset", "archive", "--json"]
    arguments += ["--tracking-uri", f"sqlite:///{folder}/m.db"]
    assert run(arguments) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["reused"] and found["images"] == 4 and found["described"]["title"] == 3
    assert run([*arguments[:5], "--dataset", "archive", "--pictures", "x"]) == 2


def test_a_program_searches_as_the_command_does(
    archive: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("--index", archive["index"], "--headline", "Eine  Rakete startet", "--where", "date>=2020", "--top", "2")
    told = said(capsys, *command)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = multilink.search(archive["index"], headline="Eine Rakete startet", where=["date>=2020"], top=2)
    assert isinstance(found, multilink.SearchResult) and found.searched == 3
    assert [each.picture.source for each in found.images] == names(told)
    similarities = [each["similarity"] for each in told["images"]]  # type: ignore[index,attr-defined]
    assert [each.similarity for each in found.images] == pytest.approx(similarities)
    assert {each.probability for each in found.images} == {None}  # an archive has no validation texts
    with multilink.Archive(archive["index"]) as opened:
        assert opened.search(headline="Eine Rakete startet", where=["date>=2020"], top=2) == found
        key = found.images[0].picture.image
        assert opened.search(like=[key], top=1).images[0].picture.image == key
        assert opened.search(image=f"{archive['folder']}/cat.jpg", top=1).images[0].picture.source == "cat.jpg"
        assert not list(tmp_path.rglob("*.parquet"))  # nothing is left of a query
    assert not list(tmp_path.iterdir())
