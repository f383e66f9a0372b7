"""Chart and manifests on a real API server: what it refuses, what it warns of, what its controllers make of them.

The namespace holds pods to the Pod Security Standard `restricted`. What Dagster and its runs ask of the API server is
asked with the token of the chart's service account, so its rights are those that a cluster would give.
"""

from __future__ import annotations

import sys
from pathlib import Path

import dagster as dg
import kubernetes
import pytest
import yaml
from dagster._core.code_pointer import ModuleCodePointer
from dagster._core.launcher import LaunchRunContext, WorkerStatus
from dagster._core.origin import DEFAULT_DAGSTER_ENTRY_POINT, JobPythonOrigin, RepositoryPythonOrigin

sys.path.insert(0, str(Path(__file__).parent))
from control_plane import ControlPlane, running, wait_for
from programs import ACCOUNT, CHART, INFRA, NAMESPACE, NEEDED, RELEASE, built, objects, template

pytestmark = pytest.mark.infra


def dry_run(plane: ControlPlane, text: str) -> tuple[list[str], str]:
    """Return the objects that the server would create, and what it complains of."""
    done = plane.run("kubectl", "create", "--dry-run=server", "--validate=strict", "--filename", "-", text=text)
    return [line.split(" created")[0] for line in done.stdout.splitlines()], done.stderr


@pytest.mark.parametrize("name", ["standard", "everything", "open network", "no pages", "no Ray", "flink/flink.yaml"])
def test_the_server_takes_every_object_and_warns_of_none(
    plane: ControlPlane, name: str, values: dict[str, tuple[str, ...]]
) -> None:
    text = template(*values[name]) if name in values else (INFRA / name).read_text(encoding="utf-8")
    taken, complaints = dry_run(plane, text)
    assert complaints == ""
    assert len(taken) == len(objects(text))


def test_the_charts_deployments_become_ready(installed: ControlPlane) -> None:
    deployments = installed.get("deployments", "--namespace", NAMESPACE)["items"]
    available = {each["metadata"]["name"]: each["status"]["availableReplicas"] for each in deployments}
    assert available == {f"{RELEASE}-{name}": 1 for name in ("webserver", "daemon", "code", "mlflow", "pages")}
    pods = installed.get("pods", "--namespace", NAMESPACE, "--selector", f"multilink/release={RELEASE}")["items"]
    assert len(pods) == len(deployments)


def test_new_settings_start_dagsters_pods_anew_and_leave_the_others(installed: ControlPlane) -> None:
    def generations() -> dict[str, int]:
        found = installed.get("deployments", "--namespace", NAMESPACE)["items"]
        return {each["metadata"]["name"]: each["metadata"]["generation"] for each in found}

    before = generations()
    changed = ("--set", "settings.sensor_interval_s=60", "--wait")
    done = installed.run("helm", "upgrade", RELEASE, str(CHART), "--namespace", NAMESPACE, *NEEDED, *changed)
    assert done.returncode == 0, done.stderr
    new = {name: generation - before[name] for name, generation in generations().items()}
    changed_pods = {"webserver": 1, "daemon": 1, "code": 1, "mlflow": 0, "pages": 0}
    assert new == {f"{RELEASE}-{name}": count for name, count in changed_pods.items()}


def test_the_operator_makes_the_head_of_the_ray_cluster(installed: ControlPlane) -> None:
    """KubeRay's own operator beside the control plane; kwok calls its pods ready, and no container runs."""
    built("ray-operator")
    addresses = ("--metrics-addr=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0")
    labels = ("--namespace", NAMESPACE, "--selector", f"ray.io/cluster={RELEASE}-ray")
    with running(installed, "ray-operator", *addresses, "--enable-leader-election=false"):
        wait_for(
            lambda: (
                [
                    pod["metadata"]["labels"]["ray.io/node-type"]
                    for pod in installed.get("pods", *labels)["items"]
                    if any(each["type"] == "Ready" for each in pod["status"].get("conditions", []))
                ]
                == ["head"]
            ),
            "the head is there and ready, and no worker",
        )
        services = {each["metadata"]["name"] for each in installed.get("services", "--namespace", NAMESPACE)["items"]}
        assert f"{RELEASE}-ray-head-svc" in services


@pytest.mark.parametrize(
    ("account", "verb", "resource", "allowed"),
    [
        (ACCOUNT, "create", "rayclusters.ray.io", False),
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
    wait_for(lambda: name not in installed.names("jobs", NAMESPACE), "the run's job is deleted")
