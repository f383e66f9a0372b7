"""Benchmarks are measured by hand. Here they are imported and asked for help; `make trials` runs each at a small size.

A figure of such a run means nothing; that there is one means that what it measures can still be called.
"""

import importlib
import json
import subprocess
import sys

import pytest
from repository import ROOT

PROGRAMS = sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py") if "__main__" in path.read_text("utf-8"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_benchmark_prints_json(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`make bench` asks each of them for it, and ends with the first that does not know it."""
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"benchmarks.{name}").main()
    assert ended.value.code == 0 and "--json" in capsys.readouterr().out


SMALL = {
    "build": "rebuild --documents 20 --images 1 --pixels 64 --new 2 --plain",
    "closed_form": "--documents 60",
    "copy_detection": "--pictures 5",
    "dedupe": "--large 2000",
    "features": "--images 8 --sentences 20",
    "fetch": "--images 60",
    "gate": "--chains 4",
    "labelled": "--corpora 3",
    "learning": "--splits 1 --only posts",
    "object_store": "--documents 4 --images 1 --pixels 64 --new 1",
    "precision": "--draws 2",
    "preference": "--runs 20",
    "scale": "--documents 300 600",
    "search": "--archives 2",
    "training": "--batches 4",
    "waiting": "--without-demo --runs 1",
}


@pytest.mark.trial
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_benchmark_runs(name: str) -> None:
    command = [sys.executable, "-m", f"benchmarks.{name}", *SMALL[name].split(), "--json"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1])
