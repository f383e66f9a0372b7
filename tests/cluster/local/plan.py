"""A cluster that is to run: its machines, its programs, its secrets, and where it keeps what."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestration.local.supervisor import Service

from .machines import Machine
from .programs import Engine, Programs


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
