"""Keeps processes running: starts them, starts again what ended, and ends all of them together.

One that ends again and again soon after its start is not started for ever: the command ends with its last words.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orchestration.local.leftovers import MARK_VARIABLE, end_marked
from orchestration.local.services import HOST, Service
from schemas.errors import BuildError

START_TIMEOUT_S = 180.0
GRACE_S = 10.0
QUICK_S = 30.0
QUICK_ENDS_SURVIVED = 3
_POLL_S = 0.2


@dataclass(slots=True)
class Supervisor:
    """Some services, being kept.

    Attributes:
        services: in the order they start; they end in the reverse one, those that come after another first.
        environment: added to this process's own for each of them.
        logs: folder of their logs.
        say: takes a line when something happens.
        on_restart: called before a service that ended is started again; what it returns, once it listens again.
    """

    services: Sequence[Service]
    environment: Mapping[str, str]
    logs: Path
    say: Callable[[str], None]
    on_restart: Callable[[Service], Callable[[], None]] | None = None
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _started: dict[str, float] = field(default_factory=dict)
    _quick_ends: dict[str, int] = field(default_factory=dict)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run the services while the block lasts; nothing is left of them after it, or after this process."""
        guard = self._guard()
        try:
            self._start_all()
            yield
        finally:
            self._stop()
            guard.kill()
            guard.wait()

    def watch(self) -> None:
        """Start again what ended since the last look.

        Raises:
            BuildError: a service ended again and again soon after its start.
        """
        for service in self.services:
            status = self._running[service.name].poll()
            if status is None:
                continue
            is_quick = time.monotonic() - self._started[service.name] < QUICK_S
            self._quick_ends[service.name] = self._quick_ends.get(service.name, 0) + 1 if is_quick else 0
            if self._quick_ends[service.name] > QUICK_ENDS_SURVIVED:
                raise BuildError(self._ended(service, status))
            self.say(f"{self._ended(service, status)}; starting it again")
            self._end_group(service, signal.SIGKILL)
            when_up = None if self.on_restart is None else self.on_restart(service)
            self._start(service)
            if when_up is not None:
                self._await(service)
                when_up()

    def pid(self, name: str) -> int:
        """Return the process of a service."""
        return self._running[name].pid

    def _start_all(self) -> None:
        by_name = {service.name: service for service in self.services}
        for service in self.services:
            if service.after:
                self._await(by_name[service.after])
            self._start(service)
        for service in self.services:
            self._await(service)

    def _start(self, service: Service) -> None:
        self.logs.mkdir(parents=True, exist_ok=True)
        with (self.logs / f"{service.name}.log").open("ab") as log:
            self._running[service.name] = subprocess.Popen(
                service.command(os.getpid()),
                env=os.environ | self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._started[service.name] = time.monotonic()

    def _await(self, service: Service) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while service.port and not _listens(service.port):
            status = self._running[service.name].poll()
            if status is not None:
                raise BuildError(self._ended(service, status))
            if time.monotonic() > deadline:
                raise BuildError(f"{service.name} did not listen on port {service.port} in {START_TIMEOUT_S:.0f} s")
            time.sleep(_POLL_S)

    def _stop(self) -> None:
        started = [service for service in reversed(self.services) if service.name in self._running]
        followers = [service for service in started if service.after]
        deadline = time.monotonic() + GRACE_S
        for together in (followers, [service for service in started if not service.after]):
            for service in together:
                self._end_group(service, signal.SIGTERM)
            for service in together:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._running[service.name].wait(max(0.0, deadline - time.monotonic()))
                self._end_group(service, signal.SIGKILL)
                self._running[service.name].wait()
        end_marked(self.environment[MARK_VARIABLE], grace_s=GRACE_S / 2)

    def _end_group(self, service: Service, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._running[service.name].pid, number)

    def _guard(self) -> subprocess.Popen[bytes]:
        """Start the process that ends everything where this one cannot any more; it carries no mark itself."""
        return subprocess.Popen(
            [sys.executable, "-m", "orchestration.local.leftovers", str(os.getpid()), self.environment[MARK_VARIABLE]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _ended(self, service: Service, status: int) -> str:
        how = f"status {status}" if status >= 0 else f"signal {-status}"
        lines = (self.logs / f"{service.name}.log").read_text(encoding="utf-8", errors="replace").splitlines()
        last = next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")
        return f"{service.name} ended with {how} ({last[:200]})"


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1):
        return True
    return False
