"""What `infra/` says is held against what is there: commands by their own parsers, images and manifests by their parts.

Nothing is started. Containers and clusters are not to be had here; a word that no program knows is found all the same.
"""

import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from commands import parse
from programs import INFRA, objects
from repository import ROOT

from orchestration.config import (
    PAGE_VARIABLE,
    SETTINGS_VARIABLE,
)
from orchestration.dagster.pipes import job_command


def composed(name: str) -> Any:
    """Return what a file of `infra/compose` says."""
    return yaml.safe_load((INFRA / "compose" / f"{name}.yaml").read_text(encoding="utf-8"))


COMPOSE = composed("docker-compose")
FLINK = objects((INFRA / "flink" / "flink.yaml").read_text(encoding="utf-8"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
# Programs of images that are not ours.
FOREIGN = {"store", "buckets", "postgres"}


def written_commands(text: str) -> Iterator[list[str]]:
    """Yield the commands in a text: lines, in a comment or not, that begin with a program, or variables and one."""
    for line in re.sub(r"\\\n#?\s*", "", text).splitlines():
        words = line.lstrip("# ").split("   #")[0]
        if re.match(r"(?:[A-Z_]+=\S+ )*(?:multilink|ray|mlflow|dagster) [a-z]", words) and "..." not in words:
            yield [word for word in shlex.split(words) if not re.match(r"[A-Z_]+=", word)]


def in_files() -> list[list[str]]:
    written = (path for path in sorted(INFRA.rglob("*")) if path.is_file() and path.suffix != ".pyc")
    found = [list(each) for path in written for each in written_commands(path.read_text())]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    indented = "\n".join(line for line in readme.splitlines() if line.startswith("    ")).replace(" ...", "")
    return [*found, *written_commands(indented)]


def test_the_commands_that_are_written_down_parse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = in_files()
    for name in ("mlflow.db", "new.jsonl", "policy.toml"):  # files that the reader has
        (tmp_path / name).touch()
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    assert len(commands) >= 7
    for command in commands:
        here = [word.replace("http://mlflow:5000", "sqlite:///mlflow.db") for word in command]  # a server is asked
        assert parse(here), command


def test_the_limit_of_a_ray_job_is_one_that_timeout_knows() -> None:
    *limit, deadline, python, option, module = shlex.split(job_command(60))
    assert (limit[0], deadline, python, option) == ("timeout", "60", "python", "-m") and find_spec(module)
    assert subprocess.run([*limit, "60", "true"], check=False).returncode == 0


@pytest.mark.parametrize("name", sorted(COMPOSE["services"].keys() - FOREIGN))
def test_a_service_of_compose_runs_a_command_of_ours_with_files_that_are_there(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["image"] == "multilink:latest"
    mounted = {target: source for source, target, *_ in (volume.split(":") for volume in service["volumes"])}
    files = {target: INFRA / "compose" / source for target, source in mounted.items() if source.startswith("./")}
    assert [file for file in files.values() if not file.is_file()] == []
    assert {source for source in mounted.values() if not source.startswith("./")} <= COMPOSE["volumes"].keys()
    assert parse([str(files.get(word, word)) for word in service["command"]])


def test_compose_makes_the_buckets_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    services, made = COMPOSE["services"], {"mlflow"}

    class Store:
        def list_buckets(self) -> dict[str, list[dict[str, str]]]:
            return {"Buckets": [{"Name": each} for each in made]}

        def create_bucket(self, Bucket: str) -> None:
            made.add(Bucket)

    monkeypatch.setattr("boto3.client", lambda _: Store())
    exec(services["buckets"]["command"][2], {})
    artifacts = next(word for word in services["mlflow"]["command"] if "artifacts" in word).partition("=")[2]
    assert {urlsplit(composed("settings")["lake"]).netloc, urlsplit(artifacts).netloc} <= made


def test_compose_hangs_together() -> None:
    services = COMPOSE["services"]
    for service in services.values():
        assert set(service.get("depends_on", {})) <= set(services)
        for other, how in service.get("depends_on", {}).items():
            assert how["condition"] != "service_healthy" or "healthcheck" in services[other]
    environment = services["code"]["environment"]
    targets = {volume.split(":")[1] for volume in services["code"]["volumes"]}
    assert {environment[SETTINGS_VARIABLE], f"{environment['DAGSTER_HOME']}/dagster.yaml"} <= targets
    assert composed("settings")["tracking_uri"] == environment["MLFLOW_TRACKING_URI"]
    port = next(word for word in services["mlflow"]["command"] if word.startswith("--port=")).partition("=")[2]
    assert environment[PAGE_VARIABLE] == f"http://localhost:{port}"
    server = composed("workspace")["load_from"][0]["grpc_server"]
    assert server["host"] in services and str(server["port"]) in services["code"]["command"]
    store = composed("dagster")["storage"]["postgres"]["postgres_db"]
    assert f"CREATE DATABASE {store['db_name']};" in (INFRA / "compose" / "databases.sql").read_text(encoding="utf-8")
    assert store["hostname"] in services
    assert store["scheme"] == "postgresql+psycopg2"  # dagster-postgres fails with SQLAlchemy's own choice


def test_environment_variables_of_ours_are_read_by_the_code() -> None:
    folders = ("orchestration", "pipelines", "schemas", "training")
    code = "".join(path.read_text("utf-8") for folder in folders for path in (ROOT / folder).rglob("*.py"))
    files = [path for path in sorted(INFRA.rglob("*")) if path.is_file()]
    names = {name for path in files for name in re.findall(r"\bMULTILINK_[A-Z_]+", path.read_text())}
    assert names == {SETTINGS_VARIABLE, PAGE_VARIABLE, "MULTILINK_PAGES_TOKEN", "MULTILINK_KEY", "MULTILINK_TRUST"}
    assert [name for name in names if f'"{name}"' not in code] == []


def test_the_image_is_built_of_what_is_there() -> None:
    lines = re.sub(r"\\\n\s*", "", (INFRA / "Dockerfile").read_text(encoding="utf-8")).splitlines()
    copied = [line.split()[1:-1] for line in lines if line.startswith("COPY ") and "--from" not in line]
    sources = {source.removeprefix("./") for words in copied for source in words}
    assert [source for source in sources if not (ROOT / source).exists()] == []
    assert {package.partition(".")[0] for package in PROJECT["tool"]["setuptools"]["packages"]} <= sources
    dependencies, code = [line for line in lines if "pip install" in line]
    assert "--no-deps" in code  # of which there are new ones in `pyproject.toml` alone
    (extras,) = re.findall(r"\.\[([a-z,]+)\]", dependencies)
    assert set(extras.split(",")) <= PROJECT["project"]["optional-dependencies"].keys()
    python = next(line for line in lines if line.startswith("ARG PYTHON=")).partition("=")[2]
    assert f"Programming Language :: Python :: {python}" in PROJECT["project"]["classifiers"]
    (beam,) = re.findall(r"^apache[-_]beam==([\d.]+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert any(line.endswith(f"_sdk:{beam} AS beam") for line in lines)


def test_flink_is_told_what_it_does_not_start_without() -> None:
    """The file replaces the image's own, which holds memory sizes; a service passes on no port that chance chose."""
    configuration = yaml.safe_load(FLINK["ConfigMap", "flink-config"]["data"]["config.yaml"])
    service = FLINK["Service", "flink-jobmanager"]["spec"]
    assert configuration["jobmanager.rpc.address"] == "flink-jobmanager"
    settings = {"rpc": "jobmanager.rpc.port", "blob": "blob.server.port", "rest": "rest.port"}
    ports = {port["name"]: port["port"] for port in service["ports"]}
    assert ports == {name: configuration[setting] for name, setting in settings.items()}
    for role in ("jobmanager", "taskmanager"):
        pod = FLINK["Deployment", f"flink-{role}"]["spec"]["template"]["spec"]
        (flink,) = [each for each in pod["containers"] if each["name"] == role]
        assert flink["args"] == [role]
        limit = int(flink["resources"]["limits"]["memory"].removesuffix("Mi"))
        assert int(configuration[f"{role}.memory.process.size"].removesuffix("m")) <= limit


def test_flinks_version_and_pool_are_those_that_beam_is_told() -> None:
    from apache_beam.options.pipeline_options import FlinkRunnerOptions

    (command,) = written_commands((INFRA / "flink" / "flink.yaml").read_text(encoding="utf-8"))
    options = dict(word.removeprefix("--").split("=", 1) for word in command[command.index("--") + 1 :])
    flink, workers = FLINK["Deployment", "flink-taskmanager"]["spec"]["template"]["spec"]["containers"]
    assert flink["image"] == f"flink:{options['flink_version']}"
    assert options["flink_version"] in FlinkRunnerOptions.PUBLISHED_FLINK_VERSIONS
    python, flag, module, port = workers["command"]
    assert (python, flag) == ("python", "-m")
    assert options["environment_config"] == f"localhost:{port.removeprefix('--service_port=')}"
    command = [sys.executable, "-W", "ignore", "-m", module, "--help"]
    assert b"--service_port" in subprocess.run(command, capture_output=True, check=True).stdout
