"""A workspace that is moved is mended, and one that is copied never reads the files of the first."""

import shutil
from pathlib import Path

import pytest

from schemas.errors import UsageError
from schemas.lake import Lake
from training.mlflow.loading import load
from training.mlflow.registering import register
from training.mlflow.runs import connect, experiment_id
from training.mlflow.stored import relocate


def write_workspace(folder: Path, template: Path, registry_lake: Lake, model: Path) -> str:
    """Register a model in a workspace with a lake of its own, as training does; return the store's URI."""
    folder.mkdir()
    shutil.copy(template, folder / "mlflow.db")
    client = connect(f"sqlite:///{folder}/mlflow.db")
    experiment = experiment_id(client, "multilink-synthetic")
    run = client.create_run(experiment, tags={"lake": f"{folder}/lake"})
    client.log_text(run.info.run_id, "kept", "note.txt")
    tags = {"dataset": "synthetic", "dataset_version": "v1", "lake": f"{folder}/lake", "elsewhere": "/other/lake"}
    register(client, model, name="linker", run_id=run.info.run_id, tags=tags)
    return client.tracking_uri


@pytest.mark.parametrize("name", ["moved", "moved with a space"])
def test_a_moved_workspace_is_said_and_mended(
    tmp_path: Path, template: Path, registry_lake: Lake, trained: Path, name: str
) -> None:
    write_workspace(tmp_path / "first", template, registry_lake, trained)
    (tmp_path / "first").rename(tmp_path / name)
    uri = f"sqlite:///{tmp_path}/{name}/mlflow.db"
    with pytest.raises(UsageError, match=r"was moved or copied from .*/first, .* multilink relocate --tracking-uri"):
        connect(uri)
    was, paths = relocate(uri)
    assert was == str(tmp_path / "first") and paths >= 6
    client = connect(uri)
    loaded = load("models:/linker/1", client)
    assert loaded.version is not None and loaded.version.tags["lake"] == f"{tmp_path}/{name}/lake"
    assert loaded.version.tags["elsewhere"] == "/other/lake"
    note = client.download_artifacts(str(loaded.version.run_id), "note.txt", str(tmp_path))
    assert Path(note).read_text() == "kept"
    with pytest.raises(UsageError, match="was not moved"):
        relocate(uri)


def test_a_copy_reads_its_own_files(tmp_path: Path, template: Path, registry_lake: Lake, trained: Path) -> None:
    first = write_workspace(tmp_path / "first", template, registry_lake, trained)
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    (tmp_path / "link").symlink_to(tmp_path / "first")
    connect(f"sqlite:///{tmp_path}/link/mlflow.db")  # the same folder by another name
    with pytest.raises(UsageError, match="was moved or copied"):
        connect(f"sqlite:///{tmp_path}/second/mlflow.db")
    relocate(f"sqlite:///{tmp_path}/second/mlflow.db")
    for path in (tmp_path / "first" / "mlartifacts").rglob("weights.pt"):
        path.unlink()
    assert load("models:/linker/1", connect(f"sqlite:///{tmp_path}/second/mlflow.db")).version is not None
    with pytest.raises(Exception, match="expected the files that were saved"):
        load("models:/linker/1", connect(first))


def test_other_stores_have_no_paths() -> None:
    with pytest.raises(UsageError, match="expected a database in a file"):
        relocate("http://127.0.0.1:5000")
