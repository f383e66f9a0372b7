"""What is registered: files, card, addresses; it loads and answers in an environment of the packages it names."""

import ast
import json
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Iterable
from dataclasses import replace
from importlib import metadata
from importlib.metadata import Distribution, distribution
from pathlib import Path

import lakes
import mlflow
import pytest
from packaging.requirements import Requirement
from registries import Register
from repository import ROOT

from schemas.lake import Folder
from schemas.messages import IntegrityError, MultilinkError, NotFoundError, UsageError
from training.config import LoopConfig, TrainConfig, image_tower, objective, text_tower
from training.mlflow.loading import load, open_registry
from training.mlflow.promotion import promote
from training.mlflow.registering import CODE, attach, complete, register, requirements_of, write_code
from training.mlflow.registry import champion_of_dataset, find_version, logged_model, model_names
from training.mlflow.stored import model_name
from training.mlflow.tracked_training import keep_start
from training.model import LinkModel, folder_digest
from training.promotions.record import CHAMPION, DATASET_TAG


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
    core = ("torch", "numpy", "scipy", "pyarrow", "pillow", "msgspec", "obstore", "securesystemslib")
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
    assert loaded.model.digest() == LinkModel.load(trained).digest()
    if form.startswith(("models:", "runs:")):
        assert loaded.uri == "models:/linker/1"


@pytest.mark.parametrize(
    ("uri", "error", "message"),
    [
        ("s3://bucket/model", UsageError, "expected models:/NAME/VERSION"),
        ("models:/linker/7", NotFoundError, "versions: 1; aliases: challenger = 1"),
        ("models:/linker@champion", NotFoundError, "aliases: challenger = 1"),
        ("models:/liner/1", NotFoundError, "no model 'liner' in .*; models there: linker"),
        ("nowhere/at/all", NotFoundError, "no such folder, and no model 'nowhere/at/all'"),
        (f"runs:/{'0' * 32}/model", NotFoundError, "no model of this run is registered in sqlite"),
    ],
)
def test_what_is_not_there_is_said(
    client: mlflow.MlflowClient, registered: str, uri: str, error: type[MultilinkError], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        load(uri, client)
    assert "\n" not in str(caught.value)


def test_a_registered_model_whose_files_were_changed_is_not_used(
    client: mlflow.MlflowClient, register_model: Register, trained: Path, untrained: Path, tmp_path: Path
) -> None:
    version = find_version(client, "linker", register_model(trained))
    assert version.tags["model_digest"] == folder_digest(trained)
    (stored,) = Path(logged_model(client, version).artifact_location.removeprefix("file://")).glob("data/*")
    lakes.flip_a_byte(stored / "weights.pt")
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


OWN = ("multilink", "networks", "orchestration", "pipelines", "schemas", "training")
PROGRAM = """
import json, sys
import mlflow

model = mlflow.pyfunc.load_model(sys.argv[1])
from training.linking.rows import example
from training.mlflow import loading

answers = model.predict(example(model._model_impl.linker.model))
found = {"sentences": [len(row) for row in answers["similarities"]], "code": loading.__file__}
found["modules"] = sorted(sys.modules)
print(json.dumps(found))
"""


def closure(requirements: Iterable[str]) -> dict[str, Distribution]:
    """Return the installed distributions that requirements name, with all that those require, by name."""
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    waiting = list(map(Requirement, requirements))
    while waiting:
        wanted = waiting.pop()
        for extra in ("", *wanted.extras):
            key = (wanted.name.lower().replace("_", "-"), extra)
            if key in seen:
                continue
            seen.add(key)
            found[key[0]] = distribution(wanted.name)
            needed = (Requirement(line) for line in found[key[0]].requires or ())
            waiting += [each for each in needed if each.marker is None or each.marker.evaluate({"extra": extra})]
    return found


def environment_of(requirements: Iterable[str], folder: Path) -> Path:
    """Make an environment that holds these packages and no other; return its Python."""
    venv.create(folder, with_pip=False, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    for found in closure(requirements).values():
        for file in found.files or ():
            top = file.parts[0]
            source = Path(str(found.locate_file(top)))
            if top not in ("..", "__pycache__") and not (site / top).exists() and source.exists():
                (site / top).symlink_to(source)
    return folder / "bin" / "python"


@pytest.mark.trial  # an environment and its imports
def test_a_fine_tuned_model_loads_in_the_environment_that_it_names(client: mlflow.MlflowClient, tmp_path: Path) -> None:
    lake = lakes.write_lake(tmp_path / "lake", lakes.splits(train=3), is_rich=True)
    config = TrainConfig(
        dimensions=8,
        text=text_tower("gru", word_dimensions=4),
        image=image_tower("fine-tuned", cnn="mobilenetv3_small_050"),
    )
    lakes.untrained(config, lake, ["thing"]).save(tmp_path / "model")
    run = client.create_run(client.create_experiment("e", (tmp_path / "mlartifacts").as_uri()))
    version = register(client, tmp_path / "model", name="linker", run_id=run.info.run_id, tags={})

    stored = mlflow.pyfunc.get_model_dependencies(version.uri)
    lines = [line for line in Path(stored).read_text().splitlines() if line.strip()]
    assert any(line.startswith("timm==") for line in lines)
    assert any(line.startswith("pillow==") for line in lines)
    assert not any(line.startswith("multilink") for line in lines)  # nobody else's package can come in
    python = environment_of(lines, tmp_path / "environment")
    missing = subprocess.run([python, "-c", "import apache_beam"], capture_output=True, text=True, check=False)
    assert "No module named 'apache_beam'" in missing.stderr  # nothing else is there
    settings = {"PATH": "/usr/bin:/bin", "MLFLOW_TRACKING_URI": client.tracking_uri, "HOME": str(tmp_path)}
    command = [str(python), "-c", PROGRAM, version.uri]
    done = subprocess.run(command, env=settings, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["sentences"] and all(found["sentences"])
    assert "timm" in found["modules"] and "apache_beam" not in found["modules"]
    assert "multilink.zip/training/mlflow/loading.py" in found["code"]

    site = next((tmp_path / "environment").glob("lib/python*/site-packages"))
    for package in OWN:  # where this project is installed, its own code loads the model
        (site / package).symlink_to(ROOT / package)
    done = subprocess.run(command, env=settings, cwd=tmp_path, capture_output=True, text=True, check=True)
    installed = json.loads(done.stdout.splitlines()[-1])
    assert installed["code"] == str(site / "training" / "mlflow" / "loading.py")
    assert installed["sentences"] == found["sentences"]


def test_what_the_code_of_a_model_imports_is_named() -> None:
    """A lighter form of the trial above: imports at the top of our own modules that loading a model brings."""
    script = "import sys, training.mlflow.carried; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    files = [ROOT / f"{name.replace('.', '/')}.py" for name in done.stdout.split() if name.partition(".")[0] in CODE]
    lines = [line for file in files if file.is_file() for line in ast.parse(file.read_text(encoding="utf-8")).body]
    names = {each.name for line in lines if isinstance(line, ast.Import) for each in line.names}
    names |= {line.module or "" for line in lines if isinstance(line, ast.ImportFrom)}
    of_module = metadata.packages_distributions()
    imported = {each.lower() for name in names for each in of_module.get(name.partition(".")[0], ())}
    assert {"obstore", "torch"} <= imported
    assert imported - {"multilink-pipeline"} <= {*closure(["mlflow", *requirements_of(TrainConfig())])}


def test_each_part_names_its_packages() -> None:
    plain = requirements_of(TrainConfig())
    names = [line.partition("==")[0] for line in plain]
    assert names == ["torch", "numpy", "scipy", "pyarrow", "pillow", "msgspec", "obstore", "securesystemslib"]
    for cnn, package in (("resnet50", "timm"), ("nasnet-mobile", "pillow")):
        tuned = requirements_of(replace(TrainConfig(), image=image_tower("fine-tuned", cnn=cnn)))
        assert any(line.startswith(f"{package}==") for line in tuned)
    assert requirements_of(TrainConfig(text="sentence", objective=objective("hal"))) == plain  # type: ignore[arg-type]


def test_the_code_that_is_logged_is_the_same_for_the_same_code(tmp_path: Path) -> None:
    archives = []
    for name in "ab":
        (tmp_path / name).mkdir()
        module, archive = write_code(tmp_path / name)
        assert Path(module).read_text() == (ROOT / "training" / "mlflow" / "carried.py").read_text()
        archives.append(Path(archive).read_bytes())
    assert archives[0] == archives[1]
    with zipfile.ZipFile(tmp_path / "a" / "multilink.zip") as zipped:
        assert zipped.read("schemas/messages.py") == (ROOT / "schemas" / "messages.py").read_bytes()
