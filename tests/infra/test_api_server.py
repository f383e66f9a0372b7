"""Chart and manifests on a real API server: what it refuses, what it warns of, what its controllers make of them.

The namespace holds pods to the Pod Security Standard `restricted`. What Dagster and its runs ask of the API server is
asked with the token of the chart's service account, so its rights are those that a cluster would give.
"""

import base64
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import kubernetes
import lakes
import pytest
import yaml
from control_plane import ControlPlane, running
from dagster._core.code_pointer import ModuleCodePointer
from dagster._core.launcher import LaunchRunContext, WorkerStatus
from dagster._core.origin import DEFAULT_DAGSTER_ENTRY_POINT, JobPythonOrigin, RepositoryPythonOrigin
from forked import clean_environment
from programs import ACCOUNT, CHART, INFRA, NAMESPACE, NEEDED, RELEASE, built, objects, template
from servers import wait_for

from training.mlflow.registry import registered
from training.mlflow.runs import connect
from training.mlflow.tracked_training import run_train
from training.promotions.keys import make_key, public_path
from training.promotions.proof import keys_of, prove
from training.promotions.record import read_record

pytestmark = pytest.mark.infra
SMALL = ("dimensions=16", "training.epochs=4", "training.learning_rate=0.01", "text.dropout=0", "image.dropout=0")
PROMOTE = """
import os, sys
from dataclasses import replace
from orchestration.config import load_settings
from orchestration.plan import Plan
settings = replace(load_settings(os.environ), tracking_uri=sys.argv[1], lake=sys.argv[2])
promotion = Plan(settings=settings).promote(sys.argv[3], "1", policy=settings.datasets[0].policy)(print)
assert promotion.decision.is_promoted, promotion.decision.reasons
"""


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
    awaited = ("wait", "deployments", "--all", "--for=condition=Available", "--timeout=300s", "--namespace", NAMESPACE)
    done = installed.run("kubectl", *awaited)
    assert done.returncode == 0, done.stderr
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


@contextlib.contextmanager
def launched(
    plane: ControlPlane, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[dg.DagsterInstance, str, Any]]:
    """Launch a run by the launcher of the chart's dagster.yaml, with a pod's credentials.

    The record is on this machine. Gives instance, id of the run, and its pod, which kwok has called ended.
    """
    credentials = "kubernetes.config.incluster_config"
    (folder / "token").write_text(plane.token(ACCOUNT, NAMESPACE), encoding="utf-8")
    monkeypatch.setattr(f"{credentials}.SERVICE_TOKEN_FILENAME", str(folder / "token"))
    monkeypatch.setattr(f"{credentials}.SERVICE_CERT_FILENAME", str(plane.certificate))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(plane.port))
    monkeypatch.setattr(kubernetes.client.Configuration, "_default", None)
    chart = plane.get("configmap", f"{RELEASE}-dagster", "--namespace", NAMESPACE)["data"]
    launcher = yaml.safe_load(chart["dagster.yaml"])["run_launcher"]
    (folder / "dagster.yaml").write_text(yaml.safe_dump({"run_launcher": launcher}), encoding="utf-8")
    pointer = ModuleCodePointer("orchestration.dagster.definitions", "definitions", working_directory=None)
    code = RepositoryPythonOrigin(
        executable_path="python", code_pointer=pointer, entry_point=DEFAULT_DAGSTER_ENTRY_POINT, container_image=None
    )
    with dg.DagsterInstance.from_config(str(folder)) as instance:
        run = instance.add_run(dg.DagsterRun("train", job_code_origin=JobPythonOrigin("train", code)))
        instance.run_launcher.launch_run(LaunchRunContext(dagster_run=run, workspace=None))
        health = instance.run_launcher.check_run_worker_health
        wait_for(lambda: health(run).status is WorkerStatus.SUCCESS, "the run's pod has ended")
        selector = ("--selector", f"job-name=dagster-run-{run.run_id}")
        (pod,) = plane.get("pods", "--namespace", NAMESPACE, *selector)["items"]
        yield instance, run.run_id, pod


def test_a_run_of_dagster_is_a_job_that_the_server_takes(
    installed: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with launched(installed, tmp_path, monkeypatch) as (instance, run, pod):
        assert pod["metadata"]["labels"]["multilink/release"] == RELEASE
        (container,) = pod["spec"]["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert {"/dagster", "/home/multilink", "/settings", "/tmp"} <= {
            mount["mountPath"] for mount in container["volumeMounts"]
        }
        assert "RAY_AUTH_TOKEN" in {variable["name"] for variable in container["env"]}
        assert instance.run_launcher.terminate(run)
    wait_for(lambda: f"dagster-run-{run}" not in installed.names("jobs", NAMESPACE), "the run's job is deleted")


def as_in_pod(plane: ControlPlane, pod: Any, root: Path) -> dict[str, str]:
    """Write the files that a kubelet would mount into a pod below `root`; return its variables, with those paths.

    Of the variables, those of config maps and those that have a value.
    """
    (container,) = pod["spec"]["containers"]
    volumes = {each["name"]: each for each in pod["spec"]["volumes"]}
    folders: list[str] = []
    for mount in container["volumeMounts"]:
        volume, folder = volumes[mount["name"]], root / mount["mountPath"].lstrip("/")
        kind = next((each for each in ("configMap", "secret") if each in volume), None)
        if kind is None or "subPath" in mount:
            continue
        about, folders = volume[kind], [*folders, mount["mountPath"]]
        name = about["name"] if kind == "configMap" else about["secretName"]
        data = plane.get(kind.lower(), name, "--namespace", NAMESPACE)["data"]
        folder.mkdir(parents=True)
        for item in about.get("items") or [{"key": key, "path": key} for key in data]:
            text = data[item["key"]]
            (folder / item["path"]).write_bytes(base64.b64decode(text) if kind == "secret" else text.encode())
    maps = [each["configMapRef"]["name"] for each in container["envFrom"] if "configMapRef" in each]
    variables = {
        key: value
        for name in maps
        for key, value in plane.get("configmap", name, "--namespace", NAMESPACE)["data"].items()
    } | {each["name"]: each["value"] for each in container["env"] if "value" in each}
    return {name: f"{root}{value}" if value.startswith(tuple(folders)) else value for name, value in variables.items()}


def test_a_run_promotes_by_the_policy_and_with_the_key_of_its_pod(
    installed: ControlPlane, empty_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No container runs here: its step runs in a process with the files and variables that its pod would have.

    The lake and the registry are on this machine.
    """
    lake = lakes.write_lake(tmp_path / "lake", lakes.splits(train=30, val=30, test=30))
    model = run_train(
        lake=lake.root.uri, dataset="synthetic", recipe="tiny", overrides=SMALL, tracking=empty_store, say=print
    ).version
    key = tmp_path / "key.pem"
    make_key(key)
    secret = ("create", "secret", "generic", "signing", f"--from-file=key.pem={key}", "--namespace", NAMESPACE)
    installed.kubectl(*secret)
    values = tmp_path / "values.yaml"
    given = {
        "signing": {"secret": "signing", "trusted": {"release.pub.pem": public_path(key).read_text()}},
        "policies": {"own.toml": "min_documents = 7\nlatest_only = false\n"},
        "settings": {
            "datasets": [{"name": "diy", "policy": "own.toml", "objectives": ["cross-document"]}],
        },
    }
    values.write_text(yaml.safe_dump(given), encoding="utf-8")
    chart = (RELEASE, str(CHART), "--namespace", NAMESPACE, *NEEDED, "--values", str(values))
    done = installed.run("helm", "upgrade", *chart, "--wait")
    assert done.returncode == 0, done.stderr
    with launched(installed, tmp_path, monkeypatch) as (_, _, pod):
        variables = as_in_pod(installed, pod, tmp_path / "pod")
    command = [sys.executable, "-c", PROMOTE, empty_store, lake.root.uri, model.name]
    subprocess.run(command, env=clean_environment() | variables, check=True, timeout=300)
    record = read_record(registered(connect(empty_store), model.name), keys=keys_of([public_path(key)]))
    proof = prove(record, record.number("champion"))
    assert proof.promotion.policy["min_documents"] == 7 and proof.version == model.version
