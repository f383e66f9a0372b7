"""A store in a file is read without MLflow: the same as MLflow says, and nothing heavy is imported for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import mlflow
import pytest

from schemas.errors import NotFoundError, UsageError
from training.mlflow.champions import change_champion, record_of
from training.mlflow.registry import registered
from training.mlflow.runs import LAKE_TAG
from training.mlflow.stored import check_model, stored_model

NAME = "multilink-diy-cross-document+intra-document"


@pytest.fixture
def store(client: mlflow.MlflowClient, tmp_path: Path) -> mlflow.MlflowClient:
    """A registry with a model of four versions, one of them deleted, and a log of champions of an earlier release."""
    for name in (NAME, f"{NAME}.champions"):
        client.create_registered_model(name)
    for number in range(4):
        tags = {LAKE_TAG: str(tmp_path / "lake"), "number": str(number)}
        client.create_model_version(NAME, source=str(tmp_path), tags=tags)
    client.delete_model_version(NAME, "2")
    client.set_registered_model_alias(NAME, "challenger", "4")
    created = str(client.get_registered_model(NAME).creation_timestamp)
    for follows, line in (("0", "1"), ("1", "3 1"), ("1", "4 1")):
        own = {"follows": follows, "line": line, "token": line, "decision": "{}", "model_created": created}
        client.create_model_version(f"{NAME}.champions", str(tmp_path), tags=own)
    return client


def test_a_store_in_a_file_says_what_mlflow_says(store: mlflow.MlflowClient) -> None:
    for _ in range(2):
        for spelling in (NAME, "multilink-diy-cross+intra"):
            found = stored_model(store.tracking_uri, spelling)
            assert found == registered(store, spelling)
            assert found is not None and set(found.versions) == {"1", "3", "4"}
        record = record_of(store, NAME)
        assert record.changes[2].champions == ("3", "1")
        change_champion(store, NAME, record.current, ("4", *record.current.champions), decision={})
    assert found is not None and found.aliases == {"champion": "4", "previous_champion": "3", "challenger": "4"}


def test_what_is_not_there_is_found_before_mlflow_is_imported(store: mlflow.MlflowClient, tmp_path: Path) -> None:
    uri = store.tracking_uri
    for address, error in (
        ("linker", f"--model linker: no such folder, and no model 'linker' in {uri}; models there: {NAME}; expected"),
        ("models:/linker/1", f"no model 'linker' in {uri}; models there: {NAME}"),
        (f"models:/{NAME}/2", f"no version '2' of model '{NAME}'; versions: 1, 3, 4; aliases: challenger = 4"),
        (NAME, f"--model {NAME}: no such folder, and no version 'champion' of model"),
    ):
        with pytest.raises(NotFoundError) as caught:
            check_model(uri, address)
        assert str(caught.value).startswith(error)
    for address in (f"models:/{NAME}/1", f"models:/{NAME}@challenger", "class-names", "0" * 32, str(tmp_path)):
        check_model(uri, address)
    check_model(f"sqlite:///{tmp_path}/none.db", "linker")  # that is another mistake
    (tmp_path / "other.db").write_text("no database")
    assert stored_model(f"sqlite:///{tmp_path}/other.db", "linker") is None
    assert stored_model("http://127.0.0.1:1", "linker") is None
    store.create_experiment("here", tags={"multilink.folder": "/elsewhere"})
    with pytest.raises(UsageError, match="was moved or copied from /elsewhere"):
        check_model(uri, "linker")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["promotions", NAME], 0),
        (["promotions", "linker"], 2),
        (["rollback", "--model", "linker"], 2),
        (["approve", "--model", "linker", "--version", "1", "--by", "Ann"], 2),
        (["promote", "--model", "linker", "--version", "1"], 2),
        (["link", "--model", "linker", "--input", __file__, "--output", "links.parquet"], 2),
        (["serve", "--model", "linker"], 2),
        (["index", "--model", "linker", "--pictures", "/", "--lake", "lake"], 2),
    ],
    ids=lambda each: " ".join(each[:3:2]) if isinstance(each, list) else "",
)
def test_commands_answer_without_the_import_of_mlflow(
    store: mlflow.MlflowClient, tmp_path: Path, arguments: list[str], code: int
) -> None:
    change_champion(store, NAME, record_of(store, NAME).current, ("4",), decision={})
    command = [*arguments, "--tracking-uri", store.tracking_uri]
    program = (
        "import sys; from orchestration.cli import run\n"
        f"print(run({command!r}), sorted({{'mlflow', 'torch', 'scipy'}} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == f"{code} []", done.stderr
    assert "no model 'linker' in " in done.stderr if code else "promotion" in done.stdout
