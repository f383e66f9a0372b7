"""The image, built by a real builder from a clean root, and the programs in it.

    debootstrap   a minimal Debian 12                     in place of   python:3.11-slim-bookworm
    go install    Beam's boot program                     in place of   Beam's own image
    buildah       every line of infra/Dockerfile, without a registry and without a daemon

Half an hour, 45 GB of disk while it lasts, root. It finds what a reader does not: a package that needs a compiler, a
file that is not copied.
"""

import os
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from repository import ROOT

pytestmark = [pytest.mark.infra, pytest.mark.timeout(3600)]

NEEDED_BYTES = 45 * 10**9  # 8 for the image, four times while it is committed, and what it is made of
SUITE, PYTHON, BEAM = "bookworm", "3.11", "2.77.0"
BASE = f"""\
FROM scratch
COPY base /
RUN apt-get update && apt-get install --yes --no-install-recommends python{PYTHON}-venv python{PYTHON}-dev
RUN python{PYTHON} -m venv /usr/local
"""
BOOT = "FROM scratch\nCOPY container /opt/apache/beam/boot\n"
# What a registry and its mirror are reached with on this machine, if it has something of its own.
OWN = [Path("/etc/ssl/certs"), Path("/etc/pip.conf")]


@dataclass(frozen=True)
class Builder:
    """Buildah with a storage of its own in a folder."""

    folder: Path

    def __call__(self, *arguments: str) -> str:
        """Run buildah; what it prints on standard output is the result, and what it started ends with it."""
        storage = ["--root", str(self.folder / "storage"), "--runroot", str(self.folder / "run")]
        environment = os.environ | {"BUILDAH_ISOLATION": "chroot", "TMPDIR": str(self.folder)}
        alone = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"] if arguments[0] == "run" else []
        command = ["nice", *alone, "buildah", *storage, *arguments]
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def build(self, name: str, text: str) -> None:
        """Build an image of the folder's files from a Dockerfile's text."""
        file = self.folder / "Dockerfile"
        file.write_text(text, encoding="utf-8")
        self("build", "--format=docker", f"--tag={name}", f"--file={file}", str(self.folder))


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    for program in ("debootstrap", "buildah", "go"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not on this machine")
    if os.geteuid() != 0:
        pytest.skip("a clean root is made by root")
    folder = tmp_path_factory.mktemp("image")
    if (free := shutil.disk_usage(folder).free) < NEEDED_BYTES:
        pytest.skip(f"the image and buildah's copies of it take {NEEDED_BYTES / 1e9:.0f} GB, {free / 1e9:.0f} are free")
    builder = Builder(folder)
    try:
        yield builder
    finally:
        builder("rm", "--all")
        builder("rmi", "--all", "--force")
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def image(builder: Builder) -> str:
    """Return a container of the image of infra/Dockerfile, whose two bases are made here."""
    debootstrap = ["debootstrap", "--variant=minbase", "--include=ca-certificates", SUITE, str(builder.folder / "base")]
    subprocess.run(["nice", *debootstrap], check=True, capture_output=True)
    boot = ["go", "install", "-p=1", f"github.com/apache/beam/sdks/v2/python/container@v{BEAM}"]
    environment = os.environ | {"GOBIN": str(builder.folder), "GOFLAGS": ""}
    subprocess.run(["nice", *boot], env=environment, check=True, capture_output=True)
    builder.build(f"docker.io/library/python:{PYTHON}-slim-{SUITE}", BASE)
    builder.build(f"docker.io/apache/beam_python{PYTHON}_sdk:{BEAM}", BOOT)
    shutil.rmtree(builder.folder / "base")
    own = [f"--volume={path}:{path}:ro" for path in OWN if path.exists()]
    file = ROOT / "infra" / "Dockerfile"
    builder("build", "--format=docker", "--pull-never", *own, "--tag=multilink", f"--file={file}", str(ROOT))
    return builder("from", "--pull-never", "localhost/multilink").strip()


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PROGRAMS = ("dagster", "dagster-daemon", "dagster-webserver", "mlflow", "ray", "tini", "wget")


@pytest.mark.parametrize(
    ("command", "pattern"),
    [
        ("multilink --help", r"(?s).*\bbuild\b.*\btrain\b"),
        ("multilink --version", rf"multilink {re.escape(PROJECT['version'])}\n"),
        ("id --user --name", "multilink\n"),
        ("python -m pip check", "No broken requirements"),
        *((f"{program} --version", r"\s*\S") for program in PROGRAMS),  # what pods start
        ("sh -c '/opt/apache/beam/boot --help 2>&1 || true'", "Usage of"),  # where Beam starts it
    ],
)
def test_the_image_answers(builder: Builder, image: str, command: str, pattern: str) -> None:
    assert re.match(pattern, builder("run", image, "--", *shlex.split(command)))


def test_a_ray_head_of_the_image_does_a_step(builder: Builder, image: str) -> None:
    """As in the head of the chart: with a token, and by the job server that runs submit to."""
    head = "ray start --head --block --port=36379 --dashboard-port=38265 --num-cpus=1 --object-store-memory=100000000"
    jobs = "ray job list --address http://127.0.0.1:38265"
    step = "ray job submit --address http://127.0.0.1:38265 -- multilink settings --json"
    script = f"""
        export RAY_AUTH_MODE=token RAY_AUTH_TOKEN=$(python -c 'print(64 * "a")')
        {head} >/tmp/head.log 2>&1 & head=$!
        timeout 900 sh -c 'until {jobs}; do sleep 1; done' >/dev/null 2>&1 && {step}
        status=$?; kill $head; wait $head; exit $status
    """
    shown = builder("run", image, "--", "sh", "-c", script)
    assert "succeeded" in shown and '"tiny"' in shown


def test_the_definitions_load(builder: Builder, image: str) -> None:
    """Every module that Dagster's code server imports is in the image, and the code is that of the working tree."""
    listed = "from orchestration.dagster.definitions import definitions; print(len(list(definitions().assets)))"
    assert int(builder("run", image, "--", "python", "-c", listed).splitlines()[-1]) >= 5
