"""A running cluster for every test of this folder, the commands that work on it, and the page of their results.

    make cluster                starts the same cluster to look at
    make test-cluster           runs these tests on one of their own; ENGINE=spark: those of the build, on Spark

What a test found is a row of `tests/cluster/RESULTS.md`, in place of its last one.
"""

import json
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from bench import (
    COMMAND_TIMEOUT_S,
    LAKE,
    ROOT,
    TWO_BATCHES,
    Bench,
    Local,
    References,
    Trained,
    summary_of,
    weights_of,
)
from cluster.local.cluster import Cluster, running
from cluster.local.deployment import SPLITS
from cluster.local.programs import BEAM_JAVA, FLINK, SPARK, VERSITYGW, Engine

from orchestration.demo.recorded_web import scraping
from schemas.lake import Lake
from schemas.manifest import read_manifest
from schemas.messages import UsageError

RESULTS = ROOT / "tests" / "cluster" / "RESULTS.md"
_HEAD = """\
# What ran on the cluster

Kept by `make test-cluster`: each row is the last run of a test of `tests/cluster`, on one machine of {cpus} processors
with other work beside it. The seconds are those of the test; a build and a training that several tests share are not
in them.

Flink {flink}, Spark {spark}, Beam {beam} with Java runners {java}, Ray {ray}, MLflow {mlflow}, Dagster {dagster},
versitygw {versitygw}, Python {python}.

| what | found | seconds | on |
|---|---|---|---|
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.cluster)
            item.add_marker(pytest.mark.timeout(COMMAND_TIMEOUT_S * 2))


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    engine = engine_of(os.environ)
    home = tmp_path_factory.mktemp("cluster")
    for folder in (home, *home.parents[:2]):
        folder.chmod(0o755)  # PostgreSQL runs as nobody
    try:
        with running(home, engine=engine, say=print) as cluster:
            over = threading.Event()
            watching = threading.Thread(target=_watch, args=(cluster, over), daemon=True)
            watching.start()
            os.environ.update(cluster.environment)  # this process reads the lake and the registry, too
            yield Bench(cluster)
            over.set()
            watching.join()
    except UsageError as lack:
        pytest.skip(str(lack))


def _watch(cluster: Cluster, over: threading.Event) -> None:
    while not over.wait(1.0):
        cluster.watch()


@pytest.fixture(scope="session")
def local_build(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lake, subprocess.Popen[str]]]:
    """Start the build of the recorded web by one process of this machine: it runs beside that on the engine."""
    lake = Lake.at(str(tmp_path_factory.mktemp("local") / "lake"))
    with scraping(ROOT / "tests" / "replay" / "recording") as settings:
        set_ = [part for setting in (*settings, SPLITS) for part in ("--set", setting)]
        command = [sys.executable, "-m", "orchestration", "build", "diy", "--lake", lake.root.uri, *set_, "--json"]
        own = os.environ | {"PYTHONPATH": str(ROOT)}
        with subprocess.Popen(
            command, cwd=ROOT, env=own, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            yield lake, process


@pytest.fixture(scope="session")
def local(local_build: tuple[Lake, subprocess.Popen[str]]) -> Local:
    """Return what one process builds of the recorded web."""
    lake, process = local_build
    summary_of(process)
    return Local(lake, read_manifest(lake, "diy")[0])


@pytest.fixture(scope="session")
def here(local: Local, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    """Run a command on this machine alone: its own lake, its own registry."""
    store = f"sqlite:///{tmp_path_factory.mktemp('registry') / 'mlflow.db'}"
    near = ["--tracking-uri", store, "--lake", local.lake.root.uri, "--json"]
    alone = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "MLFLOW_", "RAY_"))}

    def run(*arguments: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "orchestration", *arguments, *near]
        own = alone | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return summary | {"store": store}

    return run


@pytest.fixture(scope="session")
def references(here: Callable[..., dict[str, Any]]) -> References:
    """Return what gives what one local process trains on the local lake."""

    @cache
    def trained(*settings: str) -> Trained:
        summary = here("train", "--dataset", "diy", "--recipe", "tiny", *TWO_BATCHES, "--no-report", *settings)
        return Trained(summary["model_uri"], weights_of(summary["model_uri"], summary["store"]))

    return trained


@pytest.fixture(scope="session")
def reference(references: References) -> Trained:
    """Return what one local process trains with the recipe's settings."""
    return references()


@pytest.fixture(scope="session")
def built(bench: Bench, local_build: object) -> dict[str, Any]:
    """Return the summary of a build on the engine, with the lake on S3."""
    return bench.run(*bench.build_arguments(LAKE))


@pytest.fixture(scope="session")
def trained(bench: Bench, built: dict[str, Any]) -> dict[str, Any]:
    """Return the summary of a training on two Ray nodes."""
    return bench.run(*bench.train_arguments(LAKE, built["version"]))


@pytest.fixture
def found(request: pytest.FixtureRequest) -> Iterator[Callable[[str], None]]:
    """Take what a test found; with its first docstring line it becomes a row of the results.

    The line may name the engine, `{engine}`, and parameters of the test.
    """
    began, words = time.monotonic(), list[str]()
    yield words.append
    if words:
        what = (request.function.__doc__ or request.node.name).strip().splitlines()[0].rstrip(".")
        named = getattr(request.node, "callspec", None)
        what = what.format(engine=engine_of(os.environ), **(named.params if named is not None else {}))
        _keep(what, " ".join(words), time.monotonic() - began)


def engine_of(environment: Mapping[str, str]) -> Engine:
    return Engine(environment.get("ENGINE", Engine.FLINK))


def _keep(what: str, finding: str, seconds: float) -> None:
    old = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else []
    rows = {row.split(" | ")[0].removeprefix("| "): row for row in old if row.startswith("| ") and "what |" not in row}
    rows[what] = f"| {what} | {finding} | {seconds:.0f} | {datetime.now(UTC):%Y-%m-%d} |"
    RESULTS.write_text(_HEAD.format_map(_versions()) + "\n".join(rows.values()) + "\n", encoding="utf-8")


def _versions() -> Mapping[str, object]:
    packages = {"beam": "apache-beam", "ray": "ray", "mlflow": "mlflow", "dagster": "dagster"}
    own = {"flink": FLINK, "spark": SPARK, "java": BEAM_JAVA, "versitygw": VERSITYGW}
    own |= {name: version(package) for name, package in packages.items()}
    return own | {"python": platform.python_version(), "cpus": os.cpu_count()}
