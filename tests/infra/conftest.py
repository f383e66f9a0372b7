"""A control plane for all tests of `tests/infra` that need one, and the chart installed on it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from control_plane import ControlPlane, started
from programs import ACCOUNT, CHART, FOLDER, NAMESPACE, NEEDED, RELEASE


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with KubeRay's types, the namespace and the secrets that the chart asks for."""
    with started(tmp_path_factory.mktemp("control-plane"), nodes=3) as plane:
        for path in sorted(FOLDER.glob("ray.io_*.yaml")):
            plane.kubectl("apply", "--server-side", "--filename", str(path))
        plane.prepare(NAMESPACE)
        yield plane


@pytest.fixture(scope="session")
def installed(plane: ControlPlane) -> ControlPlane:
    """The chart installed: helm waits until every Deployment is available."""
    done = plane.run("helm", "install", RELEASE, str(CHART), "--namespace", NAMESPACE, *NEEDED, "--wait")
    assert done.returncode == 0, done.stderr
    return plane


@pytest.fixture
def as_dagster(installed: ControlPlane) -> Any:
    """An API client with the rights of Dagster's pods."""
    return installed.client(installed.token(ACCOUNT, NAMESPACE))
