"""The distribution is made of the folders of this repository, all of them, and nothing else of those names."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES: list[str] = SETTINGS["tool"]["setuptools"]["packages"]
TOP = ("multilink", "networks", "schemas", "pipelines", "training", "orchestration")


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
