"""The command line as a user runs it: a process of its own, in a folder of its own; messages in this process."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from forked import Outcome, clean_environment, start

from orchestration.cli import run
from orchestration.project import be_quiet

Run = Callable[..., Outcome]


@pytest.fixture
def multilink(tmp_path: Path) -> Run:
    """`multilink("build", "documents", ...)` runs the command in `tmp_path`, where `mlflow.db` will be."""

    def run(*arguments: str | Path) -> Outcome:
        return start(*arguments, folder=tmp_path, environment=clean_environment()).finish()

    return run


@pytest.fixture
def within(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The same in this process, for what a command says before it does anything."""
    for name in os.environ.keys() - clean_environment().keys():
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    be_quiet({})

    def run_here(*arguments: str | Path) -> Outcome:
        return Outcome(run([str(each) for each in arguments]), *capsys.readouterr())

    return run_here
