"""`multilink open`: where the demo's report, links and pages are, in the browser of a screen where there is one."""

from __future__ import annotations

import os
import signal
import socket
import urllib.request
from pathlib import Path

import pytest
from forked import clean_environment, start


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A folder whose project file names a workspace with a report and links."""
    home = tmp_path / "demo"
    for name in ("report", "linked"):
        (home / name).mkdir(parents=True)
        (home / name / "index.html").write_text(name)
    (home / "lake" / "datasets").mkdir(parents=True)
    (tmp_path / "multilink.toml").write_text('lake = "demo/lake"\n')
    (tmp_path / "browser").write_text(f'#!/bin/sh\necho "$1" >> {tmp_path}/opened\n')
    (tmp_path / "browser").chmod(0o755)
    return tmp_path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def on_screen(folder: Path) -> dict[str, str]:
    return clean_environment(DISPLAY=":99", BROWSER=f"{folder}/browser %s")


def test_a_file_is_opened_where_there_is_a_screen_and_named_elsewhere(workspace: Path) -> None:
    report = (workspace / "demo" / "report" / "index.html").as_uri()
    without = clean_environment(BROWSER=f"{workspace}/browser %s")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        without.pop(name, None)
    named = start("open", "report", folder=workspace, environment=without).finish()
    assert (named.status, named.out) == (0, f"report  {report}\n")
    assert not (workspace / "opened").exists()
    opened = start("open", "report", "--json", folder=workspace, environment=on_screen(workspace)).finish()
    assert opened.json == {"report": report}
    assert (workspace / "opened").read_text() == f"{report}\n"
    (workspace / "demo" / "report" / "index.html").unlink()
    missing = start("open", "report", folder=workspace, environment=without).finish()
    assert missing.status == 2 and "no such file; multilink demo makes it" in missing.err


def test_pages_that_another_process_serves_are_opened_there(workspace: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        done = start("open", "--port", str(port), "--json", folder=workspace, environment=on_screen(workspace)).finish()
    files = {name: (workspace / "demo" / path).as_uri() for name, path in LINKS.items()}
    assert done.json == {**files, "pages": f"http://127.0.0.1:{port}"}
    assert (workspace / "opened").read_text().splitlines() == list(done.json.values())


LINKS = {"report": "report/index.html", "links": "linked/index.html"}


def test_the_pages_are_served_until_ctrl_c(workspace: Path) -> None:
    port = free_port()
    arguments = ("open", "demo", "--port", str(port), "--json")
    running = start(*arguments, folder=workspace, environment=on_screen(workspace))
    opened = workspace / "opened"
    try:
        while running.process.is_alive() and not (opened.exists() and opened.read_text().count("\n") == len(LINKS) + 1):
            running.process.join(0.05)
        page = f"http://127.0.0.1:{port}"
        assert opened.read_text().splitlines()[-1] == page
        with urllib.request.urlopen(f"{page}/links", timeout=60) as answer:
            assert answer.status == 200
        assert running.process.pid is not None
        os.kill(running.process.pid, signal.SIGINT)
        done = running.finish()
    finally:
        running.process.kill()
    assert done.status in (0, 130) and done.json["pages"] == page
