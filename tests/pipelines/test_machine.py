"""What is about the machine ends a build in one line, leaves nothing temporary, and the next build goes on.

Builds work side by side; what deletes from a lake works alone, on a file system and on S3.
"""

import os
import signal
import time
from pathlib import Path

import pytest
from forked import Running, clean_environment, run_code, start

from pipelines.forgetting.forget import forget
from pipelines.launch import _own_error
from pipelines.sources.takedowns import parse_takedowns
from pipelines.sweep import sweep_lake
from pipelines.turns import turn_alone, turn_of_build
from schemas.lake import Lake
from schemas.leases import HeldError
from schemas.manifest import read_manifest, verify
from schemas.messages import BuildError, ConfigError

PLAIN = ["--set", "features.images=", "--set", "features.sentences="]


SMALL_FILES = """import resource, sys
sys.dont_write_bytecode = True  # Python keeps what it has written of a compiled module where there is no room for more
resource.setrlimit(resource.RLIMIT_FSIZE, (8_000, 8_000))
"""


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
    left = {path.name for path in (tmp_path / "tmp").iterdir()}
    assert left <= {f"multilink-keys-{os.getuid()}"}  # of the lake's keys, which a day of builds on this machine map


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


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.trial)])
def test_an_ended_build_leaves_nothing_temporary(ten_documents: Path, tmp_path: Path, number: signal.Signals) -> None:
    running = build(ten_documents, tmp_path)
    while len(list((tmp_path / "tmp").iterdir())) < 2 and running.process.is_alive():
        time.sleep(0.05)  # one folder is the run's; the second is Beam's, which has made its pipeline then
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
schemas.messages.NotFoundError: x.json: no such file

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "a.py", line 2, in g
schemas.messages.ConfigError: weights.onnx needs x.json beside it [while running 'features/extract']
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


TWO_DAYS_S = 2 * 86_400


class WaitingError(Exception):
    """A build waits."""


def stop(line: str) -> None:
    raise WaitingError(line)


@pytest.fixture(params=["file system", "object store"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    if request.param == "object store":
        return Lake.at(f"s3://lake/turns?{request.getfixturevalue('object_store')}")
    return Lake.at(str(tmp_path / "lake"))


def test_a_sweep_leaves_the_parts_of_a_build_that_takes_days(lake: Lake) -> None:
    part, later = "documents/train/part-00000-of-00001.parquet", time.time() + TWO_DAYS_S
    lake.dataset("documents", "0123").write(part, b"rows")
    with turn_of_build(lake, "documents", stop):
        with pytest.raises(HeldError, match="wait until it has ended"):
            sweep_lake(lake, dry_run=False, now=later)
        assert lake.dataset("documents", "0123").read(part) == b"rows"
        assert sweep_lake(lake, dry_run=True, now=later).paths == (f"datasets/documents/0123/{part}",)
        with pytest.raises(HeldError):
            forget(lake, parse_takedowns([b"id:a"], name="list"), dry_run=False, say=stop)
        assert lake.dataset("documents", "0123").exists(part)
    assert sweep_lake(lake, dry_run=False, now=later).paths == (f"datasets/documents/0123/{part}",)


def test_a_sweep_takes_what_was_made_of_versions_that_are_gone(lake: Lake) -> None:
    paths = tuple(f"{top}/documents/0123/file" for top in ("indexes", "links", "retrievals"))
    for path in paths:
        lake.root.write(path, b"made of it")
    assert sweep_lake(lake, dry_run=False, now=time.time() + TWO_DAYS_S).paths == paths
    assert not any(map(lake.root.exists, paths))


def test_builds_of_other_data_sets_go_on_and_one_of_the_same_waits(lake: Lake) -> None:
    with turn_of_build(lake, "documents", stop):
        with turn_of_build(lake, "others", stop):
            pass
        with (
            pytest.raises(WaitingError, match="another build of documents is under way"),
            turn_of_build(lake, "documents", stop),
        ):
            pass


def test_a_build_waits_for_what_works_alone(lake: Lake) -> None:
    with turn_alone(lake):
        with (
            pytest.raises(WaitingError, match="lake sweep or lake forget is under way"),
            turn_of_build(lake, "documents", stop),
        ):
            pass
        with pytest.raises(HeldError), turn_alone(lake):
            pass
    with turn_of_build(lake, "documents", stop):
        pass
