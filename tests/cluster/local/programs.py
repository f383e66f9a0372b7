"""The programs of the cluster: what the machine has, and what package indexes give once, into a folder of their own.

    PyPI     Flink's and Spark's jars (`apache-flink-libraries`, `pyspark`)
    Maven    Beam's job servers (`infra/flink/job-server.pom.xml`, `infra/spark/job-server.pom.xml`)
    Go       versitygw, an S3 server over a folder

A program is fetched into a temporary folder, which gets its name when it is whole: a fetch that was killed is begun
anew.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from schemas.messages import BuildError, UsageError

FLINK, SPARK, BEAM_JAVA, VERSITYGW = "1.19.3", "3.5.9", "2.62.0", "v1.8.0"
CACHE_VARIABLE = "MULTILINK_PROGRAMS"
_CACHE = Path.home() / ".cache" / "multilink" / "programs"
_POMS = Path(__file__).resolve().parents[3] / "infra"
_NEEDED = {
    "java": "openjdk-17-jre-headless",
    "mvn": "maven",
    "go": "golang-go",
    "initdb": "postgresql",
    "postgres": "postgresql",
}


class Engine(StrEnum):
    """What Beam's pipelines run on."""

    FLINK = "flink"
    SPARK = "spark"


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """Where the programs are.

    Attributes:
        java: the command.
        engine: folder of Flink's `lib` and `plugins`, or of Spark's `jars`.
        job_server: folder of the jars of Beam's job server for the engine.
        object_store: versitygw.
        initdb: PostgreSQL's.
        postgres: the server.
    """

    java: str
    engine: Path
    job_server: Path
    object_store: str
    initdb: str
    postgres: str


def find_programs(engine: Engine, say: Callable[[str], None]) -> Programs:
    """Return the programs, fetched where they are not there yet.

    Raises:
        UsageError: the machine lacks some; one line names all of them.
        BuildError: a package index did not give one.
    """
    has = _required(*_NEEDED)
    package = f"apache-flink-libraries=={FLINK}" if engine is Engine.FLINK else f"pyspark=={SPARK}"
    return Programs(
        java=has["java"],
        engine=_fetched(package.replace("==", "-"), lambda target: _unpack_jars(package, target), say),
        job_server=_fetched(
            f"beam-{engine}-job-server-{BEAM_JAVA}", lambda target: _resolve_jars(has["mvn"], engine, target), say
        ),
        object_store=find_object_store(say),
        initdb=has["initdb"],
        postgres=has["postgres"],
    )


def find_object_store(say: Callable[[str], None]) -> str:
    """Return the S3 server's program alone; raises as `find_programs` does."""
    go = _required("go")["go"]
    return str(_fetched(f"versitygw-{VERSITYGW}", lambda target: _build_versitygw(go, target), say) / "versitygw")


def _required(*names: str) -> dict[str, str]:
    found = {name: _find(name) for name in names}
    lacking = [f"{name} (Debian: {_NEEDED[name]})" for name, path in found.items() if path is None]
    if lacking:
        raise UsageError(f"a cluster on this machine needs {', '.join(lacking)}")
    return {name: path for name, path in found.items() if path is not None}


def _find(name: str) -> str | None:
    """Return a program on the PATH, or of the newest of Debian's PostgreSQLs, which are not on it."""
    debian = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    return shutil.which(name) or (str(debian[-1]) if debian else None)


def _fetched(name: str, fetch: Callable[[Path], None], say: Callable[[str], None]) -> Path:
    """Return the folder of a program, which `fetch` fills where it is not there."""
    cache = Path(os.environ.get(CACHE_VARIABLE) or _CACHE)
    target = cache / name
    if target.is_dir():
        return target
    say(f"fetching {name} into {cache}: minutes, once")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=f".{name}-", ignore_cleanup_errors=True) as folder:
        part = Path(folder, "part")
        part.mkdir()
        fetch(part)
        with contextlib.suppress(FileExistsError):
            part.rename(target)
    return target


def _unpack_jars(package: str, target: Path) -> None:
    """Take the folders of jars out of a source distribution: `deps/lib`, `deps/plugins` or `deps/jars`."""
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        _run([*pip, "--dest", folder, package])
        (archive,) = Path(folder).iterdir()
        with tarfile.open(archive) as tar:
            for member in tar:
                parts = Path(member.name).parts[1:]
                if parts[:1] == ("deps",) and parts[1:2] in (("lib",), ("plugins",), ("jars",)):
                    member.name = str(Path(*parts[1:]))
                    tar.extract(member, target, filter="data")


def _resolve_jars(maven: str, engine: Engine, target: Path) -> None:
    pom = _POMS / engine / "job-server.pom.xml"
    _run([maven, "-q", "-B", "--file", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={target}"])


def _build_versitygw(go: str, target: Path) -> None:
    module = f"github.com/versity/versitygw/cmd/versitygw@{VERSITYGW}"
    _run([go, "install", "-p", "1", module], GOBIN=str(target))


def _run(command: list[str], **environment: str) -> None:
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    if done.returncode:
        words = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise BuildError(f"{' '.join(command[:4])} ...: {words[-1] if words else f'status {done.returncode}'}")
