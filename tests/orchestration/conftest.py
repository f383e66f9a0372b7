"""The command line as a user runs it: a process of its own, in a folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

COMMAND = [sys.executable, "-c", "from orchestration.cli import main; main()"]


@dataclass(frozen=True, slots=True)
class Outcome:
    status: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        values: dict[str, Any] = json.loads(self.out.splitlines()[-1])
        return values


Run = Callable[..., Outcome]


@pytest.fixture
def multilink(tmp_path: Path) -> Run:
    """`multilink("build", "documents", ...)` runs the command in `tmp_path`, where `mlflow.db` will be."""

    def run(*arguments: str | Path) -> Outcome:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "MULTILINK_"))
        }
        command = [*COMMAND, *map(str, arguments)]
        done = subprocess.run(
            command, check=False, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return run
