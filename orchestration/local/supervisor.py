"""Keeps processes running: starts them, starts again what ended, and ends all of them together.

One that ends again and again soon after its start is not started for ever: the command ends with its last words.

All processes inherit a mark in their environment, which neither a new session nor the death of a parent takes away; on
Linux `/proc` shows it. As a program, this module is the guard of a supervisor: it sleeps until its parent ends, however
that happens, and then ends whatever carries the mark.

    python -m orchestration.local.supervisor PARENT_PID MARK

Elsewhere than on Linux nothing is marked: the supervisor ends its children, where it still can.
"""

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

from schemas.messages import BuildError

HOST = "127.0.0.1"
MARK_VARIABLE = "MULTILINK_UP"
START_TIMEOUT_S = 180.0
GRACE_S = 10.0
QUICK_ENDS_SURVIVED = 3
QUICK_S = 120.0  # as many ends within this time are quick ones
_POLL_S = 0.2
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A process that is kept running.

    Attributes:
        name: of its log.
        command: the program and its arguments.
        port: it listens on, or 0.
        host: where that port is.
        environment: added to what its supervisor gives all services.
        needs_others: whether it starts once the others listen, and ends before them.
    """

    name: str
    command: tuple[str, ...]
    port: int = 0
    host: str = HOST
    environment: Mapping[str, str] = field(default_factory=dict)
    needs_others: bool = False


@dataclass(slots=True)
class Supervisor:
    """Some services, being kept.

    Attributes:
        services: in the order they start; where none needs the others, the last one does.
        environment: added to this process's own for each of them; it holds the mark.
        logs: folder of their logs.
        say: takes a line when something happens.
    """

    services: Sequence[Service]
    environment: Mapping[str, str]
    logs: Path
    say: Callable[[str], None]
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _starts: dict[str, list[float]] = field(default_factory=dict)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run the services while the block lasts; nothing is left of them after it, or after this process."""
        mark, quiet = self.environment[MARK_VARIABLE], subprocess.DEVNULL
        command = [sys.executable, "-m", "orchestration.local.supervisor", str(os.getpid()), mark]
        guard = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
        try:
            for together in self._phases():
                for service in together:
                    self._start(service)
                for service in together:
                    self.await_port(service)
            yield
        finally:
            self._stop()
            end_marked(mark, grace_s=GRACE_S / 2)
            guard.kill()
            guard.wait()

    def watch(self) -> list[Service]:
        """Start again what ended since the last look, and return it.

        Raises:
            BuildError: a service ended again and again soon after its start.
        """
        ended = [service for service in self.services if self._running[service.name].poll() is not None]
        for service in ended:
            starts = self._starts[service.name][-1 - QUICK_ENDS_SURVIVED :]
            if len(starts) > QUICK_ENDS_SURVIVED and time.monotonic() - starts[0] < QUICK_S:
                raise BuildError(self._last_words(service))
            self.say(f"{self._last_words(service)}; starting it again")
            _signal([-self.pid(service.name)], signal.SIGKILL)
            self._start(service)
        return ended

    def await_port(self, service: Service) -> None:
        """Wait until a service listens.

        Raises:
            BuildError: it ended before, or does not listen in time.
        """
        deadline = time.monotonic() + START_TIMEOUT_S
        while service.port and not _listens(service):
            if self._running[service.name].poll() is not None:
                raise BuildError(self._last_words(service))
            if time.monotonic() > deadline:
                raise BuildError(f"{service.name} did not listen on port {service.port} in {START_TIMEOUT_S:.0f} s")
            time.sleep(_POLL_S)

    def _phases(self) -> tuple[list[Service], list[Service]]:
        later = [each for each in self.services if each.needs_others] or list(self.services[-1:])
        return [each for each in self.services if each not in later], later

    def pid(self, name: str) -> int:
        """Return the process of a service."""
        return self._running[name].pid

    def _start(self, service: Service) -> None:
        self.logs.mkdir(parents=True, exist_ok=True)
        with (self.logs / f"{service.name}.log").open("ab") as log:
            self._running[service.name] = subprocess.Popen(
                service.command,
                env={**os.environ, **self.environment, **service.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._starts.setdefault(service.name, []).append(time.monotonic())

    def _stop(self) -> None:
        """End the services with the processes of their sessions: SIGTERM first, SIGKILL after a while."""
        deadline = time.monotonic() + GRACE_S
        for together in reversed(self._phases()):
            processes = [self._running[each.name] for each in together if each.name in self._running]
            groups = [-process.pid for process in processes]
            _signal(groups, signal.SIGTERM)
            for process in processes:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, deadline - time.monotonic()))
            _signal(groups, signal.SIGKILL)
            for process in processes:
                process.wait()

    def _last_words(self, service: Service) -> str:
        status = self._running[service.name].returncode
        how = f"status {status}" if status >= 0 else f"signal {-status}"
        lines = (self.logs / f"{service.name}.log").read_text(encoding="utf-8", errors="replace").splitlines()
        last = next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")
        return f"{service.name} ended with {how} ({last[:200]})"


def marked(mark: str) -> list[int]:
    """Return the processes that carry a mark, but this one; one that has ended shows none."""
    wanted = f"{MARK_VARIABLE}={mark}".encode()
    found: list[int] = []
    for folder in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return [pid for pid in sorted(found) if pid != os.getpid()]


def end_marked(mark: str, *, grace_s: float = GRACE_S) -> int:
    """End the processes that carry a mark: SIGTERM first, SIGKILL after `grace_s`. Returns how many there were."""
    left = marked(mark)
    count = len(left)
    _signal(left, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while left := marked(mark):
        if time.monotonic() > deadline:  # again and again: one may have started another meanwhile
            _signal(left, signal.SIGKILL)
        time.sleep(0.05)
    return count


def main() -> None:
    """Wait for the end of the parent, then end what it left."""
    parent, mark = int(sys.argv[1]), sys.argv[2]
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
    while os.getppid() == parent:
        time.sleep(_POLL_S)
    end_marked(mark)


def _signal(processes: Sequence[int], number: signal.Signals) -> None:
    """Send a signal to processes; a negative number is a group of them."""
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _listens(service: Service) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((service.host, service.port), timeout=1):
        return True
    return False


if __name__ == "__main__":
    main()
