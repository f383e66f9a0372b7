"""The programs of `infra/kubernetes/go.mod`, where they have been built, and what the short ones of them say.

`helm` renders the chart. A test that needs a program that is not there is skipped.
"""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

INFRA = Path(__file__).resolve().parents[2] / "infra"
CHART = INFRA / "helm"
FOLDER = Path("~/.cache/multilink/kubernetes").expanduser()
RELEASE, NAMESPACE = "ml", "multilink"
ACCOUNT = f"{RELEASE}-dagster"  # service account of Dagster's pods and runs
NEEDED = ("--set", "postgres.host=db.example")


def built(name: str) -> Path:
    """Return the path of a program or file that `make kubernetes` makes, or skip the test."""
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"{path} is not there: `make kubernetes` builds it (half an hour, once)")
    return path


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run helm; the result tells whether it went well."""
    return subprocess.run([built("helm"), *arguments], capture_output=True, text=True, check=False)


def template(*arguments: str) -> str:
    """Return the chart's objects under some values, as YAML documents."""
    done = helm("template", RELEASE, str(CHART), "--namespace", NAMESPACE, *NEEDED, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects(text: str) -> dict[tuple[str, str], Any]:
    """Return the objects of YAML documents by kind and name."""
    found = (each for each in yaml.safe_load_all(text) if each)
    return {(each["kind"], each["metadata"]["name"]): each for each in found}
