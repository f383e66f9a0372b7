"""A registered model at work: its champion links a data set version, and answers the same over HTTP."""

import json
import re
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from fastapi.testclient import TestClient
from registries import Register, change_champion

from schemas.errors import NotFoundError, UsageError
from schemas.lake import Lake
from training import listening
from training.listening import bind
from training.mlflow.champions import record_of
from training.mlflow.loading import load, load_version, open_model
from training.mlflow.registry import champion_of_dataset
from training.mlflow.serving import MAX_BODY_BYTES, make_app
from training.promotions.record import CHAMPION
from training.workflows.evaluate import run_evaluate
from training.workflows.link import run_link_version
from training.workflows.workers import by_workers

COMMAND = [sys.executable, "-c", "from orchestration.__main__ import main; main()"]


def link(client: mlflow.MlflowClient, lake: Lake, output: Path, model: str | None, **settings: Any) -> dict[str, Any]:
    loaded = open_model(model, client.tracking_uri, dataset="synthetic@v1")
    return run_link_version(loaded, lake, "synthetic", str(output), say=print, **settings).to_json()


def test_the_champion_links_a_version_by_its_name(
    client: mlflow.MlflowClient, registered: str, registry_lake: Lake, tmp_path: Path
) -> None:
    with pytest.raises(NotFoundError, match="no version 'champion' of model 'linker'"):
        link(client, registry_lake, tmp_path / "none", "linker")
    client.set_registered_model_alias("linker", CHAMPION, "1")
    found = link(client, registry_lake, tmp_path / "links", "linker")
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
def served(
    client: mlflow.MlflowClient, register_model: Register, registry_lake: Lake, trained: Path, tmp_path: Path
) -> Iterator[str]:
    """The address of `multilink serve` with the champion, which has a calibration."""
    register_model(trained)
    client.set_registered_model_alias("linker", CHAMPION, "1")
    evaluate = {"dataset": "synthetic", "lake": registry_lake.root.uri, "tracking": client.tracking_uri}
    run_evaluate(model="linker", **evaluate, say=print)
    options = ["--model", "linker", "--port", "0", "--tracking-uri", client.tracking_uri]
    process = subprocess.Popen([*COMMAND, "serve", *options], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    try:
        line = process.stdout.readline()
        found = re.fullmatch(r"models:/linker/1 at (http://127\.0\.0\.1:\d+), until Ctrl-C\n", line)
        assert found is not None, line
        assert process.stdout.readline().startswith(f"try: curl -s {found[1]}/example | curl -s {found[1]}/invocations")
        yield found[1]
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_a_served_model_answers_as_mlflow_loads_it(client: mlflow.MlflowClient, served: str) -> None:
    draw = np.random.default_rng(0)
    records = [
        {
            "sentences": ["a text"] * 3,
            "sentence_vectors": draw.normal(size=(3, 12)).tolist(),
            "image_vectors": draw.normal(size=(2, 16)).tolist(),
        }
        for _ in range(5)
    ]
    body, kind = json.dumps({"dataframe_records": records}).encode(), {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{served}/invocations", data=body, headers=kind)
    answer = json.loads(urllib.request.urlopen(request, timeout=60).read())["predictions"]
    for row in answer:
        assert row["model"] == "models:/linker/1"
        # What is served is no document of the data set that probabilities were fitted on.
        assert "hold only for its documents" in row["caution"]
        assert {each["word"] for each in row["links"]} <= {"strong", "fair", "weak"}
    assert sum(len(row["links"]) for row in answer) > 4
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


def test_an_address_in_use_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(UsageError, match=f"--host 127.0.0.1 --port {port}: .*in use"):
            bind("127.0.0.1", port)


def test_a_request_that_does_not_arrive_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A header that stops half-way, one that trickles, and a body that does not come hold no connection."""
    monkeypatch.setattr(listening, "REQUEST_S", 0.5)
    app, address = FastAPI(), bind("127.0.0.1", 0)

    @app.post("/")
    async def read(request: Request) -> JSONResponse:
        try:
            return JSONResponse(len(await listening.read_body(request.receive, most_bytes=100)))
        except listening.RequestError as problem:
            return JSONResponse(str(problem), status_code=problem.status)

    server = uvicorn.Server(uvicorn.Config(app, http=listening.TimedProtocol, log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [address.bound]}, daemon=True)
    thread.start()
    port = address.bound.getsockname()[1]
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as half:
            half.sendall(b"POST / HTTP/1.1\r\nHost: a\r\n")
            assert half.recv(1000) == b""
        header = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n"
        with socket.create_connection(("127.0.0.1", port), timeout=60) as late:
            late.sendall(header + b"[1,")
            assert late.recv(1000).startswith(b"HTTP/1.1 408")
        with socket.create_connection(("127.0.0.1", port), timeout=60) as whole:
            whole.sendall(header + b"[1,2,3,4]")
            answer = HTTPResponse(whole)
            answer.begin()
            assert answer.read() == b"9"
            whole.sendall(b"POST / HT")
            assert whole.recv(1000) == b""
    finally:
        server.should_exit = True
        thread.join(60)


def test_the_scheduler_links_and_indexes_with_the_champion_into_the_lake(
    client: mlflow.MlflowClient, registered: str, registry_lake: Lake, tmp_path: Path
) -> None:
    from orchestration.config import Settings
    from orchestration.plan import Plan
    from orchestration.steps import summary_of

    settings = Settings(lake=registry_lake.root.uri, tracking_uri=client.tracking_uri)
    plan = Plan(settings=settings)
    name = "multilink-synthetic-cross-document"
    client.create_registered_model(name)
    client.create_model_version(name, source=client.get_model_version("linker", "1").source)
    assert plan.champion(name) is None
    record = record_of(client, name)
    stated = {"files": load_version(record.model.version("1")).files, "calibration": "", "decision": {"checks": []}}
    assert change_champion(client, record, ["1"], **stated, lake=registry_lake)
    champion = plan.champion(name)
    assert champion == "1"
    first, again = (summary_of(plan.link(name, "synthetic@v1", champion), print) for _ in range(2))
    assert (first["model"], first["documents"]) == (f"models:/{name}/1", 120)
    assert (first["shards_reused"], again["shards_reused"]) == (0, 9)
    made, taken_over = (summary_of(plan.index(name, "synthetic@v1", champion), print) for _ in range(2))
    assert (made["model"], made["reused"], taken_over["reused"]) == (f"models:/{name}/1", False, True)
    folder = registry_lake.links("synthetic", "v1", name, "1")
    by_hand = link(client, registry_lake, tmp_path / "links", f"models:/{name}/1")
    assert {path: folder.read(path) for path in folder.files()} == {
        path.relative_to(tmp_path / "links").as_posix(): path.read_bytes()
        for path in (tmp_path / "links").rglob("*")
        if path.is_file()
    }
    assert by_hand["links"] == first["links"] > 0
