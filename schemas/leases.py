"""One process at a time: a lease on a folder, held while somebody works in it and free again when the holder dies.

    <folder>/lease.json     who holds it: machine, process, since when, last sign of life

On a file system the operating system keeps the lease (`flock`), and frees it the moment its process ends. On an object
store the file itself is the lease: it is written by conditional requests, renewed while the work lasts, and lapses when
it was not renewed for `LAPSE_S`, or at once where its process was one of this machine and is gone.
"""

import fcntl
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import msgspec

from schemas.lake import Folder
from schemas.messages import BuildError, UsageError
from schemas.stores import read_object, write_object

LEASE = "lease.json"
RENEW_S, LAPSE_S, POLL_S = 20.0, 180.0, 1.0
_MOST_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process that holds a lease.

    Attributes:
        token: its own name for this lease.
        machine: host name, and the ids of its start and of the space of process numbers where the system has them:
            containers of one machine may share all but the last.
        process: number on that machine.
        since: when it took the lease, ISO 8601 in UTC.
        renewed_s: its last sign of life, in seconds since 1970 by its own clock.
    """

    token: str
    machine: tuple[str, str]
    process: int
    since: str
    renewed_s: float

    def __str__(self) -> str:
        return f"process {self.process} on {self.machine[0]}, since {self.since}"


class HeldError(UsageError):
    """Another process holds the lease; `holder` says which."""

    def __init__(self, folder: Folder, data: bytes) -> None:
        self.holder = str(_parsed(data) or "another process")
        super().__init__(f"{folder.uri}: {self.holder} is working there; wait until it has ended")


@contextmanager
def hold(folder: Folder, *, on_wait: Callable[[str], None] | None = None) -> Iterator[Callable[[], None]]:
    """Hold the lease on a folder while the body runs; gives what checks that it is held, before what is done for good.

    Args:
        folder: what is worked in; made where it is not there.
        on_wait: takes the holder as a text, once, before it is waited for; None: another holder is an error.

    Raises:
        HeldError: another process holds it.
        BuildError: the lease lapsed while the body ran, and another process has taken it; the check raises it, too.
    """
    take = _lock if folder.local is not None else _renewed_object
    check: Callable[[], None] | None = None
    with ExitStack() as stack:
        while check is None:
            try:
                check = stack.enter_context(take(folder))
            except HeldError as problem:
                if on_wait is None:
                    raise
                on_wait(problem.holder)
                on_wait = _no_more
                time.sleep(POLL_S)
        yield check


def _no_more(_: str) -> None: ...


def _nothing() -> None: ...


@contextmanager
def _lock(folder: Folder) -> Iterator[Callable[[], None]]:
    path = Path(str(folder.local), LEASE)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+", buffering=0) as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as problem:
            stream.seek(0)
            raise HeldError(folder, stream.read(_MOST_BYTES)) from problem
        stream.truncate(0)
        stream.write(msgspec.json.encode(_own()))
        try:
            yield _nothing
        finally:
            stream.truncate(0)


@contextmanager
def _renewed_object(folder: Folder) -> Iterator[Callable[[], None]]:
    own = _own()
    data, version = read_object(folder.uri, LEASE)
    is_free = data is None or not _is_live(data)
    if not (is_free and write_object(folder.uri, LEASE, msgspec.json.encode(own), version=version)):
        raise HeldError(folder, data or b"")
    is_over, is_lost = threading.Event(), threading.Event()

    def renew() -> None:
        while not is_over.wait(RENEW_S) and not is_lost.is_set():
            with suppress(OSError):  # the store is away: the next time
                data, version = read_object(folder.uri, LEASE)
                if data is None or (_parsed(data) or own).token != own.token:
                    is_lost.set()
                else:
                    renewed = msgspec.json.encode(replace(own, renewed_s=time.time()))
                    write_object(folder.uri, LEASE, renewed, version=version)

    thread = threading.Thread(target=renew, name="lease", daemon=True)
    thread.start()

    def check() -> None:
        data, _ = read_object(folder.uri, LEASE)
        if is_lost.is_set() or data is None or (_parsed(data) or own).token != own.token:
            raise BuildError(f"{folder.uri}: the lease on it lapsed, and another process has taken it")

    try:
        yield check
    finally:
        is_over.set()
        thread.join()
        check()
        folder.delete(LEASE)


def _own() -> Holder:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Holder(token=uuid.uuid4().hex, machine=_machine(), process=os.getpid(), since=now, renewed_s=time.time())


@cache
def _machine() -> tuple[str, str]:
    start, space = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")
    return socket.gethostname(), f"{start.read_text().strip()} {space.readlink()}" if start.exists() else ""


def _parsed(data: bytes) -> Holder | None:
    with suppress(msgspec.MsgspecError):
        return msgspec.json.decode(data, type=Holder)
    return None


def _is_live(data: bytes) -> bool:
    """Return whether an object names a holder that is at work: it has not lapsed, nor ended on this machine."""
    found = _parsed(data)
    if found is None or time.time() - found.renewed_s > LAPSE_S:
        return False
    if found.machine != _machine() or not found.machine[1]:
        return True
    try:
        os.kill(found.process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        pass
    return True
