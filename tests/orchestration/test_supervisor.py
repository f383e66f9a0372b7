"""Processes are kept: one that ends is started again, and none is left, however the keeper ends."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from repository import ROOT
from servers import wait_for

from orchestration.local.supervisor import MARK_VARIABLE, QUICK_ENDS_SURVIVED, Service, Supervisor, end_marked, marked
from orchestration.local.up import _alone, choose_ports
from schemas.messages import BuildError, UsageError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="marks are read from /proc")

MARK = f"test-{os.getpid()}"
# A service that starts a process of its own in another session, as a run's workers are, and then waits.
PARENT_AND_CHILD = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
time.sleep(600)
"""
# A service that notes when it starts and ends; one with a port listens late.
TOLD = """
import signal, socket, sys, time
from pathlib import Path
name, port = sys.argv[1], int(sys.argv[2])
told = Path(__file__).with_name("told")
def tell(what):
    with told.open("a") as file:
        file.write(f"{name} {what}\\n")
def end(*_):
    time.sleep(0.3)
    tell("ends")
    sys.exit()
signal.signal(signal.SIGTERM, end)
if port:
    time.sleep(1)
    server = socket.create_server(("127.0.0.1", port))
tell("listens" if port else "starts")
time.sleep(600)
"""
KEEPER = """
import sys, time
from pathlib import Path
from orchestration.local.supervisor import Service, Supervisor
folder, mark = Path(sys.argv[1]), sys.argv[2]
environment = {"MULTILINK_UP": mark, "PYTHONPATH": f"{folder}:" + sys.argv[3]}
service = Service(name="one", command=(sys.executable, "-m", "sleeper"))
with Supervisor([service], environment, folder / "logs", print).running():
    print("running", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sleeper.py").write_text(PARENT_AND_CHILD, encoding="utf-8")
    (tmp_path / "broken.py").write_text("raise SystemExit('it cannot start')", encoding="utf-8")
    return tmp_path


def run(name: str, module: str, *arguments: str, port: int = 0) -> Service:
    return Service(name=name, command=(sys.executable, "-m", module, *arguments), port=port)


def supervisor(folder: Path, module: str, told: list[str], mark: str) -> Supervisor:
    environment = {MARK_VARIABLE: mark, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    return Supervisor([run("one", module)], environment, folder / "logs", told.append)


def test_a_killed_process_is_started_again_and_nothing_is_left(folder: Path) -> None:
    told: list[str] = []
    keeper, mark = supervisor(folder, "sleeper", told, f"{MARK}-a"), f"{MARK}-a"
    with keeper.running():
        wait_for(lambda: len(marked(mark)) == 2)
        first = keeper.pid("one")
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: keeper.watch() or keeper.pid("one") != first)
        assert "one ended with signal 9" in told[0]
        wait_for(lambda: len(marked(mark)) == 3)  # the new pair, and the orphan of the first
    assert marked(mark) == []


@pytest.mark.parametrize("needs_others", [True, False], ids=["it says so", "the last one"])
def test_one_that_needs_the_others_starts_when_they_listen_and_ends_first(folder: Path, needs_others: bool) -> None:
    (folder / "told.py").write_text(TOLD, encoding="utf-8")
    port = choose_ports(0, 0, say=print).code
    services = [
        replace(run("second", "told", "second", "0"), needs_others=needs_others),
        run("first", "told", "first", str(port), port=port),
    ]
    services = services if needs_others else services[::-1]
    environment = {MARK_VARIABLE: f"{MARK}-d", "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    with Supervisor(services, environment, folder / "logs", print).running():
        wait_for(lambda: "second starts" in (folder / "told").read_text())
    lines = (folder / "told").read_text().splitlines()
    assert lines == ["first listens", "second starts", "second ends", "first ends"]


def test_one_that_cannot_start_is_given_up_with_its_last_words(folder: Path) -> None:
    keeper = supervisor(folder, "broken", [], f"{MARK}-b")
    with keeper.running(), pytest.raises(BuildError, match=r"one ended with status 1 \(it cannot start\)"):
        for _ in range(QUICK_ENDS_SURVIVED + 1):
            wait_for(lambda: keeper._running["one"].poll() is not None)
            keeper.watch()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_a_keeper_that_is_killed(folder: Path, number: signal.Signals) -> None:
    mark = f"{MARK}-{int(number)}"
    command = [sys.executable, "-c", KEEPER, str(folder), mark, str(ROOT)]
    with subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE) as keeper:
        assert keeper.stdout.readline() == b"running\n"
        wait_for(lambda: len(marked(mark)) == 2)
        keeper.send_signal(number)
        keeper.wait(30)
    wait_for(lambda: marked(mark) == [])


def test_marks_are_found_on_those_who_carry_them_alone() -> None:
    mark = f"{MARK}-c"
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env={MARK_VARIABLE: mark}) as one:
        wait_for(lambda: marked(mark) == [one.pid])
        assert marked(f"{mark}-other") == []
        assert end_marked(mark, grace_s=5) == 1
    assert one.returncode == -signal.SIGTERM


def test_a_port_that_is_taken_is_said_and_a_usual_one_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    said: list[str] = []
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"--port {port}: another process listens there"):
            choose_ports(port, None, say=print)
        monkeypatch.setattr("orchestration.local.up.PAGES_PORT", port)
        other = choose_ports(0, 0, None, say=said.append).pages
        assert said == [f"another process listens on port {port}: {other} in its place; --pages-port names one"]
    free = choose_ports(port, 0, say=said.append)
    assert len(said) == 1
    assert free.dagster == port
    assert len({free.code, free.dagster, free.mlflow, free.pages}) == 4


def test_what_a_killed_up_left_is_ended_at_the_next_start(tmp_path: Path) -> None:
    """Where the guard was killed as well, two daemons ran one Dagster home."""
    with _alone(tmp_path) as mark:
        left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env={MARK_VARIABLE: mark})
    with _alone(tmp_path) as other:
        assert left.wait(60) < 0 and other != mark
