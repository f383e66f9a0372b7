"""The webhook that `infra/README.md` describes, by its own words: a real MLflow server tells a local receiver."""

import queue
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import pytest
import servers
from cryptography.fernet import Fernet
from loopback import Quiet, answering
from registries import change_champion

from training.mlflow.champions import align
from training.mlflow.promotion import rollback
from training.mlflow.runs import connect

README = Path(__file__).resolve().parents[3] / "infra" / "README.md"
SECRET = "between the two of us"
WAIT_S = 60.0


@pytest.fixture
def served(template: Path, tmp_path: Path) -> Iterator[mlflow.MlflowClient]:
    """A client of a real MLflow server that may send to this machine."""
    environment = {
        "MLFLOW_WEBHOOK_SECRET_ENCRYPTION_KEY": Fernet.generate_key().decode(),
        "MLFLOW_WEBHOOK_ALLOWED_SCHEMES": "http",
        "MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS": "true",
    }
    with servers.mlflow_server(tmp_path, template, **environment) as (uri, _):
        yield connect(uri)


def test_the_receiver_is_told_of_each_new_champion_and_believes_what_is_signed(
    served: mlflow.MlflowClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: queue.Queue[tuple[dict[str, str], bytes]] = queue.Queue()

    def take(request: Quiet) -> tuple[int, bytes, dict[str, str]]:
        messages.put((dict(request.headers), request.body))
        return 204, b"", {}

    setting, checking = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    told: dict[str, Any] = {}
    exec(checking, told)
    champion = told["champion"]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", served.tracking_uri)
    monkeypatch.setenv("WEBHOOK_SECRET", SECRET)
    with answering(take) as port:
        monkeypatch.setenv("WEBHOOK_URL", f"http://127.0.0.1:{port}/champions")
        exec(setting, {})
        served.create_registered_model("linker")
        for _ in range(2):
            served.create_model_version("linker", source="s3://models/linker", tags={"lake": str(tmp_path)})
        served.set_registered_model_alias("linker", "challenger", "1")
        for version in ("1", "2"):
            last = align(served, "linker")
            assert change_champion(served, last, (version, *last.champions), decision={"checks": []})
        rollback(served, "linker")
        received = [messages.get(timeout=WAIT_S) for _ in range(6)]  # three new champions among them, in any order
    heard = [champion(headers, body, SECRET.encode()) for headers, body in received]
    assert sorted(found for found in heard if found) == [("linker", "1"), ("linker", "1"), ("linker", "2")]
    headers, body = received[next(place for place, found in enumerate(heard) if found)]
    assert champion(headers, body, b"another secret") is None
    assert champion(headers, body.replace(b"linker", b"forged"), SECRET.encode()) is None
    assert champion(headers | {"X-MLflow-Timestamp": "1"}, body, SECRET.encode()) is None
