"""The registry on servers: MLflow's tables in a real PostgreSQL, its artefacts behind a real S3 server, on loopback.

Without PostgreSQL these tests are skipped.
"""

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import boto3
import mlflow
import pytest
import servers
from typer.testing import CliRunner

from orchestration.cli import app
from schemas.errors import UsageError
from schemas.lake import Lake
from training.mlflow.champions import record_of
from training.mlflow.copying import copy_version
from training.mlflow.loading import load
from training.mlflow.promotion import promote, rollback
from training.mlflow.registering import register
from training.mlflow.registry import find_version
from training.mlflow.runs import artifact_root, connect, experiment_id
from training.model import LinkModel
from training.promotions.record import TAINTED

BUCKET = "models"


@pytest.fixture(scope="module")
def object_store() -> Iterator[Mapping[str, str]]:
    """The environment in which an S3 server with an empty bucket is reached."""
    port = servers.free_port()
    environment = {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "MLFLOW_S3_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "MULTILINK_ARTIFACTS": f"s3://{BUCKET}/mlflow",
    }
    with servers.server([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], port):
        _s3(environment).create_bucket(Bucket=BUCKET)
        yield environment


def _s3(environment: Mapping[str, str]) -> "boto3.client":
    return boto3.client(
        "s3",
        endpoint_url=environment["MLFLOW_S3_ENDPOINT_URL"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        region_name=environment["AWS_DEFAULT_REGION"],
    )


@pytest.fixture
def served(
    postgres: str, object_store: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[mlflow.MlflowClient]:
    for name, value in object_store.items():
        monkeypatch.setenv(name, value)
    yield connect(postgres)


def test_trained_registered_promoted_rolled_back_loaded_copied_and_forgotten(
    served: mlflow.MlflowClient,
    object_store: Mapping[str, str],
    registry_lake: Lake,
    trained: Path,
    template: Path,
    tmp_path: Path,
    contest: Callable[..., list[Mapping[str, str]]],
) -> None:
    lake = Lake.at(shutil.copytree(registry_lake.root.uri, tmp_path / "lake").as_posix())
    tags = {"dataset": "synthetic", "dataset_version": "v1", "lake": lake.root.uri}
    for _ in range(2):
        run = served.create_run(experiment_id(served, "multilink-synthetic"))
        version = register(served, trained, name="linker", run_id=run.info.run_id, tags=tags)
        served.set_terminated(run.info.run_id)
        assert promote(served, "linker", version.version, say=print).decision.is_promoted
    assert rollback(served, "linker")[0].version == "1"

    loaded = load("models:/linker@champion", served)
    assert loaded.version is not None and loaded.version.version == "1"
    for name, weights in LinkModel.load(trained).state_dict().items():
        assert loaded.model.state_dict()[name].equal(weights)
    keys = [item["Key"] for item in _s3(object_store).list_objects_v2(Bucket=BUCKET)["Contents"]]
    assert sum(key.endswith("/weights.pt") for key in keys) == 2
    assert sum(key.endswith("/model_card.md") for key in keys) == 2

    outcomes = contest(served.tracking_uri, "linker", ["1", "2"], rounds=2)
    assert [sorted(outcome.values()) for outcome in outcomes] == [["lost", "won"]] * 2
    winners = [next(version for version, result in outcome.items() if result == "won") for outcome in outcomes]
    assert record_of(served, "linker").champions == (*reversed(winners), "1")
    assert find_version(served, "linker", "champion").version == winners[-1]

    elsewhere = tmp_path / "mlflow.db"
    elsewhere.write_bytes(template.read_bytes())
    copied, is_new = copy_version(served.tracking_uri, "linker", "2", to=f"sqlite:///{elsewhere}", say=print)
    assert is_new and copied.version == "1"

    forget = ["lake", "forget", "train-003", "--yes", "--models", "--lake", lake.root.uri, "--json"]
    asked = CliRunner().invoke(app, [*forget, "--tracking-uri", served.tracking_uri], catch_exceptions=False)
    assert asked.exit_code == 0, asked.output
    told = json.loads(asked.stdout.splitlines()[-1])
    assert {*told["versions"][0]["models"]} == {"models:/linker/1", "models:/linker/2"}
    record = record_of(served, "linker")
    assert record.taint("1") and record.taint("2") and TAINTED in find_version(served, "linker", "2").tags


def test_a_database_server_must_be_told_where_artefacts_go() -> None:
    uri = "postgresql://mlflow@db/mlflow"
    with pytest.raises(
        UsageError, match="MULTILINK_ARTIFACTS: expected the address of artefacts of a postgresql store"
    ):
        artifact_root(uri, environment={})
    told = {"MULTILINK_ARTIFACTS": "s3://models/mlflow/"}
    assert artifact_root(uri, environment=told) == "s3://models/mlflow"
    assert artifact_root("sqlite:////home/me/mlflow.db", environment={}) == "file:///home/me/mlartifacts"
    assert artifact_root("sqlite:////home/me/mlflow.db", environment=told) == "s3://models/mlflow"
    assert artifact_root("http://mlflow:5000", environment=told) is None
