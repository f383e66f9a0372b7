"""What is about the machine ends a build in one line, leaves nothing temporary, and the next build goes on."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipelines.launch import _own_error
from schemas.errors import BuildError, ConfigError
from schemas.lake import Lake
from schemas.manifest import read_manifest, verify

PLAIN = ["--set", "features.images=", "--set", "features.sentences="]


def build(documents: Path, folder: Path, *arguments: str, **options: object) -> subprocess.Popen[str]:
    (folder / "tmp").mkdir(exist_ok=True)
    settings = ["--set", f"source.documents={documents}", *PLAIN, "--lake", str(folder / "lake"), *arguments]
    return subprocess.Popen(
        [sys.executable, "-c", "from orchestration.__main__ import main; main()", "build", "documents", *settings],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(folder / "tmp")},
        **options,  # type: ignore[call-overload]
    )


def small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (8_000, 8_000))


def test_no_room_is_one_line_and_the_next_build_goes_on(ten_documents: Path, tmp_path: Path) -> None:
    process = build(ten_documents, tmp_path, preexec_fn=small_files)
    _, said = process.communicate()
    assert process.returncode == 1
    *progress, problem = said.splitlines()
    assert problem.startswith("multilink: ") and all(line.startswith("[") for line in progress)
    assert "build again" in said or "TMPDIR" in said
    assert list((tmp_path / "tmp").iterdir()) == []
    again = build(ten_documents, tmp_path)
    said, _ = again.communicate()
    assert again.returncode == 0 and "built" in said


@pytest.mark.slow
def test_worker_processes_say_nothing_of_their_own(ten_documents: Path, tmp_path: Path) -> None:
    process = build(ten_documents, tmp_path, "--workers", "2")
    printed, said = process.communicate()
    assert process.returncode == 0 and "built" in said + printed
    assert "WARNING" not in said + printed and "INFO" not in said + printed
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize("end", ["sink.discard()", "del sink"])
def test_a_file_without_room_for_its_last_bytes_is_given_up_without_a_word(tmp_path: Path, end: str) -> None:
    program = (
        "import sys; from schemas.lake import Folder\n"
        f"sink = Folder(sys.argv[1]).create('part'); sink.stream.write(bytes(9_000)); {end}"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        preexec_fn=small_files,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "part").exists() and (end == "del sink" or list(tmp_path.iterdir()) == [])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_ended_build_leaves_nothing_temporary(ten_documents: Path, tmp_path: Path, number: signal.Signals) -> None:
    process = build(ten_documents, tmp_path)
    while not list((tmp_path / "tmp").iterdir()) and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(number)
    _, said = process.communicate()
    assert process.returncode == 130 and "Traceback" not in said
    assert list((tmp_path / "tmp").iterdir()) == []


def test_of_two_builds_at_once_one_waits_and_reuses(ten_documents: Path, tmp_path: Path) -> None:
    processes = [build(ten_documents, tmp_path) for _ in range(2)]
    said = ["".join(process.communicate()) for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert sorted("reused" in text for text in said) == [False, True], said
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
