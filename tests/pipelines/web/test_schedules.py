"""One pace of a host for all processes of a machine, kept in a real file."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

import pipelines
from pipelines.web import locks
from pipelines.web.pace import Pace
from pipelines.web.schedules import FILE, OwnSchedules, SharedSchedules, are_shared, schedules_of
from schemas.lake import Folder

ROOT = Path(pipelines.__file__).parents[1]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def pace_of(raw: Folder, clock: Clock) -> Pace:
    """Return the pace of a process of its own, as far as the file can tell."""
    return Pace(
        schedules_of(raw, clock=clock.time),
        requests_per_second=2.0,
        connections_per_host=4,
        longest_interval_s=60.0,
        clock=clock.time,
        sleep=clock.sleep,
    )


def start(pace: Pace, clock: Clock, host: str = "a.example") -> float:
    with pace.slot(host):
        return clock.now - 1000.0


@pytest.fixture
def raw(tmp_path: Path) -> Folder:
    return Folder(str(tmp_path / "raw"))


def test_processes_take_their_turns_of_one_rate(raw: Folder) -> None:
    clock = Clock()
    one, other = pace_of(raw, clock), pace_of(raw, clock)
    assert [start(pace, clock) for pace in (one, other, other, one)] == [0.0, 0.5, 1.0, 1.5]
    assert start(other, clock, "b.example") == 1.5


def test_what_one_was_told_holds_for_the_others(raw: Folder) -> None:
    clock = Clock()
    one, other = pace_of(raw, clock), pace_of(raw, clock)
    one.pause("a.example", 7.0)
    assert start(other, clock) == 7.0
    one.heed("a.example", {"X-RateLimit-UserRemaining": "1", "X-RateLimit-UserReset": "1017"})
    assert [start(other, clock), start(one, clock)] == [17.0, 17.5]


def test_a_clock_that_was_set_back_leaves_nothing_to_wait_for(raw: Folder) -> None:
    clock = Clock()
    pace_of(raw, clock).pause("a.example", 50.0)
    clock.now -= 30.0
    assert start(pace_of(raw, clock), clock) == 50.0
    clock.now -= 500.0
    assert start(pace_of(raw, clock), clock) == 50.0 - 500.0


def test_the_file_of_many_hosts_has_holes(raw: Folder) -> None:
    schedules = schedules_of(raw, clock=time.time)
    assert isinstance(schedules, SharedSchedules)
    for number in range(20):
        with schedules.changing(f"host{number}.example") as schedule:
            schedule.next_start = float(number + 1)
    for number in range(20):
        with schedules.changing(f"host{number}.example") as schedule:
            assert schedule.next_start == number + 1
    local = raw.local
    assert local is not None
    assert (local / FILE).stat().st_blocks * 512 <= 20 * 8192


@pytest.mark.parametrize("why", ["on no file system", "without locks of ranges"])
def test_elsewhere_a_schedule_is_the_process_s_own(raw: Folder, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if why == "without locks of ranges":
        monkeypatch.setattr(locks, "_WAIT_FOR_RANGE", None)
    else:
        raw = Folder("mock:///raw")
    assert not are_shared(raw)
    clock = Clock()
    assert isinstance(schedules_of(raw, clock=clock.time), OwnSchedules)
    one, other = pace_of(raw, clock), pace_of(raw, clock)
    assert [start(pace, clock) for pace in (one, other, one)] == [0.0, 0.0, 0.5]


FETCH = """
import sys
from pipelines.settings import HttpConfig
from pipelines.web.captures import Kind
from pipelines.web.client import Client
from pipelines.web.fan_out import map_concurrently
from schemas.lake import Folder
raw, allowed, name = sys.argv[1:]
client = Client(HttpConfig(allow_hosts=(allowed,), requests_per_second=40.0), Folder(raw))
print("ready", flush=True)
sys.stdin.readline()
urls = [f"http://{allowed}/{name}{number}" for number in range(12)]
list(map_concurrently(lambda url: client.get(url, source="s", kind=Kind.API), urls, threads=4))
"""


def test_a_host_sees_one_rate_of_two_processes(web, tmp_path) -> None:
    moments: list[float] = []

    def script(handler) -> None:
        moments.append(time.monotonic())
        handler.send_response(200)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    web.scripts |= {f"/{name}{number}": script for name in "ab" for number in range(12)}
    command = [sys.executable, "-c", FETCH, str(tmp_path / "raw"), f"127.0.0.1:{web.port}"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    processes = [subprocess.Popen([*command, name], cwd=ROOT, text=True, **pipes) for name in "ab"]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert len(moments) == 24
    # 24 starts at 40 a second, the last seen as soon as 0.1 s late for the first; by themselves they would take 0.28 s
    assert max(moments) - min(moments) > 23 / 40 - 0.1
