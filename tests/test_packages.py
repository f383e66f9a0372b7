"""The distribution is made of the folders of this repository, all of them, and nothing else of those names."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES: list[str] = SETTINGS["tool"]["setuptools"]["packages"]
TOP = ("multilink", "networks", "schemas", "pipelines", "training", "newsroom", "orchestration")


def test_every_listed_package_resolves_inside_the_repository() -> None:
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.origin is not None, name
        assert Path(spec.origin).is_relative_to(ROOT), name


def test_every_package_is_listed() -> None:
    found = {".".join(path.parent.relative_to(ROOT).parts) for top in TOP for path in (ROOT / top).rglob("__init__.py")}
    assert found == set(PACKAGES)


def test_a_file_an_installed_package_reads_is_package_data() -> None:
    data: dict[str, list[str]] = SETTINGS["tool"]["setuptools"]["package-data"]
    for top in TOP:
        for path in (ROOT / top).rglob("*"):
            if path.is_file() and path.suffix not in (".py", ".pyc"):
                home = next(folder for folder in path.parents if (folder / "__init__.py").exists())
                package = ".".join(home.relative_to(ROOT).parts)
                assert any(path.relative_to(home).match(pattern) for pattern in data.get(package, [])), path


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
