"""The recorded web as a process of a build: its dumps come first, and a build during which it ended is not believed."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from servers import children_of

from orchestration.demo import recorded_web
from orchestration.demo.recorded_web import dumps_of, recording_at, scraping, serving
from schemas.messages import BuildError, NotFoundError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the server's process is found in /proc")


def test_a_web_that_ends_while_it_is_scraped_fails_the_build() -> None:
    recording = recording_at()
    words = "the recorded web ended with status -9 while it was scraped"
    with pytest.raises(BuildError, match=words), serving(recording) as port:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/__requests") as answer:
            assert answer.status == 200
        (server,) = children_of(str(recording))
        os.kill(server, signal.SIGKILL)
        os.waitid(os.P_PID, server, os.WEXITED | os.WNOWAIT)


def test_what_went_wrong_in_the_build_is_said_rather() -> None:
    with pytest.raises(ValueError, match="a mistake"), serving(recording_at()):
        os.kill(*children_of(str(recording_at())), signal.SIGKILL)
        raise ValueError("a mistake")


def test_a_web_whose_build_is_killed_ends_too() -> None:
    program = "import time; from orchestration.demo.recorded_web import recording_at, serving\n"
    program += "with serving(recording_at()) as port: print(port, flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        port = int(process.stdout.readline())
        process.kill()
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5):
                time.sleep(0.05)
        except ConnectionResetError:  # it ends just now
            continue
        except ConnectionRefusedError:
            break


def test_dumps_that_are_added_while_a_build_runs_are_the_next_ones(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    for each in recording_at().iterdir():
        (own / each.name).symlink_to(each)
    with scraping(own) as settings:
        (own / "RS_added-001.zst").write_bytes(b"")
        assert settings[0] == f"source.dump={own / 'RS_recorded.zst'}"
    assert dumps_of(own) == [own / "RS_recorded.zst", own / "RS_added-001.zst"]


def test_without_a_clone_the_package_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_web, "__file__", str(tmp_path / "orchestration" / "demo" / "recorded_web.py"))
    with pytest.raises(NotFoundError):
        recording_at()
    package, ignored = tmp_path / "installed" / recorded_web.PACKAGE, shutil.ignore_patterns("images", "news")
    shutil.copytree(Path(__file__).parents[1] / "replay", package, ignore=ignored)
    monkeypatch.syspath_prepend(package.parent)
    assert recording_at() == package / "recording"
