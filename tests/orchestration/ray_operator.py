"""An API server with an operator for RayJobs in one: a job that is created is submitted to a Ray cluster that is there.

What Kubernetes and KubeRay do with a RayJob themselves is tested with both (`tests/infra`); there no container runs.
Here the job runs, so that what it reports is seen to arrive.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

JOBS = "/apis/ray.io/v1/namespaces/{}/rayjobs"


class RayOperator(ThreadingHTTPServer):
    """The RayJobs of a namespace, on the Ray cluster that `jobs` submits to.

    Attributes:
        jobs: a `JobSubmissionClient`.
        created: manifests of all that were created, by name.
        there: names of those that are not deleted.
    """

    def __init__(self, jobs: Any, namespace: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.jobs, self.path = jobs, JOBS.format(namespace)
        self.created: dict[str, dict[str, Any]] = {}
        self.there: set[str] = set()

    def create(self, manifest: dict[str, Any]) -> None:
        """Submit a job's entry point with its runtime environment."""
        name, spec = manifest["metadata"]["name"], manifest["spec"]
        environment = yaml.safe_load(spec["runtimeEnvYAML"])
        self.jobs.submit_job(entrypoint=spec["entrypoint"], runtime_env=environment, submission_id=name)
        self.created[name] = manifest
        self.there.add(name)

    def delete(self, name: str) -> None:
        """Stop a job with its cluster."""
        self.there.discard(name)
        self.jobs.stop_job(name)

    def read(self, name: str) -> dict[str, Any]:
        """Return a job with the status that its run gives it."""
        info = self.jobs.get_job_info(name)
        deployment = {"SUCCEEDED": "Complete", "FAILED": "Failed"}.get(str(info.status), "Running")
        status = {"jobId": name, "jobDeploymentStatus": deployment, "jobStatus": str(info.status)}
        return self.created[name] | {"status": status | {"rayClusterName": "c", "message": info.message}}


class _Handler(BaseHTTPRequestHandler):
    server: RayOperator

    def do_POST(self) -> None:
        manifest = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.create(manifest)
        self._answer(201, manifest)

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if path == self.server.path:
            label = query.removeprefix("labelSelector=").replace("%2F", "/").split("%3D")
            found = [self.server.created[name] for name in sorted(self.server.there)]
            self._answer(200, {"items": [each for each in found if each["metadata"]["labels"][label[0]] == label[1]]})
        elif (name := path.removeprefix(self.server.path + "/").removesuffix("/status")) in self.server.there:
            self._answer(200, self.server.read(name))
        else:
            self._answer(404, {})

    def do_DELETE(self) -> None:
        name = self.path.rpartition("/")[2]
        is_there = name in self.server.there
        if is_there:
            self.server.delete(name)
        self._answer(200 if is_there else 404, {})

    def _answer(self, status: int, body: object) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def operated(jobs: Any, namespace: str, kubeconfig: Path) -> Iterator[RayOperator]:
    """Give a running operator, and write the file by which clients find it."""
    with RayOperator(jobs, namespace) as operator:
        thread = threading.Thread(target=operator.serve_forever, daemon=True)
        thread.start()
        named = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{operator.server_address[1]}"}}
        context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
        config = {"clusters": [named], "users": [{"name": "u", "user": {}}], "contexts": [context]}
        kubeconfig.write_text(yaml.safe_dump(config | {"current-context": "c"}), encoding="utf-8")
        yield operator
        operator.shutdown()
        thread.join()
