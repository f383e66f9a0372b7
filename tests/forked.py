"""Commands, and programs of tests, in processes that cost a fork: their server has imported what they import.

A command that trains imports for eight seconds of a processor: torch, MLflow, Beam, SciPy. Here a server of the
standard library's `multiprocessing` imports them once a test process, and runs nothing. Each command is a child of it
with its own folder, environment, arguments and output files. It ends as a program does: threads joined, what was
registered for the end run, then its status. Tests of how a program starts use real ones (`test_start.py`).
"""

import atexit
import json
import multiprocessing
import os
import runpy
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

import pytest
from repository import ROOT

CACHE = "MULTILINK_CACHE"  # where the data that is trained on is mapped; the tests have a folder of their own
SETTINGS = ("MLFLOW_", "MULTILINK_")  # how names of variables begin that change what commands do
# The modules of the commands; what they import comes with them.
IMPORTED = (
    *("unsynced", "orchestration.__main__", "pipelines.run", "pipelines.exports.formats"),
    *("training.workflows.evaluate", "training.workflows.link"),
    *("pyarrow.dataset", "scipy.optimize", "torchvision", "training.loop.trainer"),
    # What PyTorch and MLflow import at the first optimiser, store and model, each command for itself: two seconds.
    *("torch._dynamo", "mlflow.store.tracking.sqlalchemy_workspace_store", "mlflow.pyfunc.scoring_server"),
    *("mlflow.store.model_registry.sqlalchemy_workspace_store", "alembic.command", "git", "IPython"),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    status: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.out.splitlines()[-1])

    def check(self) -> "Outcome":
        """Return the outcome of a command that did what it was told."""
        assert self.status == 0, self.err
        return self


@dataclass(frozen=True, slots=True)
class Running:
    """A command that was started; its status is the negative number of the signal that ended it."""

    process: ForkServerProcess
    output: tempfile.TemporaryDirectory[str]

    def finish(self, timeout_s: float = 500) -> Outcome:
        """Wait for its end; a command that takes longer is killed."""
        self.process.join(timeout_s)
        if self.process.exitcode is None:
            self.process.kill()
        self.process.join()
        with self.output as folder:
            out, err = ((Path(folder) / name).read_text(encoding="utf-8") for name in ("out", "err"))
        return Outcome(self.process.exitcode, out, err)


def clean_environment(**own: str) -> dict[str, str]:
    """Return the environment without settings of the one who runs the tests, and with one's own."""
    inherited = {name: value for name, value in os.environ.items() if name == CACHE or not name.startswith(SETTINGS)}
    return inherited | own


def start(*arguments: str | Path, folder: Path, environment: Mapping[str, str], program: Path | None = None) -> Running:
    """Start `multilink`, or another program of Python, with arguments in a folder."""
    output, given = tempfile.TemporaryDirectory(prefix="command-"), [str(each) for each in arguments]
    process = server().Process(target=_run, args=(given, str(folder), dict(environment), output.name, program))
    process.start()
    return Running(process, output)


def run_code(code: str, *arguments: str | Path, folder: Path) -> Outcome:
    """Run code as a program of its own, with arguments, to its end."""
    program = folder / "program.py"
    program.write_text(code, encoding="utf-8")
    return start(*arguments, folder=folder, environment=clean_environment(), program=program).finish()


@cache
def server() -> ForkServerContext:
    """Return the server; it starts here, in the root of the repository, with no setting of the tests."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(IMPORTED))
    with pytest.MonkeyPatch.context() as patched:
        for name in os.environ.keys() - clean_environment().keys():
            patched.delenv(name)
        patched.setenv(
            "PYTHONPATH",
            os.pathsep.join([str(ROOT), str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]),
        )
        patched.chdir(ROOT)
        forkserver.ensure_running()
    return context


def _run(arguments: list[str], folder: str, environment: dict[str, str], output: str, program: Path | None) -> None:
    """Become the program: all of this process is of the server until here."""
    for descriptor, name in ((1, "out"), (2, "err")):
        file = os.open(Path(output) / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, descriptor)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # TMPDIR may be another here
    sys.path[:0] = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.argv = [str(program or "multilink"), *arguments]
    try:
        if program is not None:
            runpy.run_path(str(program), run_name="__main__")
        else:
            from orchestration.__main__ import main

            main()
    finally:
        threading._shutdown()  # type: ignore[attr-defined]  # what `Py_Finalize` does; children of a server skip the next
        atexit._run_exitfuncs()
