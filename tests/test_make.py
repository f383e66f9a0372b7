"""What `make setup` does, by the steps that `make` would take."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from repository import ROOT


def test_make_sets_up_anew_for_another_python_that_is_named(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / ".venv").mkdir()

    def steps(*arguments: str) -> str:
        command = ["make", "--dry-run", "setup", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout

    # `make test PYTHON=python3.13` runs this, and hands its own arguments down.
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "PYTHON"
    }
    running = f"{sys.version_info[0]}.{sys.version_info[1]}"
    for made_by, is_anew in ((running, False), ("3.9", True)):
        (tmp_path / ".venv" / "pyvenv.cfg").write_text(f"home = /usr/bin\nversion = {made_by}.7\n")
        (tmp_path / ".venv" / ".ready").touch()
        assert ("-m venv --clear .venv" in steps(f"PYTHON={sys.executable}")) is is_anew
        assert "-m venv" not in steps()  # what is there is used
