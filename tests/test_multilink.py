"""What programs import: from own documents to links, in Python alone."""

import base64
import io
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from coloured_shapes import write_documents
from PIL import Image

import multilink
from orchestration.inference.documents import link_file
from schemas.messages import UsageError
from training.linking.records import PredictedLink

PHOTOGRAPHS = Path(__file__).parent / "fixtures" / "photographs"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Path:
    """Return a folder with sixteen documents and an empty store."""
    folder = tmp_path_factory.mktemp("own")
    shutil.copy(template, folder / "mlflow.db")
    return write_documents(folder, count=16, trained=12).parent


@pytest.fixture(scope="module")
def trained(workspace: Path) -> dict[str, str]:
    """Return the addresses of models of them by recipe, registered in the folder."""
    where = {"lake": str(workspace / "lake"), "tracking_uri": f"sqlite:///{workspace}/mlflow.db"}
    source = f"source.documents={workspace}/documents.jsonl"
    assert multilink.build("documents", lake=where["lake"], settings=[source])["splits"]["train"]["documents"] == 12
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
    link_file(trained[name], str(workspace / "one.jsonl"), output, tracking=store, say=print)
    expected = {(row["sentence"], row["image"]): row["similarity"] for row in pq.read_table(output).to_pylist()}
    paths = [workspace / image["path"] for image in record["images"]]
    with multilink.load(trained[name], tracking_uri=store) as model:
        links = model.link(record["sentences"], paths)
        matrix = model.similarity(record["sentences"], [path.read_bytes() for path in paths])
        again = model.similarity(record["sentences"], [Image.open(path) for path in paths])
        named = {(link.text, link.source) for link in links}
        assert named <= {(text, str(path)) for text in record["sentences"] for path in paths}
        with pytest.raises(UsageError, match=f"not-found: {workspace}/none.png: no such file"):
            model.link(["A ball."], [workspace / "none.png"])
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
    sentences = [" ", "A rocket stands on its launch pad.", "A cat looks into the camera."]
    paths = [Path(shutil.copy(PHOTOGRAPHS / name, tmp_path)) for name in ("cat.jpg", "rocket.jpg")]
    paths.insert(1, tmp_path / "dead.jpg")
    with multilink.load("class-names") as model:
        found = model.link(sentences, paths)
        links = {(link.sentence, link.image): link.similarity for link in found}
        matrix = model.similarity(sentences, paths)
        record = {"id": "a#1", "sentences": sentences, "images": [path.name for path in paths]}
        (tmp_path / "new.jsonl").write_text(json.dumps(record) + "\n")
        (of_file,) = model.link_documents(tmp_path / "new.jsonl")
    assert links.keys() == {(1, 2), (2, 0)}, "numbers are those of the lists that were given"
    assert [(link.text, link.source) for link in found] == [(sentences[s], str(paths[i])) for s, i in links]
    assert {str(each.reason) for each in found.left_out} == {"empty-sentence", "not-found"}
    assert [str(each.reason) for each in of_file.left_out] == [str(each.reason) for each in found.left_out]
    assert (of_file.document, [(link.sentence, link.image) for link in of_file]) == ("a#1", list(links))
    assert np.isnan(matrix[0]).all() and np.isnan(matrix[:, 1]).all()
    assert all(matrix[pair] == pytest.approx(similarity) for pair, similarity in links.items())
    link_file("class-names", "new.jsonl", tmp_path / "links.parquet", say=print)
    rows = pq.read_table(tmp_path / "links.parquet").to_pylist()
    assert {(row["sentence"], row["image"]): row["similarity"] for row in rows} == pytest.approx(links, abs=1e-6)
    assert {path.name for path in tmp_path.iterdir()} == {
        "cat.jpg", "rocket.jpg", "new.jsonl", "links.parquet", "links.failures.parquet",
    }  # fmt: skip


@pytest.mark.slow
def test_a_version_is_read_as_arrow_and_as_tensors(workspace: Path, trained: dict[str, str]) -> None:
    lake, store = str(workspace / "lake"), f"sqlite:///{workspace}/mlflow.db"
    data = multilink.open_dataset("documents", lake=lake)
    assert data.splits == ["train", "val"]
    ids = data.table("documents", split="train", columns=["id"])["id"].to_pylist()
    assert sorted(ids) == sorted(f"d{number}" for number in range(12))
    name = "features.efficientnet-lite0"
    batches = list(data.batches("images", split="train", columns=["hash", name], rows=10))
    assert [len(batch["hash"]) for batch in batches] == [10, 10, 10, 6]
    assert (batches[0][name].shape, batches[0][name].dtype) == ((10, 1280), torch.float32)
    scores = multilink.evaluate(trained["tiny"], "documents", lake=lake, split="val", tracking_uri=store)
    assert scores["documents"] == 4 and 0 <= scores["auc"]["mean"] <= 100
    with pytest.raises(UsageError, match="no data set 'other'"):
        multilink.open_dataset("other", lake=lake)


@pytest.fixture(scope="module")
def stored(workspace: Path, trained: str) -> tuple[multilink.Dataset, dict[str, dict[str, Any]], dict[str, Any]]:
    """The data set, and documents by id and pictures by hash of its training split as the files have them."""
    data = multilink.open_dataset("documents", lake=str(workspace / "lake"))
    folder = Path(data.folder.uri)
    documents, pictures = (pq.read_table(folder / name / "train").to_pylist() for name in ("documents", "images"))
    return data, {row["id"]: row for row in documents}, {row["hash"]: row for row in pictures}


def pixels(jpeg: bytes) -> np.ndarray[Any, Any]:
    return np.asarray(Image.open(io.BytesIO(jpeg)).convert("RGB"))


@pytest.mark.slow
def test_a_version_is_a_hugging_face_data_set_with_decoded_pictures(
    stored: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets", reason="Hugging Face datasets is not installed")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    data, documents, pictures = stored
    assert repr(data) == f"<multilink.Dataset documents@{data.manifest.version}: train 12, val 4 documents>"
    found = data.huggingface("train")
    assert isinstance(found, datasets.Dataset) and len(found) == 12
    for row in found:
        expected = documents[row["id"]]
        assert row["links"] == expected["links"]
        assert [sentence["text"] for sentence in row["sentences"]] == [each["text"] for each in expected["sentences"]]
        for picture, image in zip(row["images"], expected["images"], strict=True):
            np.testing.assert_array_equal(np.asarray(picture.convert("RGB")), pixels(pictures[image["hash"]]["jpeg"]))
    assert data.huggingface("train").cache_files == found.cache_files  # written once
    with pytest.raises(UsageError, match="split 'training': expected one of train, val, test"):
        data.huggingface("training")


@pytest.mark.slow
def test_a_version_is_a_data_set_of_pytorch_that_workers_share(stored: Any) -> None:
    data, documents, pictures = stored
    name = "features.efficientnet-lite0"
    found = data.torch("train", features=[name])
    assert len(found) == 12
    loader = torch.utils.data.DataLoader(found, batch_size=None, num_workers=2, multiprocessing_context="fork")
    seen = {item["id"]: item for item in loader}
    assert seen.keys() == documents.keys()
    for row in documents.values():
        item = seen[row["id"]]
        assert item["sentences"] == [each["text"] for each in row["sentences"]]
        assert item["links"].tolist() == [[link["sentence"], link["image"]] for link in row["links"]]
        shown = [pictures[image["hash"]] for image in row["images"]]
        for tensor, picture in zip(item["images"], shown, strict=True):
            np.testing.assert_array_equal(tensor.permute(1, 2, 0).numpy(), pixels(picture["jpeg"]))
        np.testing.assert_array_equal(item[name].numpy(), np.asarray([each[name] for each in shown], np.float32))


def test_a_notebook_draws_links_with_their_pictures() -> None:
    links = [
        PredictedLink("document", 0, 1, 0.75, 1, "m", text="A <red> ball."),
        PredictedLink("document", 1, 0, 0.5, 2, "m", probability=0.876, text="Another."),
        PredictedLink("document", 2, 0, 0.4, 3, "m", word="fair", text="A third."),
    ]
    drawn = multilink.Links(
        links, [Image.new("RGB", (97, 96), "blue"), "https://example.org/a.jpg?a=1&b=2"], caution="why"
    )
    assert [link.source for link in drawn] == ["https://example.org/a.jpg?a=1&b=2", None, None]
    assert drawn == [replace(links[0], source="https://example.org/a.jpg?a=1&b=2"), *links[1:]]
    assert drawn._repr_html_().endswith("</table>why")
    page = ElementTree.fromstring(drawn._repr_html_().removesuffix("why").replace('width="96">', 'width="96"/>'))
    cells = [[cell.text or cell[0].get("src") for cell in row] for row in page.findall("tr")[1:]]
    assert cells[0] == ["A <red> ball.", "https://example.org/a.jpg?a=1&b=2", "similarity 0.75"]
    assert cells[1][0::2] == ["Another.", "similarity 0.50, probability 88%"] and cells[2][2] == "similarity 0.40, fair"
    assert Image.open(io.BytesIO(base64.b64decode(cells[1][1].partition("base64,")[2]))).size == (97, 96)


def test_what_is_named_is_the_interface() -> None:
    assert dir(multilink) == sorted(multilink.__all__)
    assert multilink.__version__ == metadata.version("multilink-pipeline")
    assert [name for name in multilink.__all__ if getattr(multilink, name) is None] == []


def test_importing_the_package_imports_nothing_heavy() -> None:
    heavy = "{'torch', 'mlflow', 'ray', 'apache_beam', 'pyarrow'}"
    code = f"import sys, multilink; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        multilink.nothing  # noqa: B018
