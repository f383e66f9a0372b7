"""What is about the machine ends a build in one line, leaves nothing temporary, and the next build goes on."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from forked import Running, clean_environment, run_code, start

from pipelines.launch import _own_error
from schemas.errors import BuildError, ConfigError
from schemas.lake import Lake
from schemas.manifest import read_manifest, verify

PLAIN = ["--set", "features.images=", "--set", "features.sentences="]


SMALL_FILES = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (8_000, 8_000))\n"


def build(documents: Path, folder: Path, *arguments: str, program: Path | None = None) -> Running:
    (folder / "tmp").mkdir(exist_ok=True)
    settings = ["--set", f"source.documents={documents}", *PLAIN, "--lake", str(folder / "lake"), *arguments]
    environment = clean_environment(TMPDIR=str(folder / "tmp"))
    return start("build", "documents", *settings, folder=folder, environment=environment, program=program)


def test_no_room_is_one_line_and_the_next_build_goes_on(ten_documents: Path, tmp_path: Path) -> None:
    program = tmp_path / "limited.py"
    program.write_text(f"{SMALL_FILES}from orchestration.__main__ import main\nmain()\n")
    ended = build(ten_documents, tmp_path, program=program).finish()
    assert ended.status == 1
    *progress, problem = ended.err.splitlines()
    assert problem.startswith("multilink: ") and all(line.startswith("[") for line in progress)
    assert "build again" in problem or "TMPDIR" in problem
    assert list((tmp_path / "tmp").iterdir()) == []
    again = build(ten_documents, tmp_path).finish()
    assert again.status == 0 and "built" in again.out


@pytest.mark.slow
def test_worker_processes_say_nothing_of_their_own(ten_documents: Path, tmp_path: Path) -> None:
    ended = build(ten_documents, tmp_path, "--workers", "2").finish()
    assert ended.status == 0 and "built" in ended.err + ended.out
    assert "WARNING" not in ended.err + ended.out and "INFO" not in ended.err + ended.out
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize("end", ["sink.discard()", "del sink"])
def test_a_file_without_room_for_its_last_bytes_is_given_up_without_a_word(tmp_path: Path, end: str) -> None:
    (tmp_path / "own").mkdir()
    code = (
        f"{SMALL_FILES}import sys; from schemas.lake import Folder\n"
        f"sink = Folder(sys.argv[1]).create('part'); sink.stream.write(bytes(9_000)); {end}"
    )
    ended = run_code(code, tmp_path / "own", folder=tmp_path)
    assert (ended.status, ended.err) == (0, "")
    assert not (tmp_path / "own" / "part").exists() and (end == "del sink" or not list((tmp_path / "own").iterdir()))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_ended_build_leaves_nothing_temporary(ten_documents: Path, tmp_path: Path, number: signal.Signals) -> None:
    running = build(ten_documents, tmp_path)
    while not list((tmp_path / "tmp").iterdir()) and running.process.is_alive():
        time.sleep(0.05)
    os.kill(running.process.pid, number)
    ended = running.finish()
    assert ended.status == 130 and "Traceback" not in ended.err
    assert list((tmp_path / "tmp").iterdir()) == []


def test_of_two_builds_at_once_one_waits_and_reuses(ten_documents: Path, tmp_path: Path) -> None:
    ended = [each.finish() for each in [build(ten_documents, tmp_path) for _ in range(2)]]
    assert [each.status for each in ended] == [0, 0]
    assert sorted("reused" in each.out + each.err for each in ended) == [False, True], ended
    (version,) = [folder for folder in (tmp_path / "lake/datasets/documents").iterdir() if folder.is_dir()]
    manifest, folder = read_manifest(Lake.at(str(tmp_path / "lake")), f"documents@{version.name}")
    assert list(verify(manifest, folder)) == []


CHAINED = """Traceback (most recent call last):
  File "a.py", line 1, in f
schemas.errors.NotFoundError: x.json: no such file

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "a.py", line 2, in g
schemas.errors.ConfigError: weights.onnx needs x.json beside it [while running 'features/extract']
"""


def test_of_chained_errors_the_last_is_told() -> None:
    assert str(_own_error(CHAINED)) == "weights.onnx needs x.json beside it"
    assert isinstance(_own_error(CHAINED), ConfigError)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("OSError: [Errno 28] No space left on device: '/lake/x' [while running 'shards/write']", "No space left"),
        ("pyarrow.lib.ArrowIOError: [Errno 30] Error writing bytes. Detail: Read-only file system", None),
        ("OSError: [Errno 24] Too many open files", "Too many open files"),
        ("ValueError: a mistake", None),
    ],
)
def test_the_machine_is_told_by_its_error(line: str, told: str | None) -> None:
    found = _own_error(f"Traceback (most recent call last):\n  File 'a.py'\n{line}\n")
    if told is None:
        assert found is None or isinstance(found, BuildError)
    else:
        assert isinstance(found, BuildError) and told in str(found) and "while running" not in str(found)
