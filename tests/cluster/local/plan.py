"""A cluster that is to run: its machines, its programs, its secrets, and where it keeps what.

Where this process may make them (root on Linux, with `ip`), a machine is a network namespace on a bridge: a program in
it reaches the others by their addresses alone, `localhost` is its own, and its link can be cut. Elsewhere a machine is
an address of the loopback network, which all programs share.

    10.77.0.1   this machine, on the bridge      127.77.0.1
    10.77.0.2   the first machine                127.77.0.2   ...
"""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestration.local.supervisor import Service
from schemas.messages import UsageError

from .programs import Engine, Programs

_BRIDGE = "multilink"
_NAMESPACE = "multilink-"
_NETWORK, _LOOPBACK = "10.77.0", "127.77.0"
_ALONE = Path("/run/multilink-cluster.lock")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine of the cluster.

    Attributes:
        name: unique among them.
        address: IPv4.
        enter: goes before a command that is to run on it.
        link: what connects it with the others, where that can be cut; else empty.
    """

    name: str
    address: str
    enter: tuple[str, ...] = ()
    link: str = ""

    @property
    def is_separate(self) -> bool:
        """Return whether it has a network of its own."""
        return bool(self.link)

    def connect(self, *, is_up: bool) -> None:
        """Cut its link, or mend it."""
        _ip("link", "set", self.link, "up" if is_up else "down")


@contextlib.contextmanager
def networked(names: Sequence[str]) -> Iterator[dict[str, Machine]]:
    """Give the machines of these names while the block runs; what a killed cluster left of them goes first."""
    numbers = {name: number for number, name in enumerate(names, 2)}
    if not _may_make_namespaces():
        yield {name: Machine(name=name, address=f"{_LOOPBACK}.{number}") for name, number in numbers.items()}
        return
    with _ALONE.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            raise UsageError(f"another cluster runs on this machine, with the addresses {_NETWORK}.*") from problem
        _remove(numbers)
        try:
            _ip("link", "add", _BRIDGE, "type", "bridge")
            _ip("address", "add", f"{_NETWORK}.1/24", "dev", _BRIDGE)
            _ip("link", "set", _BRIDGE, "up")
            yield {name: _make(name, number) for name, number in numbers.items()}
        finally:
            _remove(numbers)


def _make(name: str, number: int) -> Machine:
    namespace, link, address = f"{_NAMESPACE}{name}", f"{_BRIDGE}{number}", f"{_NETWORK}.{number}"
    _ip("netns", "add", namespace)
    _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", namespace)
    _ip("link", "set", link, "master", _BRIDGE, "up")
    _ip("-n", namespace, "address", "add", f"{address}/24", "dev", "eth0")
    for device in ("lo", "eth0"):
        _ip("-n", namespace, "link", "set", device, "up")
    return Machine(name=name, address=address, enter=("ip", "netns", "exec", namespace), link=link)


def _remove(numbers: Mapping[str, int]) -> None:
    for name, number in numbers.items():
        _ip("link", "delete", f"{_BRIDGE}{number}", is_needed=False)  # else it goes some time after its namespace
        _ip("netns", "delete", f"{_NAMESPACE}{name}", is_needed=False)
    _ip("link", "delete", _BRIDGE, is_needed=False)


def _may_make_namespaces() -> bool:
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    probe = f"{_NAMESPACE}probe"
    try:
        return _ip("netns", "add", probe, is_needed=False)
    finally:
        _ip("netns", "delete", probe, is_needed=False)


def _ip(*arguments: str, is_needed: bool = True) -> bool:
    return not subprocess.run(["ip", *arguments], check=is_needed, capture_output=True).returncode


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """What lets a program in: made once for a cluster, passed by environment variables and files alone."""

    s3_key: str
    s3_secret: str
    postgres_password: str
    ray_token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A cluster that is to run.

    Attributes:
        home: folder of everything it keeps.
        scratch: folder of what is temporary; its path is short, for there are sockets in it.
        user: goes before a command that must not run as root.
    """

    engine: Engine
    home: Path
    scratch: Path
    machines: Mapping[str, Machine]
    programs: Programs
    secrets: Secrets
    user: tuple[str, ...] = ()

    def service(
        self,
        name: str,
        machine: str,
        command: Sequence[str],
        port: int = 0,
        environment: Mapping[str, str] | None = None,
    ) -> Service:
        """Return a program on a machine."""
        at = self.machines[machine]
        return Service(
            name=name, command=(*at.enter, *command), port=port, host=at.address, environment=environment or {}
        )

    def url(self, machine: str, port: int, scheme: str = "http") -> str:
        """Return where a program is reached."""
        return f"{scheme}://{self.machines[machine].address}:{port}"
