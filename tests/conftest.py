"""Options and fixtures of the whole suite: `--refresh-golden` writes the golden files anew instead of comparing.

Several processes may share the tests (`make test` takes three: some of them wait for servers). Files whose tests share
something costly stay together. What a test file uses marks its tests: `pytest -m "not ray"`.
"""

import gc
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import servers
import unsynced  # noqa: F401
from forked import CACHE, SETTINGS
from hypothesis import HealthCheck, settings

LOOKS_FOR_CYCLES = gc.get_threshold()
gc.set_threshold(20_000)  # until the tests are imported
PHOTOGRAPHS = Path(__file__).parent / "fixtures" / "photographs"
CLUSTER = Path(__file__).parent / "cluster"
SEED = 7
if CACHE not in os.environ:  # else set by the process that started this one
    _cache = tempfile.TemporaryDirectory(prefix="multilink-cache-", ignore_cleanup_errors=True)
    os.environ[CACHE] = _cache.name


# Where several processes share the tests, each product takes one thread: a seventh less of the processor's time. Tests
# of what threads change set their number.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# No key of the person who runs the tests signs what they promote.
for _name in ("MULTILINK_KEY", "MULTILINK_TRUST", "MULTILINK_VERIFY"):
    os.environ.pop(_name, None)
os.environ["XDG_CONFIG_HOME"] = os.environ["XDG_STATE_HOME"] = os.environ[CACHE]


def settings_of_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(SETTINGS)}


AT_START = settings_of_environment()
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--refresh-golden", action="store_true", help="write golden files instead of comparing")


def pytest_configure() -> None:
    """Heed Ctrl-C also where the caller does not (a job in the background): what tests start inherits that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def own_settings() -> Iterator[None]:
    """Take back what a test, or MLflow for it, leaves in the environment: the next would ask a server that is gone."""
    before = settings_of_environment()
    yield
    _set_back(before)


@pytest.fixture(scope="module", autouse=True)
def settings_of_the_start() -> Iterator[None]:
    """Take back what fixtures leave there, with the last test of a file."""
    yield
    _set_back(AT_START)


def _set_back(wanted: dict[str, str]) -> None:
    for name in settings_of_environment().keys() - wanted.keys():
        del os.environ[name]
    os.environ.update(wanted)


@pytest.fixture(scope="session")
def photographs() -> dict[str, bytes]:
    """Stored pictures by name; their origins are in the folder's README."""
    return {path.stem: path.read_bytes() for path in sorted(PHOTOGRAPHS.glob("*.jpg"))}


@pytest.fixture(scope="session")
def random_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the path of a checkpoint of an architecture, with the random weights of seed 7."""

    @cache
    def make(name: str) -> Path:
        import torch

        from pipelines.features.catalogue import find_entry

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            tensors = find_entry(name).factory.args[0].build().state_dict()
        path = tmp_path_factory.mktemp("checkpoints") / f"{name}.pth"
        torch.save(tensors, path)
        return path

    return make


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty MLflow database: making its tables takes a second."""
    from training.mlflow.runs import connect

    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    connect(f"sqlite:///{path}")
    return path


@pytest.fixture
def empty_store(template: Path, tmp_path: Path) -> str:
    """The URI of an empty store in `tmp_path`."""
    shutil.copy(template, tmp_path / "mlflow.db")
    return f"sqlite:///{tmp_path}/mlflow.db"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URI of a PostgreSQL server's own database."""
    with servers.postgresql() as uri:
        yield uri


@pytest.fixture
def postgres(postgres_server: str) -> str:
    """The URI of a fresh PostgreSQL database."""
    import psycopg

    name = f"test_{uuid4().hex}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')  # type: ignore[arg-type]
    return f"{postgres_server.rpartition('/')[0]}/{name}"


@pytest.fixture(scope="session")
def object_stores() -> Iterator[Callable[[], int]]:
    """An S3 server for all tests of a process: a function that empties it and gives its address."""
    with servers.object_stores() as empty:
        yield empty


@pytest.fixture
def object_store(object_stores: Callable[[], int], monkeypatch: pytest.MonkeyPatch) -> str:
    """Make a bucket `lake` on an empty S3 server; give the options of its URIs."""
    from pyarrow.fs import S3FileSystem

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "key")
    endpoint = f"http://127.0.0.1:{object_stores()}"
    S3FileSystem(allow_bucket_creation=True, endpoint_override=endpoint, region="us-east-1").create_dir("lake")
    return f"endpoint={endpoint}"


# Relative to this folder: what shares a running newsroom, a data set with a registered model, a built version.
KEPT_TOGETHER = (
    "newsroom/decisions",
    "newsroom/pages",
    "pipelines/exports",
    "pipelines/forgetting",
    "training/mlflow",
)
OF_BUILT = ("newsroom/decisions", "newsroom/pages", "pipelines/exports", "pipelines/forgetting")
SHARES = "share"  # what a file has fixtures for that all its tests use


# Marker -> what stands in a file whose tests need it.
USES = {
    "ray": r"^\s*(?:from|import) (?:ray|training\.ray)\b|test_pipes",
    "mlflow": r"^\s*(?:from|import) (?:mlflow|training\.mlflow|training\.workflows)\b",
    "dagster": r"^\s*(?:from|import) (?:dagster|orchestration\.dagster)\b",
    "browser": r"playwright",
    "java": r"\bjava\b",
    "build": r"build_dataset|\bbuilds import|\bapache_beam\b|RecordedWeb|\bforked\b|def build\(|orchestration\.cli\b"
    r"|multilink: [A-Z]",
    "trains": r"training\.loop\.trainer\b|lakes\.learn\b",
    "network": r"torchvision|find_entry|random_checkpoint",
    "infra": r"^pytestmark = .*\bpytest\.mark\.infra\b",
    SHARES: r"scope=\"module\"",
}


@cache
def used_by(path: Path) -> list[str]:
    """Return the markers of a test file, and whether its tests share something."""
    text = path.read_text(encoding="utf-8")
    found = [name for name, pattern in USES.items() if re.search(pattern, text, re.MULTILINE)]
    is_of_built = any(path.is_relative_to(Path(__file__).parent / name) for name in OF_BUILT)
    return [*found, "build"] if is_of_built and "build" not in found else found


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave files unread of which no test is wanted: what they import takes seconds in every process."""
    wanted: str = config.option.markexpr or ""
    names = ["cluster"] if collection_path == CLUSTER else []
    if collection_path.name.startswith("test_") and collection_path.suffix == ".py":
        names = used_by(collection_path)
    return True if any(re.search(rf"\bnot {name}\b", wanted) for name in names) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for name in used_by(item.path):
            if name != SHARES:
                item.add_marker(name)
    if hasattr(config, "workerinput"):  # what takes long begins first, so that no process waits for another at the end
        items.sort(key=lambda item: not any(item.get_closest_marker(name) for name in ("slow", "ray")))


def pytest_collection_finish() -> None:
    """Take what was imported out of every later garbage collection: a look through all of it takes a second."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*LOOKS_FOR_CYCLES)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give tests that share something to one process; every other test goes to whoever is free."""
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = Path(nodeid.partition("::")[0])
            together = [name for name in KEPT_TOGETHER if path.is_relative_to(f"tests/{name}")]
            together += [str(path)] if SHARES in used_by(config.rootpath / path) else []
            return together[0] if together else nodeid

    return Together(config, log)
