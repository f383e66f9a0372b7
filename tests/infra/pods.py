"""Pods of the chart on one machine, each in a sandbox as its manifest describes it: bubblewrap in place of a kubelet.

The root is the image's, read-only. Volumes are mounted where the pod mounts them. User, rights and environment are the
manifest's. All pods share one network namespace, in which the names of services are loopback.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Objects = Mapping[tuple[str, str], Any]
_GRPC = (
    "import grpc, sys; from grpc_health.v1 import health_pb2 as p, health_pb2_grpc as g;"
    "stub = g.HealthStub(grpc.insecure_channel('127.0.0.1:' + sys.argv[1]));"
    "answer = stub.Check(p.HealthCheckRequest(service=sys.argv[2]), timeout=5);"
    "sys.exit(answer.status != p.HealthCheckResponse.SERVING)"
)
_HTTP = "import sys, urllib.request as u; u.urlopen(f'http://127.0.0.1:{sys.argv[1]}{sys.argv[2]}', timeout=5)"


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Where pods run.

    Attributes:
        root: folder with the image's files.
        environment: what the image sets.
        secrets: keys of each Secret that pods refer to.
        folder: of volumes and logs.
        network: name of the network namespace.
    """

    root: Path
    environment: Mapping[str, str]
    secrets: Mapping[str, Mapping[str, str]]
    folder: Path
    network: str

    @contextlib.contextmanager
    def running(self, objects: Objects, name: str) -> Iterator[None]:
        """Run a Deployment's pod until the end of the block; what it prints is in `folder`."""
        container = _container(objects, name)
        with (self.folder / f"{name}.log").open("w") as log:
            process = subprocess.Popen(self._sandbox(objects, name, container["command"]), stdout=log, stderr=log)
            try:
                yield
            finally:
                process.terminate()
                process.wait(60)

    def run(self, objects: Objects, name: str, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command as a pod's container would."""
        return subprocess.run(self._sandbox(objects, name, command), capture_output=True, text=True, check=False)

    def passes(self, objects: Objects, name: str, probe: str) -> bool:
        """Return whether a pod passes one of its probes."""
        container = _container(objects, name)
        described = container[probe]
        ports = {port["name"]: port["containerPort"] for port in container.get("ports", [])}
        if "exec" in described:
            return self.run(objects, name, described["exec"]["command"]).returncode == 0
        if "grpc" in described:
            asked = [sys.executable, "-c", _GRPC, str(described["grpc"]["port"]), described["grpc"]["service"]]
        else:
            get = described["httpGet"]
            asked = [sys.executable, "-c", _HTTP, str(ports[get["port"]]), get["path"]]
        return self.ask(asked).returncode == 0

    def ask(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command of this machine in the pods' network."""
        inside = ["ip", "netns", "exec", self.network, *command]
        return subprocess.run(inside, capture_output=True, text=True, check=False)

    def _sandbox(self, objects: Objects, name: str, command: Sequence[str]) -> list[str]:
        pod = objects["Deployment", name]["spec"]["template"]["spec"]
        container, user = _container(objects, name), pod["securityContext"]
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        sandbox = [
            "bwrap",
            "--die-with-parent",
            "--ro-bind",
            str(self.root),
            "/",
            "--proc",
            "/proc",
            "--dev-bind",
            "/dev",
            "/dev",
        ]
        sandbox += ["--unshare-pid", "--unshare-ipc", "--clearenv"]
        for mount in sorted(container["volumeMounts"], key=lambda mount: mount["mountPath"]):
            (volume,) = [each for each in pod["volumes"] if each["name"] == mount["name"]]
            sandbox += self._mount(objects, name, mount, volume)
        for variable, value in {**self.environment, **self._variables(objects, container)}.items():
            sandbox += ["--setenv", variable, value]
        rights = ["setpriv", f"--reuid={user['runAsUser']}", f"--regid={user['runAsGroup']}", "--clear-groups"]
        rights += ["--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"]
        return ["ip", "netns", "exec", self.network, *sandbox, "--", *rights, *command]

    def _mount(self, objects: Objects, name: str, mount: dict[str, Any], volume: dict[str, Any]) -> list[str]:
        """Return the options of a mount; what a runtime makes of the image's root is the point to mount on."""
        point = self.root / mount["mountPath"].lstrip("/")
        if "emptyDir" in volume:
            point.mkdir(parents=True, exist_ok=True)
            own = self.folder / "volumes" / name / mount["subPath"]
            own.mkdir(parents=True, exist_ok=True)
            own.chmod(0o777)
            return ["--bind", str(own), mount["mountPath"]]
        kept = self.folder / volume["configMap"]["name"]
        kept.mkdir(exist_ok=True)
        for file, text in objects["ConfigMap", volume["configMap"]["name"]]["data"].items():
            (kept / file).write_text(text, encoding="utf-8")
        if "subPath" not in mount:
            point.mkdir(parents=True, exist_ok=True)
        return ["--ro-bind", str(kept / mount.get("subPath", "")), mount["mountPath"]]

    def _variables(self, objects: Objects, container: dict[str, Any]) -> dict[str, str]:
        found: dict[str, str] = {}
        for source in container.get("envFrom", []):
            if "configMapRef" in source:
                found |= objects["ConfigMap", source["configMapRef"]["name"]]["data"]
            else:
                found |= self.secrets.get(source["secretRef"]["name"], {})
        for variable in container.get("env", []):
            key = variable["valueFrom"]["secretKeyRef"]
            found[variable["name"]] = self.secrets[key["name"]][key["key"]]
        return found


@contextlib.contextmanager
def network(name: str) -> Iterator[None]:
    """Make a network namespace that has a loopback and nothing else."""
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        yield
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


def _container(objects: Objects, name: str) -> Any:
    (only,) = objects["Deployment", name]["spec"]["template"]["spec"]["containers"]
    return only
