"""The chart by the programs that read it: helm, and the parsers of what its pods start."""

from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import parse
from dagster._core.instance.ref import InstanceRef
from programs import CHART, NEEDED, RELEASE, helm, objects, template

from orchestration.config import PAGE_VARIABLE, SETTINGS_VARIABLE, RayWhere, read_settings

DEPLOYMENTS = ("webserver", "daemon", "code", "mlflow", "pages")


@pytest.fixture(scope="module")
def chart() -> dict[tuple[str, str], Any]:
    return objects(template())


def container(chart: dict[tuple[str, str], Any], name: str) -> Any:
    (only,) = chart["Deployment", f"{RELEASE}-{name}"]["spec"]["template"]["spec"]["containers"]
    return only


def test_the_chart_passes_helms_own_rules() -> None:
    done = helm("lint", "--strict", str(CHART), *NEEDED)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 chart(s) linted, 0 chart(s) failed" in done.stdout


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("postgres.host=", "postgres.host is required"),
        ("postgress.host=x", "additional properties 'postgress' not allowed"),
        ("mlflow.replicas=0", "at '/mlflow/replicas': minimum: got 0, want 1"),
        ("settings.lake=lake", "at '/settings/lake'"),
        ("settings.tracking_uri=http://x", "at '/settings'"),
        ("runs.scratch=large", "at '/runs/scratch'"),
        ("signing.secret=keys", "signing.trusted is required"),
    ],
)
def test_a_wrong_value_is_refused_by_name(setting: str, words: str) -> None:
    done = helm("template", RELEASE, str(CHART), *NEEDED, "--set", setting)
    assert done.returncode != 0 and words in done.stderr


def test_the_chart_is_of_the_projects_version(chart: dict[tuple[str, str], Any]) -> None:
    about = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert about["appVersion"] == version("multilink-pipeline")
    assert container(chart, "code")["image"] == f"multilink:{version('multilink-pipeline')}"


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_pod_runs_a_command_of_ours_with_bounds_and_probes(
    name: str, chart: dict[tuple[str, str], Any], tmp_path: Path
) -> None:
    pod, only = chart["Deployment", f"{RELEASE}-{name}"]["spec"]["template"]["spec"], container(chart, name)
    workspace = tmp_path / "workspace.yaml"
    workspace.write_text(chart["ConfigMap", f"{RELEASE}-dagster"]["data"]["workspace.yaml"], encoding="utf-8")
    assert parse([word.replace("/dagster/workspace.yaml", str(workspace)) for word in only["command"]])
    assert only["resources"]["requests"].keys() == {"cpu", "memory"} and "memory" in only["resources"]["limits"]
    assert "livenessProbe" in only
    assert only["securityContext"]["readOnlyRootFilesystem"] is True
    assert {mount["name"] for mount in only["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}


def test_every_service_leads_to_the_port_its_pod_listens_on(chart: dict[tuple[str, str], Any]) -> None:
    services = {name: each for (kind, name), each in chart.items() if kind == "Service"}
    assert services.keys() == {f"{RELEASE}-{name}" for name in ("webserver", "code", "mlflow", "pages")}
    for name, service in services.items():
        template_, (port,) = chart["Deployment", name]["spec"]["template"], service["spec"]["ports"]
        assert service["spec"]["selector"].items() <= template_["metadata"]["labels"].items()
        (listened,) = template_["spec"]["containers"][0]["ports"]
        assert (port["targetPort"], port["port"]) == (listened["name"], listened["containerPort"])
        assert str(port["port"]) in " ".join(template_["spec"]["containers"][0]["command"])
        admitted = [
            rule["ports"][0]["port"]
            for (kind, _), policy in chart.items()
            if kind == "NetworkPolicy"
            if policy["spec"]["podSelector"]["matchLabels"] == service["spec"]["selector"]
            for rule in policy["spec"].get("ingress", [])
        ]
        assert admitted in ([], [port["port"]])  # none: nobody visits the webserver unless the values say who


def test_the_pages_ask_for_a_token_or_believe_a_proxy(
    chart: dict[tuple[str, str], Any], values: dict[str, tuple[str, ...]]
) -> None:
    for made, has_token in ((chart, True), (objects(template(*values["everything"])), False)):
        only = container(made, "pages")
        assert ("MULTILINK_PAGES_TOKEN" in {each["name"] for each in only["env"]}) is has_token
        assert ("--user-header=X-Forwarded-User" in only["command"]) is not has_token
    assert not [name for _, name in objects(template(*values["no pages"])) if name.endswith("-pages")]


def test_the_settings_are_those_of_orchestration(chart: dict[tuple[str, str], Any]) -> None:
    files = chart["ConfigMap", f"{RELEASE}-dagster"]["data"]
    settings = read_settings(files["settings.yaml"], where="settings.yaml")
    assert (settings.ray.where, settings.ray.address) == (RayWhere.RAY_JOB, f"http://{RELEASE}-ray-head-svc:8265")
    assert chart["RayCluster", f"{RELEASE}-ray"]["spec"]["rayVersion"] == version("ray")
    environment = chart["ConfigMap", f"{RELEASE}-environment"]["data"]
    assert environment["MLFLOW_TRACKING_URI"] == settings.tracking_uri == f"http://{RELEASE}-mlflow:5000"
    assert environment[PAGE_VARIABLE] == "http://localhost:5000"
    mounted = {mount["mountPath"] for mount in container(chart, "code")["volumeMounts"]}
    needed = {Path(environment[SETTINGS_VARIABLE]).parent.as_posix(), f"{environment['DAGSTER_HOME']}/dagster.yaml"}
    assert needed <= mounted
    server = yaml.safe_load(files["workspace.yaml"])["load_from"][0]["grpc_server"]
    assert ("Service", server["host"]) in chart and str(server["port"]) in container(chart, "code")["command"]


def test_runs_alone_have_the_key_and_every_pod_the_trusted_ones(values: dict[str, tuple[str, ...]]) -> None:
    chart = objects(template(*values["everything"]))
    files = chart["ConfigMap", f"{RELEASE}-dagster"]["data"]
    launcher = yaml.safe_load(files["dagster.yaml"])["run_launcher"]["config"]
    environment = {each["name"]: each.get("value") for each in launcher["run_k8s_config"]["container_config"]["env"]}
    mounts = {each["name"]: each["mountPath"] for each in launcher["volume_mounts"]}
    assert environment["MULTILINK_KEY"] == f"{mounts['signing']}/key.pem" and environment["HTTPS_PROXY"]
    assert {each["name"] for each in launcher["volumes"]} == mounts.keys()
    assert environment["MULTILINK_TRUST"] == mounts["trusted"]
    for name in ("code", "daemon", "webserver", "pages"):
        only = container(chart, name)
        environment = {each["name"]: each.get("value") for each in only["env"]}
        assert "MULTILINK_KEY" not in environment and environment["MULTILINK_TRUST"] == "/trusted"
        assert {"trusted", "ca"} <= {each["name"] for each in only["volumeMounts"]} and "signing" not in str(only)
    (volume,) = [each for each in launcher["volumes"] if each["name"] == "settings"]
    assert {each["key"] for each in volume["configMap"]["items"]} == {"settings.yaml", "policy.toml"} <= files.keys()


def test_ray_pods_have_what_the_chart_gives_its_own(
    values: dict[str, tuple[str, ...]], chart: dict[tuple[str, str], Any]
) -> None:
    standard, chart = chart, objects(template(*values["everything"]))
    cluster = chart["RayCluster", f"{RELEASE}-ray"]["spec"]
    head, (worker,) = cluster["headGroupSpec"], cluster["workerGroupSpecs"]
    assert (worker["minReplicas"], worker["maxReplicas"], cluster["enableInTreeAutoscaling"]) == (0, 4, True)
    assert cluster["authOptions"]["secretName"] in chart["ConfigMap", f"{RELEASE}-dagster"]["data"]["dagster.yaml"]
    for pod in (head["template"]["spec"], worker["template"]["spec"]):
        assert pod["imagePullSecrets"] == [{"name": "registry"}] and pod["nodeSelector"] == {"pool": "cpu"}
        assert ("ServiceAccount", pod["serviceAccountName"]) in chart
        assert pod["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
        (only,) = pod["containers"]
        secret = [{"secretRef": {"name": "multilink", "optional": True}}]
        assert (only["image"], only["envFrom"]) == ("registry.example/multilink:1-cuda", secret)
        assert {"MULTILINK_TRUST", "HTTPS_PROXY"} == {each["name"] for each in only["env"]}
        assert {each["name"] for each in only["volumeMounts"]} == {each["name"] for each in pod["volumes"]}
    assert worker["template"]["spec"]["automountServiceAccountToken"] is False  # the head's autoscaler needs its token
    assert only["resources"]["limits"] == {"cpu": "4", "memory": "64Gi", "nvidia.com/gpu": "1"}  # the worker's
    assert container(chart, "code")["image"] == "registry.example/multilink:1"
    (head,) = standard["RayCluster", f"{RELEASE}-ray"]["spec"]["headGroupSpec"]["template"]["spec"]["containers"]
    assert head["image"] == container(standard, "code")["image"]
    without = objects(template(*values["no Ray"]))
    assert not [name for kind, name in without if kind == "RayCluster" or name == f"{RELEASE}-ray"]


def test_visitors_of_the_pages_reach_no_page_without_a_login(values: dict[str, tuple[str, ...]]) -> None:
    chart = objects(template(*values["everything"]))
    admitted = {
        name: str(chart["NetworkPolicy", f"{RELEASE}-{name}"]["spec"]["ingress"])
        for name in ("webserver", "mlflow", "pages")
    }
    assert "ingress'" in admitted["pages"] and "sso" not in admitted["pages"]
    assert all("sso" in admitted[name] and "ingress'" not in admitted[name] for name in ("webserver", "mlflow"))
    assert chart["Ingress", f"{RELEASE}-pages"]["spec"]["rules"][0]["host"] == "news.example"
    budgets = {name for kind, name in chart if kind == "PodDisruptionBudget"}
    assert budgets == {f"{RELEASE}-{name}" for name in ("webserver", "mlflow", "pages")}


def test_dagster_takes_its_configuration(
    chart: dict[tuple[str, str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part is made by its class, as Dagster makes it. In a pod the launcher also takes the pod's credentials."""
    (tmp_path / "dagster.yaml").write_text(chart["ConfigMap", f"{RELEASE}-dagster"]["data"]["dagster.yaml"])
    monkeypatch.setattr("dagster_k8s.launcher.load_kubernetes_config", lambda **_: None)
    monkeypatch.setenv("DAGSTER_PG_PASSWORD", "p/w")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    reference = InstanceRef.from_dir(str(tmp_path))
    assert reference.run_launcher.service_account_name == f"{RELEASE}-dagster"  # type: ignore[attr-defined]
    assert type(reference.compute_log_manager).__name__ == "S3ComputeLogManager"
    storage = reference.storage_data.config_dict["postgres_db"]
    assert (storage["hostname"], storage["db_name"]) == ("db.example", "dagster")
