"""`multilink index` and `multilink search` from the command line: an archive's files to ranked pictures."""

import json
import shutil
import tempfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from newsroom.search.queries import RawDocument
from newsroom.search.reader import PipelineReader
from orchestration.cli import run
from schemas.features import column_to_vectors
from schemas.lake import Folder
from training.config import TrainConfig
from training.data.loading import DatasetIdentity
from training.model import LinkModel, ModelCard
from training.towers.inputs import ImageInput, TextInput
from training.towers.vectors import LinearSettings, SentenceSettings

pytestmark = pytest.mark.slow  # loads two extractors for every command
PHOTOGRAPHS = Path(__file__).parents[2] / "fixtures" / "photographs"
SAID = {
    "cat.jpg": {"title": "A cat", "date": "2019-05-01", "credit": "dpa", "keywords": ["animal"]},
    "coffee.jpg": {"title": "Ein Kaffee", "date": "2020-01-01", "credit": "AFP"},
    "flower.jpg": {"caption": "Une fleur", "date": "2021", "licence": "CC0-1.0"},
    "rocket.jpg": {"title": "A rocket starts", "date": "2022-02-02", "place": "Florida"},
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
    lines = []
    for name, said in SAID.items():
        shutil.copy(PHOTOGRAPHS / name, folder / name)
        lines.append(json.dumps({"id": name, "image": name, **said}) + "\n")
    (folder / "archive.jsonl").write_text("".join(lines))
    (folder / "m.db").touch()  # a store without models
    lake = folder / "lake"
    arguments = ["index", "--lake", str(lake), "--model", str(model), "--pictures", str(folder / "archive.jsonl")]
    arguments += ["--tracking-uri", f"sqlite:///{folder}/m.db"]
    assert run(arguments) == 0
    (index,) = (lake / "indexes" / "archive").glob("*/model-*")
    return {"index": str(index), "lake": str(lake), "folder": str(folder), "version": index.parent.name}


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert run(["search", *arguments, "--json"]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def names(found: dict[str, object]) -> list[str]:
    return [each["picture"]["source"] for each in found["images"]]  # type: ignore[index,attr-defined]


@pytest.fixture(scope="module")
def by_hand(archive: dict[str, str], model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """The cosine of one German text with each picture, out of the version's own features."""
    loaded, cosines = LinkModel.load(model), {}
    reader = PipelineReader(loaded, (), Folder(str(tmp_path_factory.mktemp("reader"))))
    (given,) = reader([RawDocument((("headline", "Eine Rakete startet"),))])
    text = loaded.encode_sentences(TextInput(texts=given.texts, vectors=given.sentence_vectors))[0]
    for path in Path(archive["lake"], "datasets", "archive", archive["version"], "images").rglob("*.parquet"):
        table = pq.read_table(path)
        vectors = column_to_vectors(table.column("features.efficientnet-lite0"))
        images = loaded.encode_images(ImageInput(vectors=vectors))
        cosines |= dict(zip(table.column("source").to_pylist(), (images @ text).tolist(), strict=True))
    assert set(cosines) == set(SAID)
    return cosines


def test_an_archives_pictures_are_ranked_for_a_text(
    archive: dict[str, str], by_hand: dict[str, float], capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    found = said(capsys, "--index", archive["index"], "--headline", "Eine  Rakete startet")
    assert names(found) == sorted(by_hand, key=lambda name: -by_hand[name])
    for each in found["images"]:  # type: ignore[attr-defined]
        cosine = by_hand[each["picture"]["source"]]
        assert each["similarity"] == pytest.approx(cosine, abs=1e-5)
        assert each["probability"] is None  # an archive has no validation texts


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
    archive: dict[str, str], by_hand: dict[str, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import multilink

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    found = multilink.search(archive["index"], headline="Eine Rakete startet", where=["date>=2020"], top=2)
    assert isinstance(found, multilink.SearchResult) and found.searched == 3
    best = sorted((name for name in by_hand if name != "cat.jpg"), key=lambda name: -by_hand[name])[:2]
    assert [each.picture.source for each in found.images] == best
    with multilink.Archive(archive["index"]) as opened:
        again = opened.search(headline="Eine Rakete startet", where=["date>=2020"], top=2)
        assert again == found
        key = found.images[0].picture.image
        assert opened.search(like=[key], top=1).images[0].picture.image == key
        assert opened.search(image=f"{archive['folder']}/cat.jpg", top=1).images[0].picture.source == "cat.jpg"
        assert not list(tmp_path.rglob("*.parquet"))  # nothing is left of a query
    assert not list(tmp_path.iterdir())
