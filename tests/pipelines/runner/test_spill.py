"""What is spilled comes back: chunks in order, records grouped and sorted, and no file stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.runner import spill
from pipelines.runner.spill import Sorter, Spool
from schemas.errors import BuildError

CHUNKS = st.lists(st.binary(max_size=40), max_size=30)
RECORDS = st.lists(st.tuples(st.binary(max_size=2), st.binary(max_size=20)), max_size=200)


def open_spill_files(pid: int | str = "self") -> int:
    """Return how many unnamed files a process has open."""
    targets = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            targets.append(str(entry.readlink()))
        except FileNotFoundError:  # the one that lists them
            continue
    return sum(target.endswith("(deleted)") for target in targets)


@given(CHUNKS, CHUNKS, st.integers(0, 200))
def test_a_spool_gives_back_what_was_added_in_order(first: list[bytes], more: list[bytes], held_bytes: int) -> None:
    spool = Spool(held_bytes=held_bytes)
    for chunk in first:
        spool.append(chunk)
    twin = spool.copy()
    twin.extend(more)
    assert b"".join(spool) == b"".join(first)
    assert b"".join(spool) == b"".join(first)  # as often as wanted
    assert b"".join(twin) == b"".join(first + more)
    spool.extend(twin)
    assert b"".join(spool) == b"".join(first + first + more)


@given(RECORDS, st.sampled_from([1, 400, 3_000, 1 << 20]), st.booleans())
def test_a_sorter_groups_by_key_and_keeps_the_order_within(
    records: list[tuple[bytes, bytes]], run_bytes: int, is_spilled: bool
) -> None:
    sorter = Sorter(run_bytes=run_bytes)
    expected: dict[bytes, list[bytes]] = {}
    for key, content in records:
        sorter.add(key, content)
        expected.setdefault(key, []).append(content)
    if is_spilled:
        sorter.spill()
    assert list(sorter.groups()) == sorted(expected.items())
    assert list(sorter.groups()) == sorted(expected.items())


def test_many_runs_are_merged_and_one_file_is_open() -> None:
    before = open_spill_files()
    sorter = Sorter(run_bytes=1)
    for number in range(100):  # a run each
        sorter.add(bytes([number * 37 % 101]), bytes([number]))
    assert open_spill_files() - before == 1
    found = list(sorter.groups())
    assert found == sorted((bytes([number * 37 % 101]), [bytes([number])]) for number in range(100))
    del sorter, found
    assert open_spill_files() == before


def test_a_full_disk_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    file = spill.SpillFile()
    message = "temporary files in .*: No space left on device; TMPDIR names another folder"
    if not Path("/dev/full").is_char_device():
        pytest.skip("this system has no such device")
    with Path("/dev/full").open("r+b", buffering=0) as full:  # never made here: without the device it would be a file
        monkeypatch.setattr(file, "_file", full)
        with pytest.raises(BuildError, match=message):
            file.append(b"x")


def test_a_killed_process_leaves_no_file(tmp_path: Path) -> None:
    script = (
        "from pipelines.runner.spill import Spool\n"
        "spool = Spool(held_bytes=0)\n"
        "spool.append(b'x' * 1000)\n"
        "print('written', flush=True)\n"
        "input()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
        assert open_spill_files(process.pid) == 1
        process.send_signal(signal.SIGKILL)
    assert list(tmp_path.iterdir()) == []
