"""The image, built by a real builder from a clean root, and the chart's programs in it as the chart starts them.

    debootstrap   a minimal Debian 12                     in place of   python:3.11-slim-bookworm
    go install    Beam's boot program                     in place of   Beam's own image
    buildah       every line of infra/Dockerfile, without a registry and without a daemon

Half an hour, 45 GB of disk while it lasts, root. It finds what a reader does not: a package that needs a compiler, a
file that is not copied, a program that writes where it may not.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from control_plane import wait_for
from pods import Machine, Objects, network
from programs import RELEASE, objects, template

pytestmark = [pytest.mark.infra, pytest.mark.timeout(3600)]
ROOT = Path(__file__).resolve().parents[2]
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


def test_the_image_answers_as_the_user_it_names(builder: Builder, image: str) -> None:
    shown = builder("run", image, "--", "multilink", "--help")
    assert "build" in shown
    assert "train" in shown
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert builder("run", image, "--", "multilink", "--version").split() == ["multilink", version]
    assert builder("run", image, "--", "id", "--user", "--name").strip() == "multilink"


def test_its_packages_fit_each_other(builder: Builder, image: str) -> None:
    assert "No broken requirements" in builder("run", image, "--", "python", "-m", "pip", "check")


@pytest.mark.parametrize("program", ["dagster", "dagster-daemon", "dagster-webserver", "mlflow", "ray", "tini", "wget"])
def test_the_programs_that_pods_start_are_there(builder: Builder, image: str, program: str) -> None:
    assert builder("run", image, "--", program, "--version").strip()


def test_beams_boot_program_is_where_beam_starts_it(builder: Builder, image: str) -> None:
    assert builder("run", image, "--", "sh", "-c", "/opt/apache/beam/boot --help 2>&1 || true").startswith("Usage of")


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
    assert "succeeded" in shown
    assert '"tiny"' in shown


def test_the_definitions_load(builder: Builder, image: str) -> None:
    """Every module that Dagster's code server imports is in the image, and the code is that of the working tree."""
    listed = "from orchestration.dagster.definitions import definitions; print(len(list(definitions().assets)))"
    assert int(builder("run", image, "--", "python", "-c", listed).splitlines()[-1]) >= 5


@pytest.fixture(scope="module")
def machine(
    builder: Builder, image: str, chart: Objects, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Machine]:
    """The image's files, a network of its own, and a PostgreSQL in it under the name that the chart is told."""
    initdb = max(Path("/usr/lib/postgresql").glob("*/bin/initdb"), default=None)
    if initdb is None or shutil.which("bwrap") is None:
        pytest.skip("PostgreSQL's server programs (Debian: postgresql) or bubblewrap are not on this machine")
    root, folder = Path(builder("mount", image).strip()), tmp_path_factory.mktemp("pods")
    config = json.loads(builder("inspect", image))["Docker"]["config"]["Env"]
    names = [name for kind, name in chart if kind == "Service"]
    (root / "etc" / "hosts").write_text(f"127.0.0.1 localhost db.example {' '.join(names)}\n", encoding="utf-8")
    keys = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_DEFAULT_REGION": "us-east-1"}
    secrets = {"multilink": keys, "multilink-postgres": {"postgresql-password": "p/w@"}}
    variables = dict(variable.split("=", 1) for variable in config)
    with network("multilink-image"), database(initdb.parent, "multilink-image", "p/w@"):
        yield Machine(root=root, environment=variables, secrets=secrets, folder=folder, network="multilink-image")


@contextlib.contextmanager
def database(programs: Path, network_name: str, password: str) -> Iterator[None]:
    """Run a PostgreSQL that asks for a password, with the databases of the chart, on the port of the chart."""
    with tempfile.TemporaryDirectory(prefix="multilink-pg-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        (Path(folder) / "password").write_text(password, encoding="utf-8")
        shutil.chown(folder, "nobody")
        user = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]

        def run(program: str, *arguments: str) -> None:
            command = ["ip", "netns", "exec", network_name, *user, programs / program, *arguments]
            subprocess.run(command, cwd="/", check=True, stdout=subprocess.DEVNULL)

        data = ["-D", f"{folder}/data"]
        access = ["--username=multilink", f"--pwfile={folder}/password", "--auth=scram-sha-256", "--auth-local=trust"]
        run("initdb", *data, *access, "--no-sync", "--encoding=UTF8")
        run("pg_ctl", *data, "-w", "-l", f"{folder}/log", "-o", f"-k {folder} -c fsync=off", "start")
        try:
            for name in ("dagster", "mlflow"):
                run("createdb", "-h", folder, "-U", "multilink", name)
            yield
        finally:
            run("pg_ctl", *data, "-m", "immediate", "stop")


@pytest.fixture(scope="module")
def chart() -> Objects:
    return objects(template())


@pytest.fixture(scope="module")
def pods(machine: Machine, chart: Objects) -> Iterator[Machine]:
    """The chart's four pods, started in the order in which a person would read them; each passes its probes."""
    with contextlib.ExitStack() as running:
        for name in ("mlflow", "code", "webserver", "daemon"):
            running.enter_context(machine.running(chart, f"{RELEASE}-{name}"))
        yield machine


def test_a_pods_root_is_read_only_and_its_volumes_are_not(machine: Machine, chart: Objects) -> None:
    for path, writable in (("/opt", False), ("/settings", False), ("/usr/local/lib", False), ("/tmp", True)):
        done = machine.run(chart, f"{RELEASE}-code", ["touch", f"{path}/x"])
        assert (done.returncode == 0) is writable, done.stderr
    for path in ("/dagster", "/home/multilink"):
        assert machine.run(chart, f"{RELEASE}-code", ["touch", f"{path}/x"]).returncode == 0


@pytest.mark.parametrize(
    ("name", "probes"),
    [
        ("mlflow", ("startupProbe", "readinessProbe", "livenessProbe")),
        ("code", ("startupProbe", "readinessProbe", "livenessProbe")),
        ("webserver", ("startupProbe", "readinessProbe", "livenessProbe")),
        ("daemon", ("livenessProbe",)),
    ],
)
def test_a_pod_starts_and_passes_its_probes(pods: Machine, chart: Objects, name: str, probes: tuple[str, ...]) -> None:
    for probe in probes:
        wait_for(partial(pods.passes, chart, f"{RELEASE}-{name}", probe), f"{name} passes its {probe}", 300)


def test_the_webserver_shows_what_the_code_server_loads(pods: Machine) -> None:
    """Through the workspace, the service's name and gRPC: what a reader of Dagster's page would see."""
    query = "{repositoriesOrError{... on RepositoryConnection{nodes{location{name} jobs{name}}}}}"
    ask = "import sys, urllib.request as u; print(u.urlopen(u.Request('http://ml-webserver:3000/graphql',"
    ask += " sys.argv[1].encode(), {'Content-Type': 'application/json'}), timeout=60).read().decode())"
    answer = pods.run(objects(template()), f"{RELEASE}-webserver", ["python", "-c", ask, json.dumps({"query": query})])
    assert answer.returncode == 0, answer.stderr
    (repository,) = json.loads(answer.stdout)["data"]["repositoriesOrError"]["nodes"]
    assert repository["location"]["name"] == "multilink"
    assert {"rebuild", "train", "promote", "link"} <= {job["name"] for job in repository["jobs"]}


def test_mlflow_answers_by_the_name_that_the_settings_give_and_by_no_other(pods: Machine, chart: Objects) -> None:
    look = "import sys, mlflow; print(mlflow.MlflowClient(sys.argv[1]).search_experiments()[0].name)"
    tracking = chart["ConfigMap", f"{RELEASE}-environment"]["data"]["MLFLOW_TRACKING_URI"]
    found = pods.run(chart, f"{RELEASE}-code", ["python", "-c", look, tracking])
    assert found.stdout.strip() == "Default", found.stderr
    refused = pods.run(chart, f"{RELEASE}-code", ["python", "-c", look, "http://db.example:5000"])
    assert "Invalid Host header" in refused.stderr
