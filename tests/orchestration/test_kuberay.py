"""Every way in which a RayJob can end, ends the wait for it: the client against an HTTP server that tells its states.

The server answers what an API server answers. The real one, with the operator's types, is in `tests/infra`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import kubernetes
import pytest

from orchestration.dagster import kuberay
from orchestration.dagster.kuberay import RayJobs
from schemas.errors import BuildError

JOBS = "/apis/ray.io/v1/namespaces/n/rayjobs"


class Api(ThreadingHTTPServer):
    """Answers each look at a job with the next of `statuses`, the last one for ever; a number is an HTTP error."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.statuses: list[dict[str, Any] | int] = []
        self.asked: list[tuple[str, str]] = []

    def jobs(self, deadline_s: float = 60) -> RayJobs:
        settings = kubernetes.client.Configuration(host=f"http://127.0.0.1:{self.server_address[1]}")
        settings.retries = False
        return RayJobs(deadline_s=deadline_s, api_client=kubernetes.client.ApiClient(settings))


class Handler(BaseHTTPRequestHandler):
    server: Api

    def do_GET(self) -> None:
        self.server.asked.append(("GET", self.path))
        statuses = self.server.statuses
        found = statuses.pop(0) if len(statuses) > 1 else statuses[0]
        self._answer(found if isinstance(found, int) else 200, {"status": found})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(("POST", f"{self.path}/{body['metadata']['name']}"))
        self._answer(201, body)

    def do_DELETE(self) -> None:
        self.server.asked.append(("DELETE", self.path))
        self._answer(404 if self.path.endswith("gone") else 200, {})

    def _answer(self, status: int, body: object) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def api() -> Iterator[Api]:
    with Api() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (
            {"jobDeploymentStatus": "ValidationFailed", "reason": "ValidationFailed", "message": "no"},
            "ValidationFailed: no",
        ),
        (
            {"jobDeploymentStatus": "Failed", "jobStatus": "RUNNING", "reason": "DeadlineExceeded", "message": "late"},
            "DeadlineExceeded: late",
        ),
        ({"jobDeploymentStatus": "Failed", "reason": "PreRunningDeadlineExceeded"}, "PreRunningDeadlineExceeded"),
        ({"jobDeploymentStatus": "Failed", "jobStatus": "FAILED", "reason": "AppFailed"}, "AppFailed: no message"),
        ({"jobDeploymentStatus": "Running", "jobStatus": "STOPPED", "message": "by hand"}, "STOPPED: by hand"),
        (404, "it was deleted"),
        (403, "Forbidden"),
    ],
)
def test_every_end_but_success_is_an_error(api: Api, status: dict[str, Any] | int, words: str) -> None:
    api.statuses = [status]
    with pytest.raises(BuildError, match=f"RayJob j: .*{words}"):
        api.jobs().get_status("j", "n")


@pytest.mark.parametrize("state", ["Initializing", "Waiting", "Running", "Suspended", "Retrying", "Complete"])
def test_other_states_are_told_until_the_operator_is_overdue(
    api: Api, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.statuses = [{"jobDeploymentStatus": state}]
    jobs = api.jobs(deadline_s=0)
    assert jobs.get_status("j", "n") == {"jobDeploymentStatus": state}
    monkeypatch.setattr(kuberay, "OVERDUE_S", -1)
    with pytest.raises(BuildError, match=f"still {state} long after its deadline"):
        jobs.get_status("j", "n")


def test_a_moments_outage_is_survived_and_a_longer_one_is_not(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    running = {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"}
    api.statuses = [503, 500, running]
    assert api.jobs().get_status("j", "n", poll_interval=0) == running
    monkeypatch.setattr(kuberay, "OUTAGE_S", -1)
    api.statuses = [503]
    with pytest.raises(BuildError, match="Service Unavailable"):
        api.jobs().get_status("j", "n", poll_interval=0)


def test_a_job_that_no_operator_takes_up_is_an_error(api: Api) -> None:
    api.statuses = [{}]
    with pytest.raises(BuildError, match="is a KubeRay operator there"):
        api.jobs().get_status("j", "n", timeout=0.05, poll_interval=0.01)


def test_a_job_is_created_and_deleted_and_one_that_is_gone_is_no_error(api: Api) -> None:
    jobs = api.jobs()
    jobs.create({"metadata": {"name": "j"}}, "n")
    jobs.delete("j", "n")
    jobs.delete("gone", "n")
    assert api.asked == [("POST", f"{JOBS}/j"), ("DELETE", f"{JOBS}/j"), ("DELETE", f"{JOBS}/gone")]
