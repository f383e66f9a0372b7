"""A control plane for all tests of `tests/infra` that need one, and the chart installed on it."""

from collections.abc import Iterator

import pytest
import yaml
from control_plane import ControlPlane, started
from programs import CHART, FOLDER, NAMESPACE, NEEDED, RELEASE

# Every optional part of the chart, used.
EVERYTHING = yaml.safe_dump(
    {
        "image": {"repository": "registry.example/multilink", "tag": "1", "pullSecrets": [{"name": "registry"}]},
        "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/lake"}},
        "signing": {"secret": "multilink-signing", "trusted": {"release.pub.pem": "-----BEGIN PUBLIC KEY-----\n"}},
        "policies": {"policy.toml": "approval = true\n"},
        "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
        "extraVolumes": [{"name": "ca", "configMap": {"name": "ca"}}],
        "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/ssl/own", "readOnly": True}],
        "settings": {
            "datasets": [{"name": "diy", "settings": ["http.contact=you@example.org"], "policy": "policy.toml"}],
        },
        "ray": {
            "image": {"tag": "1-cuda"},
            "maxWorkers": 4,
            "worker": {"resources": {"limits": {"memory": "64Gi", "nvidia.com/gpu": "1"}}},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
        },
        "webserver": {"replicas": 2},
        "mlflow": {"replicas": 2, "allowedHosts": ["mlflow.example"]},
        "pages": {
            "replicas": 2,
            "userHeader": "X-Forwarded-User",
            "ingress": {"host": "news.example", "className": "nginx", "tlsSecret": "news-tls"},
        },
        "networkPolicy": {
            "visitors": {
                "consoles": [{"namespaceSelector": {"matchLabels": {"name": "sso"}}}],
                "pages": [{"namespaceSelector": {"matchLabels": {"name": "ingress"}}}],
            }
        },
        "nodeSelector": {"pool": "cpu"},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
    }
)


@pytest.fixture(scope="session")
def values(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, ...]]:
    """Arguments of helm for the values that the tests take, by name."""
    file = tmp_path_factory.mktemp("values") / "everything.yaml"
    file.write_text(EVERYTHING, encoding="utf-8")
    return {
        "standard": (),
        "everything": ("--values", str(file)),
        "open network": ("--set", "networkPolicy.enabled=false"),
        "no pages": ("--set", "pages.enabled=false"),
        "no Ray": ("--set", "ray.enabled=false", "--set", "settings.ray.where=subprocess"),
    }


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with KubeRay's types, the namespace and the secrets that the chart asks for."""
    with started(tmp_path_factory.mktemp("control-plane"), nodes=3) as plane:
        for path in sorted(FOLDER.glob("ray.io_*.yaml")):
            plane.kubectl("apply", "--server-side", "--filename", str(path))
        plane.prepare(NAMESPACE)
        yield plane


@pytest.fixture(scope="session")
def installed(plane: ControlPlane) -> ControlPlane:
    """The chart installed: helm waits until every Deployment is available."""
    done = plane.run("helm", "install", RELEASE, str(CHART), "--namespace", NAMESPACE, *NEEDED, "--wait")
    assert done.returncode == 0, done.stderr
    return plane
