"""A registered model names what it needs: it loads and answers in an environment of those packages alone."""

import json
import subprocess
import venv
import zipfile
from collections.abc import Iterable
from dataclasses import replace
from importlib.metadata import Distribution, distribution
from pathlib import Path

import lakes
import mlflow
import pytest
from packaging.requirements import Requirement

from training.config import TrainConfig, image_tower, objective, text_tower
from training.mlflow.registering import register, requirements_of, write_code

ROOT = Path(__file__).resolve().parents[3]
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
    model = lakes.untrained(config, lake, ["thing"])
    model.save(tmp_path / "model")
    experiment = client.create_experiment("e", (tmp_path / "mlartifacts").as_uri())
    run = client.create_run(experiment)
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


def test_each_part_names_its_packages() -> None:
    plain = requirements_of(TrainConfig())
    names = [line.partition("==")[0] for line in plain]
    assert names == ["torch", "numpy", "scipy", "pyarrow", "pillow", "securesystemslib"]
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
        assert zipped.read("schemas/errors.py") == (ROOT / "schemas" / "errors.py").read_bytes()
