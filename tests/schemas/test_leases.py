"""A lease is held by one process at a time, on a file system and on S3, and is free when its holder is gone."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from schemas import leases
from schemas.lake import Folder
from schemas.leases import LEASE, HeldError, hold
from schemas.messages import BuildError

HOLDS = """
import sys
from schemas.lake import Folder
from schemas.leases import hold

with hold(Folder(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(params=["file system", "S3"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    if request.param == "file system":
        return Folder(str(tmp_path / "work"))
    return Folder(f"s3://lake/work?{request.getfixturevalue('object_store')}")


@contextmanager
def holder(folder: Folder) -> Iterator[subprocess.Popen[str]]:
    """Run another process that holds the lease until it is given a line."""
    command = [sys.executable, "-c", HOLDS, folder.uri]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_one_at_a_time(folder: Folder) -> None:
    with holder(folder) as process:
        with pytest.raises(HeldError, match=f"process {process.pid} on .*, since 20") as caught, hold(folder):
            pytest.fail("two hold it")
        assert "\n" not in str(caught.value) and caught.value.exit_status == 2
        waited: list[str] = []

        def on_wait(other: str) -> None:
            waited.append(other)
            process.communicate("go\n")

        with hold(folder, on_wait=on_wait):
            assert len(waited) == 1 and f"process {process.pid} on" in waited[0]
            with pytest.raises(HeldError), hold(folder):  # nor twice in one process
                pytest.fail("two hold it")
    with hold(folder):
        pass


def test_a_holder_that_was_killed_holds_nothing(folder: Folder) -> None:
    with holder(folder) as process:
        process.kill()
        process.wait()
        with hold(folder):
            pass


def test_the_body_s_error_frees_it(folder: Folder) -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match="of the body"), hold(folder):
            raise ValueError("of the body")


@pytest.fixture
def on_s3(object_store: str, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.setattr(leases, "RENEW_S", 0.05)
    return Folder(f"s3://lake/work?{object_store}")


def as_elsewhere(folder: Folder, *, age_s: float) -> None:
    """Write the lease of a process of another machine, renewed so long ago."""
    machine = ["another", "1"]
    found = {"token": "t", "machine": machine, "process": 1, "since": "2026-01-01", "renewed_s": time.time() - age_s}
    folder.write(LEASE, json.dumps(found).encode())


def test_a_lease_of_another_machine_lapses(on_s3: Folder) -> None:
    as_elsewhere(on_s3, age_s=leases.LAPSE_S / 2)
    with pytest.raises(HeldError, match="process 1 on another"), hold(on_s3):
        pytest.fail("two hold it")
    as_elsewhere(on_s3, age_s=leases.LAPSE_S * 2)
    with hold(on_s3):
        pass


@pytest.mark.skipif(os.getuid() != 0 or shutil.which("unshare") is None, reason="needs root, and unshare")
def test_a_container_does_not_take_the_lease_of_another_on_its_machine(on_s3: Folder) -> None:
    """Both have the host's name and start, but not each other's processes, which looked as if they had ended."""
    apart = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", HOLDS, on_s3.uri]
    with holder(on_s3) as process:
        found = subprocess.run(apart, check=False, capture_output=True, text=True, input="")
        assert found.returncode == 1 and f"HeldError: {on_s3.uri}: process {process.pid} on" in found.stderr


def test_it_is_renewed_and_a_holder_learns_that_it_lost_it(on_s3: Folder) -> None:
    def renewed() -> float:
        return float(json.loads(on_s3.read(LEASE))["renewed_s"])

    with pytest.raises(BuildError, match="lapsed, and another process has taken it"), hold(on_s3):
        first = renewed()
        while renewed() == first:
            time.sleep(0.05)
        as_elsewhere(on_s3, age_s=0)
        for thread in [each for each in threading.enumerate() if each.name == "lease"]:  # none: it has ended already
            thread.join()
    assert json.loads(on_s3.read(LEASE))["token"] == "t"  # the other's is left alone


@pytest.mark.parametrize("content", [b"", b"not JSON", b"{}", b'{"machine": 1}'])
def test_a_damaged_lease_is_free(on_s3: Folder, content: bytes) -> None:
    on_s3.write(LEASE, content)
    with hold(on_s3):
        pass


def test_a_holder_that_lost_it_is_told_before_it_does_something_for_good(on_s3: Folder) -> None:
    """Also between two renewals."""
    with pytest.raises(BuildError, match="lapsed"), hold(on_s3) as check:
        check()
        for thread in [each for each in threading.enumerate() if each.name == "lease"]:
            assert thread.is_alive()
        as_elsewhere(on_s3, age_s=0)
        check()
        pytest.fail("it went on")
