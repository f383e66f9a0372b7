import sys
import tempfile
from importlib import metadata
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest
from registries import Register

from schemas.errors import IntegrityError, NotFoundError, UsageError
from schemas.lake import Folder
from training.config import LoopConfig, TrainConfig
from training.data.documents import GivenDocument
from training.mlflow.loading import load, open_registry
from training.mlflow.promotion import promote
from training.mlflow.registering import attach, complete
from training.mlflow.registry import champion_of_dataset, find_version, logged_model, model_names
from training.mlflow.stored import model_name
from training.mlflow.tracked_training import keep_start
from training.model import LinkModel, folder_digest
from training.promotions.record import CHAMPION, DATASET_TAG


def _documents(model: LinkModel) -> list[GivenDocument]:
    """Documents of different sizes, one without images, one with nothing."""
    data = model.card.data
    numbers = np.random.default_rng(0)
    return [
        GivenDocument(
            texts=["text"] * n,
            sentence_vectors=numbers.normal(size=(n, data.sentence_dimensions)).astype(np.float32),
            image_vectors=numbers.normal(size=(m, data.image_dimensions)).astype(np.float32),
        )
        for n, m in ((3, 2), (1, 4), (2, 0), (0, 0))
    ]


def _frame(documents: list[GivenDocument]) -> pd.DataFrame:
    rows = []
    for document in documents:
        vectors = {
            "sentence_vectors": document.sentence_vectors.astype(float).tolist(),
            "image_vectors": document.image_vectors.astype(float).tolist(),
        }
        rows.append({"sentences": list(document.texts)} | vectors)
    return pd.DataFrame(rows)


def test_pyfunc_gives_the_models_similarities_also_for_ragged_and_empty_documents(
    client: mlflow.MlflowClient, register_model: Register, trained: Path
) -> None:
    version = register_model(trained)
    model = LinkModel.load(trained)
    documents = _documents(model)
    found = mlflow.pyfunc.load_model(f"models:/linker/{version}").predict(_frame(documents))
    assert set(found["model"]) == {f"models:/linker/{version}"}
    for cell, expected in zip(found["similarities"], model.similarities(model.read(documents)), strict=True):
        assert len(cell) == len(expected)
        if expected.size:
            np.testing.assert_allclose(cell, expected, rtol=0, atol=1e-6)


def test_registering_leaves_nothing_where_modules_are_looked_for(client: mlflow.MlflowClient, registered: str) -> None:
    client.create_experiment("other")  # so that no version is put back that another test registered
    before = list(sys.path)
    assert sys.path == before


def test_signature_and_requirements(client: mlflow.MlflowClient, register_model: Register, trained: Path) -> None:
    uri = f"models:/linker/{register_model(trained)}"
    info = mlflow.models.get_model_info(uri)
    assert [column["name"] for column in info.signature.inputs.to_dict()] == [
        "sentences",
        "sentence_vectors",
        "image_vectors",
    ]
    assert [column["name"] for column in info.signature.outputs.to_dict()] == [
        "read", "similarities", "links", "model", "caution",
    ]  # fmt: skip
    links = next(column for column in info.signature.outputs.to_dict() if column["name"] == "links")
    fields = links["items"]["properties"]
    assert [name for name, field in fields.items() if field["required"]] == ["image", "sentence", "similarity"]
    assert fields["relations"] == {"type": "map", "values": {"type": "double"}, "required": False}
    requirements = Path(mlflow.artifacts.download_artifacts(uri + "/requirements.txt")).read_text().split()
    assert requirements[0].partition("=")[0] == "mlflow"
    core = ("torch", "numpy", "scipy", "pyarrow", "pillow", "securesystemslib")
    assert requirements[1:] == [f"{package}=={metadata.version(package)}" for package in core]


def test_a_version_carries_its_card_and_what_is_attached_later(
    client: mlflow.MlflowClient, registered: str, trained: Path, tmp_path: Path
) -> None:
    version = find_version(client, "linker", "1")
    data = LinkModel.load(trained).card.data
    assert version.tags["dataset_digest"] == data.manifest_digest
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "index.html").write_text("<p>87 AUC</p>")
    attach(client, version, tmp_path / "report" / "index.html", "report")
    folder = Path(mlflow.artifacts.download_artifacts(version.uri, dst_path=str(tmp_path / "found")))
    assert {"MLmodel", "python_env.yaml", "conda.yaml", "requirements.txt", "input_example.json", "data", "code"} <= {
        path.name for path in folder.iterdir()
    }
    assert (folder / "report" / "index.html").read_text() == "<p>87 AUC</p>"
    card = (folder / "model_card.md").read_text()
    for fact in (f"`{data.manifest_digest}`", "`synthetic@v1`", f"run `{version.run_id}`", metadata.version("torch")):
        assert fact in card
    assert "| objective.similarity.name | `ap` |" in card


@pytest.mark.parametrize(
    "form",
    ["models:/linker/1", "models:/linker@challenger", "runs:/{run}/model", "{folder}", "{downloaded}"],
)
def test_every_address_loads_the_same_weights(
    client: mlflow.MlflowClient, registered: str, trained: Path, tmp_path: Path, form: str
) -> None:
    run, downloaded = find_version(client, "linker", "1").run_id, ""
    if "downloaded" in form:
        downloaded = mlflow.artifacts.download_artifacts(f"runs:/{run}/model", dst_path=str(tmp_path / "downloaded"))
    loaded = load(form.format(run=run, folder=trained, downloaded=downloaded), client)
    expected = LinkModel.load(trained).state_dict()
    for name, weights in loaded.model.state_dict().items():
        assert weights.equal(expected[name])
    if form.startswith(("models:", "runs:")):
        assert loaded.uri == "models:/linker/1"


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("models:/linker/7", "versions: 1; aliases: challenger = 1"),
        ("models:/linker@champion", "aliases: challenger = 1"),
        ("models:/liner/1", "no model 'liner' in .*; models there: linker"),
        ("nowhere/at/all", "no such folder, and no model 'nowhere/at/all'"),
        (f"runs:/{'0' * 32}/model", "no model of this run is registered in sqlite"),
    ],
)
def test_what_is_not_there_is_said(client: mlflow.MlflowClient, registered: str, uri: str, message: str) -> None:
    with pytest.raises(NotFoundError, match=message) as caught:
        load(uri, client)
    assert "\n" not in str(caught.value)


def test_an_address_of_no_known_form(client: mlflow.MlflowClient) -> None:
    with pytest.raises(UsageError, match="expected models:/NAME/VERSION"):
        load("s3://bucket/model", client)


def test_a_registered_model_whose_files_were_changed_is_not_used(
    client: mlflow.MlflowClient, register_model: Register, trained: Path, untrained: Path, tmp_path: Path
) -> None:
    version = find_version(client, "linker", register_model(trained))
    assert version.tags["model_digest"] == folder_digest(trained)
    (stored,) = Path(logged_model(client, version).artifact_location.removeprefix("file://")).glob("data/*")
    kept = (stored / "weights.pt").read_bytes()
    (stored / "weights.pt").write_bytes(kept[:-50] + bytes([kept[-50] ^ 1]) + kept[-49:])
    for use in (
        lambda: load("models:/linker/1", client),
        lambda: promote(client, "linker", "1", say=print),
    ):
        with pytest.raises(IntegrityError, match=r"found others: weights\.pt"):
            use()
    for file in untrained.iterdir():  # a whole model, but another one
        (stored / file.name).write_bytes(file.read_bytes())
    with pytest.raises(IntegrityError, match="expected the model that was recorded"):
        load("models:/linker/1", client)
    assert "champion" not in client.get_registered_model("linker").aliases


def test_nothing_that_was_downloaded_is_left(
    client: mlflow.MlflowClient,
    registered: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    load("models:/linker/1", client)
    with pytest.raises(NotFoundError):
        load("models:/linker/7", client)
    keep_start(TrainConfig(training=LoopConfig(start_from=("models:/linker/1",))), Folder(str(tmp_path / "run")))
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("spelling", ["cross+intra", "intra+cross", "intra-document+cross-document"])
def test_an_objective_has_one_name(spelling: str) -> None:
    assert model_name("my-data", spelling) == "multilink-my-data-cross-document+intra-document"


def test_who_reads_models_makes_no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for models in (None, ["models:/x/1"], [str(tmp_path), "x"]):
        with pytest.raises(NotFoundError, match=r"mlflow\.db: no runs and models are there; train a model"):
            open_registry(None, models)
    assert not (tmp_path / "mlflow.db").exists()


def test_a_folder_needs_no_store_to_be_there(tmp_path: Path) -> None:
    assert open_registry(f"sqlite:///{tmp_path}/own.db", [str(tmp_path)]).search_registered_models() == []


def test_all_pages_of_a_registry_are_read(client: mlflow.MlflowClient) -> None:
    names = [f"model-{number:03}" for number in range(120)]  # MLflow gives 100 a page
    for name in names:
        client.create_registered_model(name)
    assert model_names(client) == names


def test_a_registration_is_repeated_to_its_end_and_an_older_version_never_overtakes(
    client: mlflow.MlflowClient, register_model: Register, trained: Path
) -> None:
    """Its driver died between the version and what follows it."""
    first, second = register_model(trained), register_model(trained)
    client.delete_registered_model_alias("linker", "challenger")
    client.update_model_version("linker", first, "")
    complete(client, find_version(client, "linker", first))
    assert client.get_registered_model("linker").aliases == {"challenger": int(second)}
    assert "linker" in client.get_model_version("linker", first).description


def test_a_model_that_was_trained_on_two_data_sets_is_the_champion_of_one(client: mlflow.MlflowClient) -> None:
    client.create_registered_model("shared")
    for dataset in ("first", "second"):
        client.create_model_version("shared", "s3://bucket/model", tags={DATASET_TAG: dataset})
    client.set_registered_model_alias("shared", CHAMPION, "2")
    assert champion_of_dataset(client, "second") == "shared"
    with pytest.raises(NotFoundError, match="no champion of 'first'"):
        champion_of_dataset(client, "first")
