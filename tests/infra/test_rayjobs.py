"""RayJobs on a real API server: made and watched as Dagster does it, with its account's token, and run by KubeRay.

KubeRay's operator makes their clusters, whose pods kwok calls ready; no container runs. A job that is to run does so on
a Ray cluster of this machine.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import kubernetes
import pytest
import yaml

from orchestration.config import RaySettings, RayWhere, read_settings
from orchestration.dagster import pipes
from orchestration.dagster.kuberay import RayJobs
from orchestration.dagster.pipes import STEP_LABEL
from orchestration.dagster.rayjob import rayjob
from schemas.errors import BuildError, ConfigError

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "orchestration"))
import test_pipes
from control_plane import ControlPlane, running, wait_for
from programs import ACCOUNT, NAMESPACE, RELEASE, built

pytestmark = pytest.mark.infra
STEP = ["train", "--dataset", "diy@v1", "--json"]
cluster, instance = test_pipes.cluster, test_pipes.instance  # a Ray head, and Dagster's record


def ray_settings(plane: ControlPlane) -> RaySettings:
    settings = plane.get("configmap", f"{RELEASE}-dagster", "--namespace", NAMESPACE)["data"]["settings.yaml"]
    return read_settings(settings, where="settings.yaml").ray


def operated(plane: ControlPlane, name: str, **status: str) -> None:
    """Set a RayJob's status, as the operator does."""
    kubernetes.client.CustomObjectsApi(plane.client()).patch_namespaced_custom_object_status(
        "ray.io", "v1", NAMESPACE, "rayjobs", name, {"status": status}
    )


def test_a_rayjob_is_created_watched_and_deleted_as_dagster_does_it(installed: ControlPlane, as_dagster: Any) -> None:
    jobs, name = RayJobs(deadline_s=600, api_client=as_dagster), "multilink-done"
    jobs.create(rayjob(STEP, name=name, ray=ray_settings(installed)), NAMESPACE)
    with pytest.raises(BuildError, match="no status after 1 s; is a KubeRay operator there"):
        jobs.get_status(name, NAMESPACE, timeout=1)
    for deployment, job in (("Initializing", ""), ("Running", "PENDING"), ("Running", "RUNNING")):
        operated(installed, name, jobDeploymentStatus=deployment, jobStatus=job)
        seen = jobs.get_status(name, NAMESPACE)
        assert (seen["jobDeploymentStatus"], seen["jobStatus"]) == (deployment, job)
    operated(installed, name, jobDeploymentStatus="Complete", jobStatus="SUCCEEDED")
    assert jobs.get_status(name, NAMESPACE)["jobStatus"] == "SUCCEEDED"
    jobs.delete(name, NAMESPACE)
    with pytest.raises(BuildError, match=f"RayJob {name}: it was deleted"):
        jobs.get_status(name, NAMESPACE)
    jobs.delete(name, NAMESPACE)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({"jobDeploymentStatus": "ValidationFailed", "reason": "ValidationFailed", "message": "no"}, "no"),
        ({"jobDeploymentStatus": "Failed", "jobStatus": "RUNNING", "reason": "DeadlineExceeded"}, "DeadlineExceeded"),
        ({"jobDeploymentStatus": "Failed", "jobStatus": "FAILED", "reason": "AppFailed"}, "AppFailed"),
        ({"jobDeploymentStatus": "Running", "jobStatus": "STOPPED"}, "STOPPED"),
    ],
)
def test_a_rayjob_that_ended_otherwise_is_an_error(
    installed: ControlPlane, as_dagster: Any, status: dict[str, str], words: str
) -> None:
    jobs, name = RayJobs(deadline_s=600, api_client=as_dagster), f"multilink-{words.lower()}"
    jobs.create(rayjob(STEP, name=name, ray=ray_settings(installed)), NAMESPACE)
    operated(installed, name, **status)
    with pytest.raises(BuildError, match=f"RayJob {name}: .*{words}"):
        jobs.get_status(name, NAMESPACE)
    jobs.delete(name, NAMESPACE)


class Runner(threading.Thread):
    """What KubeRay does with the RayJobs of Dagster's steps, on a Ray cluster that is there: it runs them and tells."""

    def __init__(self, plane: ControlPlane, jobs: Any) -> None:
        super().__init__(daemon=True)
        self.api, self.jobs = kubernetes.client.CustomObjectsApi(plane.client()), jobs
        self.plane, self.over, self.seen = plane, threading.Event(), set[str]()

    def run(self) -> None:
        while not self.over.wait(0.5):
            there = self.api.list_namespaced_custom_object("ray.io", "v1", NAMESPACE, "rayjobs")["items"]
            ours = {each["metadata"]["name"]: each for each in there if STEP_LABEL in each["metadata"]["labels"]}
            for name in ours.keys() - self.seen:
                spec = ours[name]["spec"]
                environment = yaml.safe_load(spec["runtimeEnvYAML"])
                self.jobs.submit_job(entrypoint=spec["entrypoint"], runtime_env=environment, submission_id=name)
                self.seen.add(name)
            for name in ours:
                self.tell(name)

    def tell(self, name: str) -> None:
        info = self.jobs.get_job_info(name)
        deployment = {"SUCCEEDED": "Complete", "FAILED": "Failed"}.get(str(info.status), "Running")
        known = {"jobId": name, "rayClusterName": "c", "message": str(info.message)}
        with contextlib.suppress(kubernetes.client.ApiException):  # it was deleted meanwhile
            operated(self.plane, name, jobDeploymentStatus=deployment, jobStatus=str(info.status), **known)


@pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning")  # Ray 2.60 of itself
def test_a_step_of_dagster_is_done_through_the_api_server(
    installed: ControlPlane,
    cluster: RaySettings,
    instance: dg.DagsterInstance,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The whole path: Pipes, dagster-ray's client with the account's token, the server, Ray, and the way back."""
    credentials = yaml.safe_load(installed.kubeconfig.read_text(encoding="utf-8"))
    credentials["users"] = [{"name": "admin", "user": {"token": installed.token(ACCOUNT, NAMESPACE)}}]
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(credentials), encoding="utf-8")
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig"))
    monkeypatch.setattr(kubernetes.client.Configuration, "_default", None)
    monkeypatch.setattr(pipes, "POLL_S", 0.5)
    ray = replace(ray_settings(installed), address=cluster.address)
    runner = Runner(installed, test_pipes.jobs_at(cluster.address))
    runner.start()
    try:
        summary = test_pipes.do(["settings", "--json"], instance, ray)
        problem = test_pipes.do(test_pipes.MISTAKE, instance, ray)
    finally:
        runner.over.set()
        runner.join()
    assert isinstance(summary, dict), summary
    assert summary["train"]["tiny"].startswith("Small data")
    assert type(problem) is ConfigError
    (done,) = runner.seen & installed.names("rayjobs", NAMESPACE)  # that of the mistake is deleted at once
    made = installed.get("rayjob", done, "--namespace", NAMESPACE)["spec"]
    assert made["entrypoint"] == "multilink settings --json"
    assert made["submitterPodTemplate"]["spec"]["securityContext"]["runAsNonRoot"] is True


@pytest.fixture(scope="module")
def operator(installed: ControlPlane) -> Iterator[ControlPlane]:
    """KubeRay's own operator beside the control plane."""
    built("ray-operator")
    addresses = ("--metrics-addr=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0")
    with running(installed, "ray-operator", *addresses, "--enable-leader-election=false"):
        yield installed


def test_the_operator_makes_the_cluster_of_a_rayjob(operator: ControlPlane, as_dagster: Any) -> None:
    jobs, name, ray = RayJobs(deadline_s=600, api_client=as_dagster), "multilink-cluster", ray_settings(operator)
    jobs.create(rayjob(STEP, name=name, ray=ray), NAMESPACE)
    begun = jobs.get_status(name, NAMESPACE)
    labels = ("--namespace", NAMESPACE, "--selector", f"ray.io/cluster={begun['rayClusterName']}")

    def ready() -> list[str]:
        pods = operator.get("pods", *labels)["items"]
        return sorted(
            pod["metadata"]["labels"]["ray.io/node-type"]
            for pod in pods
            if any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", []))
        )

    wait_for(lambda: ready() == ["head", *["worker"] * ray.workers], "head and workers are there and ready")
    jobs.delete(name, NAMESPACE)
    wait_for(lambda: operator.get("pods", *labels)["items"] == [], "the cluster is gone with its job")


def test_what_the_operator_refuses_ends_the_wait(operator: ControlPlane, as_dagster: Any) -> None:
    jobs, name = RayJobs(deadline_s=600, api_client=as_dagster), f"multilink-{'long' * 12}"
    jobs.create(rayjob(STEP, name=name, ray=ray_settings(operator)), NAMESPACE)
    with pytest.raises(BuildError, match="ValidationFailed"):
        jobs.get_status(name, NAMESPACE)
    jobs.delete(name, NAMESPACE)


def test_a_cluster_that_does_not_start_ends_the_wait(operator: ControlPlane, as_dagster: Any) -> None:
    many = RaySettings(where=RayWhere.KUBERAY, image="i", namespace=NAMESPACE, workers=1, gpus=1000, start_deadline_s=5)
    jobs, name = RayJobs(deadline_s=600, api_client=as_dagster), "multilink-large"
    jobs.create(rayjob(STEP, name=name, ray=many), NAMESPACE)

    def ended() -> bool:
        try:
            jobs.get_status(name, NAMESPACE)
        except BuildError as problem:
            assert "PreRunningDeadlineExceeded" in str(problem)
            return True
        return False

    wait_for(ended, "the deadline has passed")
    jobs.delete(name, NAMESPACE)
