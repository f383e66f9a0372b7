"""A Kubernetes without nodes: etcd, API server, controllers and scheduler as processes, and kwok in place of kubelets.

    etcd  <-  kube-apiserver  <-  kube-controller-manager     Deployments and Jobs become pods
                              <-  kube-scheduler              pods get a node
                              <-  kwok                        pods of its nodes are running and ready, and Jobs end

Everything a cluster decides before a container starts is decided by the real programs: validation, defaults, admission
(Pod Security), service accounts and their rights. No container runs.
"""

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from programs import built
from servers import free_port, wait_for

SECRETS = {"multilink-postgres": "postgresql-password", "multilink-ray": "auth_token", "multilink-pages": "token"}
PROGRAMS = ("server", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "kubectl", "helm")
ADMIN, END_S = "admin-token", 20.0


@dataclass(frozen=True)
class ControlPlane:
    """A running control plane.

    Attributes:
        home: folder of its files, the programs' logs among them.
        port: of the API server, on loopback.
    """

    home: Path
    port: int

    @property
    def kubeconfig(self) -> Path:
        """Return the file with the administrator's credentials."""
        return self.home / "kubeconfig"

    @property
    def certificate(self) -> Path:
        """Return the API server's certificate, which it has signed itself."""
        return self.home / "apiserver.crt"

    def run(self, program: str, *arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run `kubectl` or `helm` as the administrator."""
        environment = os.environ | {"KUBECONFIG": str(self.kubeconfig)}
        return subprocess.run(
            [built(program), *arguments], env=environment, input=text, capture_output=True, text=True, check=False
        )

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        """Return what kubectl prints; it must go well."""
        done = self.run("kubectl", *arguments, text=text)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def get(self, *arguments: str) -> Any:
        """Return an object, or a list of them."""
        return json.loads(self.kubectl("get", *arguments, "--output", "json"))

    def token(self, account: str, namespace: str) -> str:
        """Return a token of a service account, as its pods get one."""
        return self.kubectl("create", "token", account, "--namespace", namespace).strip()

    def names(self, kind: str, namespace: str) -> set[str]:
        """Return the names of the objects of a kind."""
        return {each["metadata"]["name"] for each in self.get(kind, "--namespace", namespace)["items"]}

    def prepare(self, namespace: str) -> None:
        """Make a namespace, held to Pod Security `restricted`, with the secrets that the chart asks for."""
        labels = {f"pod-security.kubernetes.io/{how}": "restricted" for how in ("enforce", "warn")}
        described = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}
        self.kubectl("create", "--filename", "-", text=json.dumps(described))
        for name, key in SECRETS.items():
            self.kubectl("create", "secret", "generic", name, f"--from-literal={key}=x", "--namespace", namespace)


@contextlib.contextmanager
def started(home: Path, nodes: int) -> Iterator[ControlPlane]:
    """Start a control plane with a number of nodes, wait until it is ready, and end it with the block."""
    for program in PROGRAMS:
        built(program)
    etcd, peers, port, *metrics = (free_port() for _ in range(5))
    plane = ControlPlane(home, port)
    _write_credentials(plane)
    with contextlib.ExitStack() as processes:

        def start(program: str, *arguments: str) -> None:
            processes.enter_context(running(plane, program, *arguments))

        start("server", *_etcd(home, etcd, peers))
        start("kube-apiserver", *_apiserver(plane, etcd))
        wait_for(lambda: "ok" in plane.run("kubectl", "get", "--raw", "/readyz").stdout, "the API server is ready")
        as_admin = (f"--kubeconfig={plane.kubeconfig}", "--leader-elect=false", "--bind-address=127.0.0.1")
        signed = (f"--service-account-private-key-file={home / 'accounts.key'}", f"--root-ca-file={plane.certificate}")
        start("kube-controller-manager", *as_admin, *signed, f"--secure-port={metrics[0]}")
        start("kube-scheduler", *as_admin, f"--secure-port={metrics[1]}")
        start("kwok", f"--kubeconfig={plane.kubeconfig}", f"--config={built('stages.yaml')}", "--manage-all-nodes=true")
        for number in range(nodes):
            plane.kubectl("create", "--filename", "-", text=json.dumps(_node(f"node-{number}")))
        wait_for(lambda: "False" not in _ready_nodes(plane) and "True" in _ready_nodes(plane), "the nodes are ready")
        yield plane


@contextlib.contextmanager
def running(plane: ControlPlane, program: str, *arguments: str) -> Iterator[None]:
    """Run a program beside the control plane, as its administrator; what it prints is in `home`."""
    environment = os.environ | {"KUBECONFIG": str(plane.kubeconfig)}
    with (plane.home / f"{program}.log").open("w") as log:
        command = [built(program), *arguments]
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=plane.home, env=environment)
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _etcd(home: Path, port: int, peers: int) -> list[str]:
    url, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peers}"
    client = [f"--listen-client-urls={url}", f"--advertise-client-urls={url}"]
    cluster = [
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
    ]
    return [f"--data-dir={home / 'etcd'}", "--unsafe-no-fsync", *client, *cluster]


def _apiserver(plane: ControlPlane, etcd: int) -> list[str]:
    return [
        f"--etcd-servers=http://127.0.0.1:{etcd}",
        "--bind-address=127.0.0.1",
        f"--secure-port={plane.port}",
        f"--cert-dir={plane.home}",
        "--authorization-mode=Node,RBAC",
        f"--token-auth-file={plane.home / 'tokens.csv'}",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={plane.home / 'accounts.key'}",
        f"--service-account-signing-key-file={plane.home / 'accounts.key'}",
    ]


def _write_credentials(plane: ControlPlane) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    (plane.home / "accounts.key").write_bytes(key)
    (plane.home / "tokens.csv").write_text(f'{ADMIN},admin,admin,"system:masters"\n', encoding="utf-8")
    server = {"server": f"https://127.0.0.1:{plane.port}", "certificate-authority": str(plane.certificate)}
    configuration = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": server}],
        "users": [{"name": "admin", "user": {"token": ADMIN}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        "current-context": "test",
    }
    plane.kubeconfig.write_text(yaml.safe_dump(configuration), encoding="utf-8")
    plane.kubeconfig.chmod(0o600)


def _node(name: str) -> dict[str, Any]:
    has = {"cpu": "64", "memory": "256Gi", "pods": "110", "ephemeral-storage": "1Ti", "nvidia.com/gpu": "8"}
    annotations = {"node.alpha.kubernetes.io/ttl": "0", "kwok.x-k8s.io/node": "fake"}
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "type": "kwok"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": annotations, "labels": labels},
        "status": {"allocatable": has, "capacity": has},
    }


def _ready_nodes(plane: ControlPlane) -> str:
    path = '{.items[*].status.conditions[?(@.type=="Ready")].status}'
    return plane.kubectl("get", "nodes", "--output", f"jsonpath={path}")
