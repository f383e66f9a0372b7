"""The webhook that `infra/README.md` describes, by its own words: a real MLflow server tells a local receiver."""

import os
import queue
import re
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import mlflow
import pytest
from cryptography.fernet import Fernet
from registries import change_champion

from orchestration.local.supervisor import MARK_VARIABLE, Supervisor
from orchestration.local.up import mlflow_service
from training.mlflow.champions import align
from training.mlflow.promotion import rollback
from training.mlflow.runs import connect

README = Path(__file__).resolve().parents[3] / "infra" / "README.md"
SECRET = "between the two of us"
WAIT_S = 60.0


class Receiver(BaseHTTPRequestHandler):
    """Puts each message into the server's queue."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.messages.put((dict(self.headers), body))  # type: ignore[attr-defined]
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def receiver() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        server.messages = queue.Queue()  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def served(template: Path, tmp_path: Path) -> Iterator[mlflow.MlflowClient]:
    """A client of a real MLflow server that may send to this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (tmp_path / "mlflow.db").write_bytes(template.read_bytes())
    environment = {
        MARK_VARIABLE: os.urandom(8).hex(),
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_WEBHOOK_SECRET_ENCRYPTION_KEY": Fernet.generate_key().decode(),
        "MLFLOW_WEBHOOK_ALLOWED_SCHEMES": "http",
        "MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS": "true",
    }
    service = mlflow_service(f"sqlite:///{tmp_path}/mlflow.db", artifacts=tmp_path / "artifacts", port=port)
    with Supervisor([service], environment, tmp_path / "logs", print).running():
        yield connect(f"http://127.0.0.1:{port}")


def test_the_receiver_is_told_of_each_new_champion_and_believes_what_is_signed(
    served: mlflow.MlflowClient, receiver: ThreadingHTTPServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting, checking = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", served.tracking_uri)
    monkeypatch.setenv("WEBHOOK_URL", f"http://127.0.0.1:{receiver.server_address[1]}/champions")
    monkeypatch.setenv("WEBHOOK_SECRET", SECRET)
    exec(setting, {})
    told: dict[str, Any] = {}
    exec(checking, told)
    champion, messages = told["champion"], receiver.messages  # type: ignore[attr-defined]

    served.create_registered_model("linker")
    for _ in range(2):
        served.create_model_version("linker", source="s3://models/linker", tags={"lake": str(tmp_path)})
    served.set_registered_model_alias("linker", "challenger", "1")
    for version in ("1", "2"):
        last = align(served, "linker")
        assert change_champion(served, last, (version, *last.champions), decision={"checks": []})
    rollback(served, "linker")

    received = [messages.get(timeout=WAIT_S) for _ in range(6)]  # three new champions among them, in whatever order
    heard = [champion(headers, body, SECRET.encode()) for headers, body in received]
    assert sorted(found for found in heard if found) == [("linker", "1"), ("linker", "1"), ("linker", "2")]
    headers, body = received[next(place for place, found in enumerate(heard) if found)]
    assert champion(headers, body, b"another secret") is None
    assert champion(headers, body.replace(b"linker", b"forged"), SECRET.encode()) is None
    assert champion(headers | {"X-MLflow-Timestamp": "1"}, body, SECRET.encode()) is None
