"""A registered model at work, over HTTP too; the registry on servers: PostgreSQL and S3, one that dies, a webhook."""

import json
import os
import queue
import re
import shutil
import signal
import threading
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import mlflow
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import servers
from cryptography.fernet import Fernet
from fastapi.testclient import TestClient
from forked import clean_environment, start
from loopback import Quiet, answering
from registries import Register, change_champion
from typer.testing import CliRunner

from orchestration.cli import app
from schemas.lake import Lake
from schemas.messages import NotFoundError, UsageError
from training.linking.rows import documents_of
from training.mlflow.champions import align, record_of
from training.mlflow.copying import copy_version
from training.mlflow.loading import load, open_model
from training.mlflow.promotion import promote, rollback
from training.mlflow.registering import register
from training.mlflow.registry import champion_of_dataset, find_version, logged_model
from training.mlflow.runs import artifact_root, connect, experiment_id
from training.mlflow.serving import MAX_BODY_BYTES, make_app
from training.model import LinkModel
from training.promotions.record import CHAMPION, TAINTED
from training.workflows.evaluate import run_evaluate
from training.workflows.link import run_link_version
from training.workflows.workers import by_workers


def test_the_champion_links_a_version_by_its_name(
    client: mlflow.MlflowClient, registered: str, registry_lake: Lake, tmp_path: Path
) -> None:
    with pytest.raises(NotFoundError, match="no version 'champion' of model 'linker'"):
        open_model("linker", client.tracking_uri, dataset="synthetic@v1")
    client.set_registered_model_alias("linker", CHAMPION, "1")
    loaded = open_model("linker", client.tracking_uri, dataset="synthetic@v1")
    found = run_link_version(loaded, registry_lake, "synthetic", str(tmp_path / "links"), say=print).to_json()
    assert (found["model"], found["dataset"], found["documents"]) == ("models:/linker/1", "synthetic@v1", 120)
    assert found["shards"] == 9 and found["documents_per_second"] > 0
    assert pq.read_table(tmp_path / "links" / "links").num_rows == found["links"]
    assert load("linker", client).uri == "models:/linker/1"
    with pytest.raises(UsageError, match="--workers 0"), by_workers(0):
        pass


def test_a_data_sets_one_champion_is_found(client: mlflow.MlflowClient, registered: str) -> None:
    source = client.get_model_version("linker", "1").source
    for name in ("multilink-synthetic-nostruct", "multilink-synthetic-hal", "multilink-synthetic-cross-document"):
        client.create_registered_model(name)
        client.create_model_version(name, source=source, tags={"dataset": "synthetic"})
    with pytest.raises(
        NotFoundError, match=r"no champion of 'synthetic' in .*; models: linker, multilink-synthetic-cross"
    ):
        champion_of_dataset(client, "synthetic")
    client.set_registered_model_alias("multilink-synthetic-nostruct", CHAMPION, "1")  # a baseline is not chosen
    client.set_registered_model_alias("multilink-synthetic-cross-document", CHAMPION, "1")
    assert champion_of_dataset(client, "synthetic") == "multilink-synthetic-cross-document"
    client.set_registered_model_alias("multilink-synthetic-hal", CHAMPION, "1")
    with pytest.raises(UsageError, match=r"several champions in .*cross-document, multilink-synthetic-hal; name a"):
        champion_of_dataset(client, "synthetic")


@pytest.fixture
def served_address(
    client: mlflow.MlflowClient, register_model: Register, registry_lake: Lake, trained: Path, tmp_path: Path
) -> Iterator[str]:
    """The address of `multilink serve` with the champion, which has a calibration."""
    register_model(trained)
    client.set_registered_model_alias("linker", CHAMPION, "1")
    evaluate = {"dataset": "synthetic", "lake": registry_lake.root.uri, "tracking": client.tracking_uri}
    run_evaluate(model="linker", **evaluate, say=print)
    options = ["--model", "linker", "--port", "0", "--tracking-uri", client.tracking_uri]
    running = start("serve", *options, folder=tmp_path, environment=clean_environment())
    out = Path(running.output.name, "out")
    try:
        servers.wait_for(lambda: out.exists() and out.read_text().count("\n") > 1, "it serves")
        found = re.match(
            r"models:/linker/1 at (http://127\.0\.0\.1:\d+), until Ctrl-C\n"
            r"try: curl -s \1/example \| curl -s \1/invocations",
            out.read_text(),
        )
        assert found is not None, out.read_text()
        yield found[1]
    finally:
        running.process.terminate()
        running.finish()


def test_a_served_model_answers_as_it_computes_and_as_mlflow_loads_it(
    client: mlflow.MlflowClient, served_address: str, trained: Path
) -> None:
    """Also of documents of different sizes, one without images, one with nothing."""
    draw, model = np.random.default_rng(0), LinkModel.load(trained)
    records = [
        {
            "sentences": ["a text"] * n,
            "sentence_vectors": draw.normal(size=(n, 12)).tolist(),
            "image_vectors": draw.normal(size=(m, 16)).tolist(),
        }
        for n, m in ((3, 2), (1, 4), (3, 3), (2, 0), (0, 0))
    ]
    body, kind = json.dumps({"dataframe_records": records}).encode(), {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{served_address}/invocations", data=body, headers=kind)
    answer = json.loads(urllib.request.urlopen(request, timeout=60).read())["predictions"]
    expected = model.similarities(model.read(documents_of(model, records)))
    for row, similarities in zip(answer, expected, strict=True):
        assert row["model"] == "models:/linker/1"
        # What is served is no document of the data set that probabilities were fitted on.
        assert "hold only for its documents" in row["caution"]
        assert {each["word"] for each in row["links"]} <= {"strong", "fair", "weak"}
        assert np.ravel(row["similarities"]) == pytest.approx(similarities.ravel(), abs=1e-6)
    assert any(row["links"] for row in answer)
    for address in ("models:/linker@champion", f"runs:/{client.get_model_version('linker', '1').run_id}/model"):
        predicted = mlflow.pyfunc.load_model(address).predict(pd.DataFrame(records))
        for links, row in zip(predicted["links"], answer, strict=True):
            assert [(each["sentence"], each["image"], each["word"]) for each in links] == [
                (each["sentence"], each["image"], each["word"]) for each in row["links"]
            ]
            assert [each["similarity"] for each in links] == pytest.approx(  # the server multiplies with more threads
                [each["similarity"] for each in row["links"]], abs=1e-6
            )


def test_a_server_answers_its_example_and_refuses_what_is_none(client: mlflow.MlflowClient, trained: Path) -> None:
    app = TestClient(make_app(load(str(trained), client).linker(), is_local=True), base_url="http://127.0.0.1")

    def post(body: object, kind: str = "application/json", **headers: str) -> tuple[int, dict[str, Any]]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        response = app.post("/invocations", content=data, headers={"Content-Type": kind, **headers})
        return response.status_code, response.json()

    example = app.get("/example").json()
    status, answer = post(example)
    assert status == 200 and len(answer["predictions"][0]["similarities"]) == 2
    numbers = app.get("/metrics").text.splitlines()
    links = len(answer["predictions"][0]["links"])
    assert {"multilink_documents_total 1.0", f"multilink_links_total {links}.0"} <= set(numbers)
    assert 'multilink_http_requests_total{route="/invocations",status="200"} 1.0' in numbers

    broken = example["dataframe_records"][0]
    for body, line in (
        ({"dataframe_records": [broken | {"image_vectors": [[1.0]]}]}, "row 0, image_vectors: expected vectors of 16 "),
        ({"dataframe_records": [broken | {"image_vectors": [[float("nan")] * 16]}]}, "row 0: its vectors are not fin"),
        (
            {"dataframe_records": [{"sentences": ["A dog."]}]},
            "row 0: expected sentences, sentence_vectors, image",
        ),
        ({"dataframe_records": [3]}, "row 0: expected an object with sentences"),
        ({"dataframe_records": [broken | {"image_vectors": [["x"] * 16]}]}, "row 0, image_vectors: expected numbers"),
        ({"dataframe_records": [broken | {"sentences": 7}]}, "row 0, sentences: expected a list, found int"),
        ({"dataframe_records": [broken | {"sentences": "A dog."}]}, "row 0, sentences: expected a list, found str"),
        ({"dataframe_records": [broken | {"sentences": ["a", None]}]}, "row 0, sentences[1]: expected text, found N"),
        ({"dataframe_records": [broken | {"sentences": [["a"], "b"]}]}, "row 0, sentences[0]: expected text, found l"),
        ({"dataframe_records": [broken | {"image_vectors": 5}]}, "row 0, image_vectors: expected a list, found int"),
        ({"dataframe_records": [broken | {"image_vectors": [5]}]}, "row 0, image_vectors: expected a list, found int"),
        ({"dataframe_records": [broken | {"roles": ["author", "lead"]}]}, "row 0, roles: expected headline, lead, "),
        ({"dataframe_records": [broken | {"roles": "lead"}]}, "row 0, roles: expected a list, found str"),
        ({"dataframe_records": [broken | {"language": 7}]}, "row 0, language: expected text, found int"),
        ({"dataframe_split": {"columns": ["sentences"], "data": [[1, 2]]}}, "dataframe_split: expected columns, and"),
        ({"documents": []}, 'expected {"dataframe_records"'),
        (b"{", "expected JSON, found Expecting property name"),
        (b"[" * 200_000 + b"]" * 200_000, "expected JSON, found maximum recursion depth exceeded"),
        (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, "expected JSON, found maximum recursion depth exceeded"),
        (b"[" + b"9" * 5_000 + b"]", "expected JSON, found Exceeds the limit"),
        (b"\xff\xfe{", "expected JSON, found"),
    ):
        status, answer = post(body)
        assert (status, answer.keys()) == (400, {"error_code", "message"}), answer
        assert answer["message"].startswith(line) and "\n" not in answer["message"], answer
    assert post(b"a,b", "text/plain")[0] == 415
    many = {"sentences": ["a"] * 1001, "sentence_vectors": broken["sentence_vectors"][:1] * 1001}
    status, answer = post({"dataframe_records": [many | {"image_vectors": broken["image_vectors"] * 1000}]})
    assert (status, answer["error_code"]) == (413, "TOO_LARGE")
    for headers, refused in (({"Host": "evil.example"}, 421), ({"Sec-Fetch-Site": "cross-site"}, 403)):
        assert post(example, **headers)[0] == refused
    assert post(b" " * (MAX_BODY_BYTES + 1))[0] == 413
    split = {"columns": list(broken), "data": [list(broken.values())]}
    assert post({"dataframe_split": split})[1] == post(example)[1]


BUCKET = "models"


def _s3() -> "boto3.client":
    return boto3.client("s3", endpoint_url=os.environ["MLFLOW_S3_ENDPOINT_URL"])


@pytest.fixture
def served(postgres: str, object_stores: Callable[[], int], monkeypatch: pytest.MonkeyPatch) -> mlflow.MlflowClient:
    """A client of tables in PostgreSQL, with artefacts in an empty bucket."""
    environment = {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "MLFLOW_S3_ENDPOINT_URL": f"http://127.0.0.1:{object_stores()}",
        "MULTILINK_ARTIFACTS": f"s3://{BUCKET}/mlflow",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    _s3().create_bucket(Bucket=BUCKET)
    return connect(postgres)


def test_trained_registered_promoted_rolled_back_loaded_copied_and_forgotten(
    served: mlflow.MlflowClient,
    registry_lake: Lake,
    trained: Path,
    empty_store: str,
    tmp_path: Path,
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
    assert loaded.model.digest() == LinkModel.load(trained).digest()
    keys = [item["Key"] for item in _s3().list_objects_v2(Bucket=BUCKET)["Contents"]]
    assert sum(key.endswith("/weights.pt") for key in keys) == 2
    assert sum(key.endswith("/model_card.md") for key in keys) == 2

    last = record_of(served, "linker")
    with ThreadPoolExecutor() as pool:  # two who have read the same record want to be next
        won = list(pool.map(lambda version: change_champion(served, last, (version, "1"), decision={}), ("1", "2")))
    assert sorted(won) == [False, True]
    winner = ("1", "2")[won.index(True)]
    assert record_of(served, "linker").champion == find_version(served, "linker", "champion").version == winner

    copied, is_new = copy_version(served.tracking_uri, "linker", "2", to=empty_store, say=print)
    assert is_new and copied.version == "1"

    forget = ["lake", "forget", "train-003", "--yes", "--models", "--lake", lake.root.uri, "--json"]
    asked = CliRunner().invoke(app, [*forget, "--tracking-uri", served.tracking_uri], catch_exceptions=False)
    assert asked.exit_code == 0, asked.output
    told = json.loads(asked.stdout.splitlines()[-1])
    assert {*told["versions"][0]["models"]} == {"models:/linker/1", "models:/linker/2"}
    record = record_of(served, "linker")
    assert record.taint("1") and record.taint("2") and TAINTED in find_version(served, "linker", "2").tags


SQLITE, POSTGRESQL = "sqlite:////home/me/mlflow.db", "postgresql://mlflow@db/mlflow"


@pytest.mark.parametrize(
    ("store", "told", "root"),
    [
        (POSTGRESQL, {"MULTILINK_ARTIFACTS": "s3://models/mlflow/"}, "s3://models/mlflow"),
        (SQLITE, {"MULTILINK_ARTIFACTS": "s3://models/mlflow/"}, "s3://models/mlflow"),
        (SQLITE, {}, "file:///home/me/mlartifacts"),
        ("http://mlflow:5000", {"MULTILINK_ARTIFACTS": "s3://models/mlflow/"}, None),
    ],
)
def test_where_artefacts_go(store: str, told: dict[str, str], root: str | None) -> None:
    assert artifact_root(store, environment=told) == root


def test_a_database_server_must_be_told_where_artefacts_go() -> None:
    with pytest.raises(UsageError, match="MULTILINK_ARTIFACTS: expected the address of artefacts of a postgresql"):
        artifact_root(POSTGRESQL, environment={})


@pytest.mark.trial
def test_a_server_that_dies_in_the_middle_changes_nothing(
    registry_lake: Lake, trained: Path, template: Path, tmp_path: Path
) -> None:
    lake = registry_lake.root.uri
    with servers.mlflow_server(tmp_path, template) as (uri, keeper):
        client = connect(uri)
        tags = {"dataset": "synthetic", "dataset_version": "v1", "lake": lake}
        for _ in range(2):
            run = client.create_run(experiment_id(client, "multilink-synthetic"))
            register(client, trained, name="linker", run_id=run.info.run_id, tags=tags)
            client.set_terminated(run.info.run_id)
        assert promote(client, "linker", "1", say=print).decision.is_promoted

        lines: list[str] = []

        def die_and_rise(line: str) -> None:
            lines.append(line)
            if len(lines) == 1:
                os.killpg(keeper.pid("mlflow"), signal.SIGKILL)
                threading.Timer(1.0, keeper.watch).start()

        promoted = promote(client, "linker", "2", say=die_and_rise)
        assert promoted.decision.is_promoted and promoted.champion == "1"
        assert len(lines) == 1 and record_of(client, "linker").champions == ("2", "1")

        run_evaluate(model="models:/linker@champion", dataset="synthetic", lake=lake, tracking=uri, say=print)
        loaded = load("models:/linker@champion", client)
        assert loaded.version is not None and loaded.calibration is not None
        assert logged_model(client, loaded.version).artifact_location.startswith("mlflow-artifacts:")
        assert rollback(client, "linker")[0].version == "1"


README = Path(__file__).resolve().parents[3] / "infra" / "README.md"
SECRET = "between the two of us"
WAIT_S = 60.0


@pytest.fixture
def sending(template: Path, tmp_path: Path) -> Iterator[mlflow.MlflowClient]:
    """A client of a real MLflow server that may send to this machine."""
    environment = {
        "MLFLOW_WEBHOOK_SECRET_ENCRYPTION_KEY": Fernet.generate_key().decode(),
        "MLFLOW_WEBHOOK_ALLOWED_SCHEMES": "http",
        "MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS": "true",
    }
    with servers.mlflow_server(tmp_path, template, **environment) as (uri, _):
        yield connect(uri)


def test_the_receiver_is_told_of_each_new_champion_and_believes_what_is_signed(
    sending: mlflow.MlflowClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: queue.Queue[tuple[dict[str, str], bytes]] = queue.Queue()

    def take(request: Quiet) -> tuple[int, bytes, dict[str, str]]:
        messages.put((dict(request.headers), request.body))
        return 204, b"", {}

    setting, checking = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    told: dict[str, Any] = {}
    exec(checking, told)
    champion = told["champion"]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", sending.tracking_uri)
    monkeypatch.setenv("WEBHOOK_SECRET", SECRET)
    with answering(take) as port:
        monkeypatch.setenv("WEBHOOK_URL", f"http://127.0.0.1:{port}/champions")
        exec(setting, {})
        sending.create_registered_model("linker")
        for _ in range(2):
            sending.create_model_version("linker", source="s3://models/linker", tags={"lake": str(tmp_path)})
        sending.set_registered_model_alias("linker", "challenger", "1")
        for version in ("1", "2"):
            last = align(sending, "linker")
            assert change_champion(sending, last, (version, *last.champions), decision={"checks": []})
        rollback(sending, "linker")
        received = [messages.get(timeout=WAIT_S) for _ in range(6)]  # three new champions among them, in any order
    heard = [champion(headers, body, SECRET.encode()) for headers, body in received]
    assert sorted(found for found in heard if found) == [("linker", "1"), ("linker", "1"), ("linker", "2")]
    headers, body = received[next(place for place, found in enumerate(heard) if found)]
    assert champion(headers, body, b"another secret") is None
    assert champion(headers, body.replace(b"linker", b"forged"), SECRET.encode()) is None
    assert champion(headers | {"X-MLflow-Timestamp": "1"}, body, SECRET.encode()) is None
