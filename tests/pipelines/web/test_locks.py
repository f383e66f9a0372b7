"""Locks and slots between threads and processes, on a real folder."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import pipelines
from pipelines.web import locks
from pipelines.web.locks import LockedFiles, LockedRanges, Locks
from pipelines.web.slots import Slots
from schemas.lake import Folder

ROOT = Path(pipelines.__file__).parents[1]

HOLD = """
import sys, time
from pipelines.web.locks import Locks
from schemas.lake import Folder
with Locks(Folder(sys.argv[1])).holding("s/a"):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture(params=[LockedRanges, LockedFiles])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    if request.param is LockedFiles:
        monkeypatch.setattr(locks, "_WAIT_FOR_RANGE", None)
    return Folder(str(tmp_path / "raw"))


def test_a_name_is_held_once_and_other_names_are_free(folder: Folder) -> None:
    holders = [Locks(folder), Locks(folder)]
    inside, most = 0, 0

    def work(number: int) -> None:
        nonlocal inside, most
        with holders[number % 2].holding("s/a"):
            inside += 1
            most = max(most, inside)
            time.sleep(0.002)
            inside -= 1

    with holders[0].holding("s/b"), ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(24)))
    assert most == 1


def test_what_a_killed_process_held_is_free(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path / "raw"))
    command = [sys.executable, "-c", HOLD, folder.uri]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        taken = threading.Event()

        def take() -> None:
            with Locks(folder).holding("s/a"):
                taken.set()

        waiting = threading.Thread(target=take)
        waiting.start()
        assert not taken.wait(0.1)
        holder.kill()
        assert taken.wait(10)
        waiting.join()


@pytest.mark.parametrize("folder_uri", ["local", "mock:///raw"])
def test_slots_bound_what_is_under_way(tmp_path: Path, folder_uri: str) -> None:
    folder = Folder(str(tmp_path / "raw") if folder_uri == "local" else folder_uri)
    slots = Slots(folder, in_all=3, per_host=2)
    counts, most = {"a": 0, "b": 0}, {"a": 0, "b": 0, "all": 0}
    guard = threading.Lock()

    def work(number: int) -> None:
        host = "ab"[number % 2]
        with slots.holding(host):
            with guard:
                counts[host] += 1
                most[host] = max(most[host], counts[host])
                most["all"] = max(most["all"], sum(counts.values()))
            time.sleep(0.005)
            with guard:
                counts[host] -= 1

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(work, range(48)))
    assert most["all"] == 3
    if folder_uri == "local":
        assert max(most["a"], most["b"]) == 2


FETCH = """
import sys
from pipelines.settings import HttpConfig
from pipelines.web.captures import Kind
from pipelines.web.client import Client
from pipelines.web.fan_out import map_concurrently
from schemas.lake import Folder
raw, allowed, name = sys.argv[1:]
config = HttpConfig(allow_hosts=(allowed,), requests_per_second=1e4, connections_per_host=6, connections=4)
client = Client(config, Folder(raw))
urls = [f"http://{allowed}/{name}{number}" for number in range(20)]
list(map_concurrently(lambda url: client.get(url, source="s", kind=Kind.API), urls, threads=6))
"""


def test_the_bound_in_all_holds_over_processes(web, tmp_path) -> None:
    inside, most = 0, 0
    guard = threading.Lock()

    def script(handler) -> None:
        nonlocal inside, most
        with guard:
            inside += 1
            most = max(most, inside)
        time.sleep(0.02)
        with guard:
            inside -= 1
        handler.send_response(200)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    web.scripts |= {f"/{name}{number}": script for name in "ab" for number in range(20)}
    command = [sys.executable, "-c", FETCH, str(tmp_path / "raw"), f"127.0.0.1:{web.port}"]
    processes = [subprocess.Popen([*command, name], cwd=ROOT) for name in "ab"]
    assert [process.wait(60) for process in processes] == [0, 0]
    assert len(web.paths) == 40
    assert 2 <= most <= 4
