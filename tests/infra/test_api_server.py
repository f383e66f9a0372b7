"""Chart and manifests on a real API server: what it refuses, what it warns of, what its controllers make of them.

The namespace holds pods to the Pod Security Standard `restricted`. What Dagster and its runs ask of the API server is
asked with the token of the chart's service account, so its rights are those that a cluster would give.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import kubernetes
import pytest
import yaml
from dagster._core.code_pointer import ModuleCodePointer
from dagster._core.launcher import LaunchRunContext, WorkerStatus
from dagster._core.origin import DEFAULT_DAGSTER_ENTRY_POINT, JobPythonOrigin, RepositoryPythonOrigin

from orchestration.config import RaySettings, RayWhere, read_settings
from orchestration.dagster.kuberay import RayJobs
from orchestration.rayjob import rayjob
from schemas.errors import BuildError

sys.path.insert(0, str(Path(__file__).parent))
from control_plane import ControlPlane, running, started, wait_for
from programs import CHART, FOLDER, INFRA, NAMESPACE, NEEDED, RELEASE, built, objects, template

pytestmark = pytest.mark.infra
ACCOUNT = f"{RELEASE}-dagster"
RESTRICTED = {f"pod-security.kubernetes.io/{how}": "restricted" for how in ("enforce", "warn")}
STEP = ["train", "--dataset", "diy@v1", "--json"]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with KubeRay's types, the namespace and the secrets that the chart asks for."""
    with started(tmp_path_factory.mktemp("control-plane"), nodes=3) as plane:
        for path in sorted(FOLDER.glob("ray.io_*.yaml")):
            plane.kubectl("apply", "--server-side", "--filename", str(path))
        prepare(plane, NAMESPACE)
        yield plane


@pytest.fixture(scope="module")
def installed(plane: ControlPlane) -> ControlPlane:
    """The chart installed: helm waits until every Deployment is available."""
    done = plane.run("helm", "install", RELEASE, str(CHART), "--namespace", NAMESPACE, *NEEDED, "--wait")
    assert done.returncode == 0, done.stderr
    return plane


@pytest.fixture
def as_dagster(installed: ControlPlane) -> Any:
    """An API client with the rights of Dagster's pods."""
    return installed.client(installed.token(ACCOUNT, NAMESPACE))


def prepare(plane: ControlPlane, namespace: str) -> None:
    described = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": RESTRICTED}}
    plane.kubectl("create", "--filename", "-", text=json.dumps(described))
    for name, key in (("multilink-postgres", "postgresql-password"), ("multilink-ray", "auth_token")):
        plane.kubectl("create", "secret", "generic", name, f"--from-literal={key}=x", "--namespace", namespace)


def dry_run(plane: ControlPlane, text: str) -> tuple[list[str], str]:
    """Return the objects that the server would create, and what it complains of."""
    done = plane.run("kubectl", "create", "--dry-run=server", "--validate=strict", "--filename", "-", text=text)
    return [line.split(" created")[0] for line in done.stdout.splitlines()], done.stderr


def names(plane: ControlPlane, kind: str) -> set[str]:
    return {each["metadata"]["name"] for each in plane.get(kind, "--namespace", NAMESPACE)["items"]}


def ray_settings(plane: ControlPlane) -> RaySettings:
    settings = plane.get("configmap", f"{RELEASE}-dagster", "--namespace", NAMESPACE)["data"]["settings.yaml"]
    return read_settings(settings, where="settings.yaml").ray


def operated(plane: ControlPlane, name: str, **status: str) -> None:
    """Set a RayJob's status, as the operator does."""
    kubernetes.client.CustomObjectsApi(plane.client()).patch_namespaced_custom_object_status(
        "ray.io", "v1", NAMESPACE, "rayjobs", name, {"status": status}
    )


@pytest.mark.parametrize("file", ["helm", "kuberay/rayjob.yaml", "flink/flink.yaml"])
def test_the_server_takes_every_object_and_warns_of_none(plane: ControlPlane, file: str) -> None:
    text = template() if file == "helm" else (INFRA / file).read_text(encoding="utf-8")
    taken, complaints = dry_run(plane, text)
    assert complaints == ""
    assert len(taken) == len(objects(text))


@pytest.mark.parametrize(
    ("file", "right", "wrong", "words"),
    [
        ("kuberay/rayjob.yaml", "backoffLimit: 0", "backofLimit: 0", 'unknown field "spec.backofLimit"'),
        ("kuberay/rayjob.yaml", "memory: 8Gi", "memory: 8Gigs", "is invalid: spec.rayClusterSpec.headGroupSpec"),
        ("flink/flink.yaml", "matchLabels: {app: flink, component: jobmanager}", "matchLabels: {app: x}", "selector"),
        ("flink/flink.yaml", "runAsNonRoot: true, ", "", 'violate PodSecurity "restricted:latest"'),
    ],
)
def test_the_server_finds_what_is_wrong(plane: ControlPlane, file: str, right: str, wrong: str, words: str) -> None:
    text = (INFRA / file).read_text(encoding="utf-8")
    assert right in text
    assert words in dry_run(plane, text.replace(right, wrong, 1))[1]


def test_the_charts_deployments_become_ready(installed: ControlPlane) -> None:
    deployments = installed.get("deployments", "--namespace", NAMESPACE)["items"]
    available = {each["metadata"]["name"]: each["status"]["availableReplicas"] for each in deployments}
    assert available == {f"{RELEASE}-{name}": 1 for name in ("webserver", "daemon", "code", "mlflow")}
    pods = installed.get("pods", "--namespace", NAMESPACE, "--selector", f"multilink/release={RELEASE}")["items"]
    assert len(pods) == len(deployments)


def test_new_settings_start_dagsters_pods_anew_and_leave_mlflows(installed: ControlPlane) -> None:
    def generations() -> dict[str, int]:
        found = installed.get("deployments", "--namespace", NAMESPACE)["items"]
        return {each["metadata"]["name"]: each["metadata"]["generation"] for each in found}

    before = generations()
    changed = ("--set", "settings.sensor_interval_s=60", "--wait")
    done = installed.run("helm", "upgrade", RELEASE, str(CHART), "--namespace", NAMESPACE, *NEEDED, *changed)
    assert done.returncode == 0, done.stderr
    new = {name: generation - before[name] for name, generation in generations().items()}
    assert new == {f"{RELEASE}-webserver": 1, f"{RELEASE}-daemon": 1, f"{RELEASE}-code": 1, f"{RELEASE}-mlflow": 0}


def test_nothing_is_left_of_a_release_that_is_uninstalled(plane: ControlPlane) -> None:
    prepare(plane, "other")
    for command in (("install", "o", str(CHART), *NEEDED, "--wait"), ("uninstall", "o", "--wait")):
        done = plane.run("helm", *command, "--namespace", "other")
        assert done.returncode == 0, done.stderr
    kinds = "deployments,services,configmaps,serviceaccounts,roles,rolebindings,networkpolicies"
    left = plane.get(kinds, "--namespace", "other", "--selector", "app.kubernetes.io/name=multilink")
    assert left["items"] == []


@pytest.mark.parametrize(
    ("account", "verb", "resource", "allowed"),
    [
        (ACCOUNT, "create", "rayjobs.ray.io", True),
        (ACCOUNT, "delete", "rayjobs.ray.io", True),
        (ACCOUNT, "create", "jobs.batch", True),
        (ACCOUNT, "get", "pods/log", True),
        (ACCOUNT, "get", "secrets", False),
        (ACCOUNT, "create", "pods", False),
        (ACCOUNT, "create", "rolebindings.rbac.authorization.k8s.io", False),
        (f"{RELEASE}-mlflow", "list", "pods", False),
        (f"{RELEASE}-mlflow", "create", "jobs.batch", False),
    ],
)
def test_an_account_may_do_what_it_needs_and_no_more(
    installed: ControlPlane, account: str, verb: str, resource: str, allowed: bool
) -> None:
    who = f"--as=system:serviceaccount:{NAMESPACE}:{account}"
    answer = installed.run("kubectl", "auth", "can-i", verb, resource, who, "--namespace", NAMESPACE)
    assert answer.stdout.strip() == ("yes" if allowed else "no")


def test_a_run_of_dagster_is_a_job_that_the_server_takes(
    installed: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launcher of the chart's dagster.yaml, with a pod's credentials; the record is on this machine."""
    credentials = "kubernetes.config.incluster_config"
    (tmp_path / "token").write_text(installed.token(ACCOUNT, NAMESPACE), encoding="utf-8")
    monkeypatch.setattr(f"{credentials}.SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(f"{credentials}.SERVICE_CERT_FILENAME", str(installed.certificate))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(installed.port))
    monkeypatch.setattr(kubernetes.client.Configuration, "_default", None)
    chart = installed.get("configmap", f"{RELEASE}-dagster", "--namespace", NAMESPACE)["data"]
    launcher = yaml.safe_load(chart["dagster.yaml"])["run_launcher"]
    (tmp_path / "dagster.yaml").write_text(yaml.safe_dump({"run_launcher": launcher}), encoding="utf-8")
    pointer = ModuleCodePointer("orchestration.dagster.definitions", "definitions", working_directory=None)
    code = RepositoryPythonOrigin(
        executable_path="python", code_pointer=pointer, entry_point=DEFAULT_DAGSTER_ENTRY_POINT, container_image=None
    )
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        run = instance.add_run(dg.DagsterRun("train", job_code_origin=JobPythonOrigin("train", code)))
        instance.run_launcher.launch_run(LaunchRunContext(dagster_run=run, workspace=None))
        name = f"dagster-run-{run.run_id}"
        health = instance.run_launcher.check_run_worker_health
        wait_for(lambda: health(run).status is WorkerStatus.SUCCESS, "the run's pod has ended")
        (pod,) = installed.get("pods", "--namespace", NAMESPACE, "--selector", f"job-name={name}")["items"]
        assert pod["metadata"]["labels"]["multilink/release"] == RELEASE
        (container,) = pod["spec"]["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert {"/dagster", "/home/multilink", "/settings", "/tmp"} <= {
            mount["mountPath"] for mount in container["volumeMounts"]
        }
        assert "RAY_AUTH_TOKEN" in {variable["name"] for variable in container["env"]}
        assert instance.run_launcher.terminate(run.run_id)
    wait_for(lambda: name not in names(installed, "jobs"), "the run's job is deleted")


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
    started_ = jobs.get_status(name, NAMESPACE)
    cluster = started_["rayClusterName"]
    labels = ("--namespace", NAMESPACE, "--selector", f"ray.io/cluster={cluster}")

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
