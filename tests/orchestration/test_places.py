"""Where a step runs is configuration alone: the same step as a function, a command, a Ray job and a RayJob."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from orchestration.config import BeamSettings, BeamWhere, RaySettings, RayWhere, Settings
from orchestration.dagster.resources import Pipelines, Training, make_resources
from orchestration.places import (
    in_process,
    in_subprocess,
    job_state,
    kuberay,
    last_json,
    ray_job,
    ray_job_command,
    rayjob,
    run_command,
)
from orchestration.steps import BuildStep, CompareStep, EvaluateStep, LinkStep, PromoteStep, TrainStep
from schemas.errors import BuildError, UsageError

BUILD = BuildStep(
    dataset="diy", lake="s3://lake", settings=("dedupe.radius=2",), runner="flink", beam_options=("--x=1",)
)
TRAIN = TrainStep(
    dataset="diy@v1", lake="lake", tracking="sqlite:////t.db", recipe="tiny", settings=("a=1",), workers=2
)
INFRA = Path(__file__).resolve().parents[2] / "infra"


def test_a_step_is_the_command_a_person_would_type() -> None:
    assert BUILD.arguments() == [
        *("build", "diy", "--lake", "s3://lake", "--runner", "flink", "--workers", "1"),
        *("--set", "dedupe.radius=2", "--json", "--", "--x=1"),
    ]
    assert TRAIN.arguments() == [
        *("train", "--dataset", "diy@v1", "--lake", "lake", "--tracking-uri", "sqlite:////t.db", "--workers", "2"),
        *("--no-report", "--recipe", "tiny", "--set", "a=1", "--json"),
    ]
    resumed = TrainStep(dataset="diy@v1", lake="l", tracking="t", recipe="tiny", settings=("a=1",), resume="r1")
    assert resumed.arguments()[-3:] == ["--resume", "r1", "--json"]
    assert "--set" not in resumed.arguments()
    scored = EvaluateStep(model="models:/m/1", dataset="diy@v1", lake="l", tracking="t", report="r")
    assert scored.arguments()[-3:] == ["--report", "r", "--json"]
    judged = PromoteStep(model="m", version="3", lake="l", tracking="t", policy="/p.toml")
    assert judged.arguments()[-3:] == ["--policy", "/p.toml", "--json"]
    compared = CompareStep(models=("models:/a/1", "models:/b/1"), dataset="diy@v1", lake="l", tracking="t")
    assert compared.arguments() == [
        *("compare", "models:/a/1", "models:/b/1", "--dataset", "diy@v1", "--lake", "l", "--tracking-uri", "t"),
        *("--split", "val", "--json"),
    ]
    assert PromoteStep(model="m", version="3", lake="l", tracking="t").arguments()[:5] == [
        *("promote", "--model", "m", "--version", "3")
    ]


def test_a_version_is_linked_by_the_champion_where_ray_is(tmp_path: Path) -> None:
    step = LinkStep(model="models:/m/1", dataset="diy@v1", lake="lake", tracking="t", output="out", workers=2)
    assert step.arguments() == [
        *("link", "--model", "models:/m/1", "--dataset", "diy@v1", "--lake", "lake", "--tracking-uri", "t"),
        *("--workers", "2", "--output", "out", "--json"),
    ]
    made = make_resources(Settings(lake=str(tmp_path / "lake"), tracking_uri=f"sqlite:///{tmp_path}/mlflow.db"))
    training = made["training"]
    assert isinstance(training, Training)
    assert training.link("multilink-diy-nostruct", "diy@v1", say=print) == {}  # there is no champion


def place_of(beam: BeamSettings, ray: RaySettings) -> tuple[object, object]:
    made = make_resources(Settings(beam=beam, ray=ray))
    pipelines, training = made["pipelines"], made["training"]
    assert isinstance(pipelines, Pipelines)
    assert isinstance(training, Training)
    return pipelines.place, getattr(training.place, "func", training.place)


@pytest.mark.parametrize(
    ("beam", "ray", "places"),
    [
        (BeamSettings(), RaySettings(), (in_process, in_process)),
        (
            BeamSettings(where=BeamWhere.SUBPROCESS),
            RaySettings(where=RayWhere.SUBPROCESS),
            (in_subprocess, in_subprocess),
        ),
        (
            BeamSettings(where=BeamWhere.CLUSTER, runner="dataflow", options=("--region=x",)),
            RaySettings(where=RayWhere.RAY_JOB, address="http://head:8265"),
            (in_subprocess, ray_job),
        ),
    ],
)
def test_configuration_alone_chooses_the_place(
    beam: BeamSettings, ray: RaySettings, places: tuple[object, object]
) -> None:
    assert place_of(beam, ray) == places


def test_a_ray_job_runs_the_command_on_the_cluster() -> None:
    command = ray_job_command(TRAIN, address="http://head:8265", job="multilink-1")
    submit = ["ray", "job", "submit", "--address", "http://head:8265", "--submission-id", "multilink-1"]
    assert command == [*submit, "--", "multilink", *TRAIN.arguments()]


CLUSTER = """#!/usr/bin/env python3
# A program that submits a job and waits for it: it notes each call, and a waiting call goes on until it is ended.
import json, os, sys, time
with open(os.environ["CALLS"], "a") as calls:
    calls.write(json.dumps(sys.argv) + "\\n")
if "submit" in sys.argv:
    print("submitted", flush=True)
    time.sleep(600)
if "get" in sys.argv:
    print("{}")
"""


@pytest.mark.parametrize("program", ["ray", "kubectl"])
def test_a_cancelled_step_ends_its_job_on_the_cluster(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job used to go on, and the next try trained beside it in the same run folder."""
    (tmp_path / program).write_text(CLUSTER)
    (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))

    def cancel(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("orchestration.places.time", SimpleNamespace(sleep=cancel))
    with pytest.raises(KeyboardInterrupt):
        if program == "ray":
            ray_job(TRAIN, cancel, address="http://head:8265")
        else:
            kuberay(TRAIN, print, image="i", namespace="n", workers=1, gpus=0)
    calls = [json.loads(line)[1:] for line in (tmp_path / "calls").read_text().splitlines()]
    if program == "ray":
        job = calls[0][calls[0].index("--submission-id") + 1]
        assert calls[-1] == ["job", "stop", "--address", "http://head:8265", job]
    else:
        name = calls[1][calls[1].index("rayjob") + 1]
        assert calls[-1] == ["--namespace", "n", "delete", "rayjob", name, "--wait=false"]


def test_a_rayjob_is_the_manifest_in_infra_with_another_entrypoint() -> None:
    made = rayjob(TRAIN, name="multilink-train", image="multilink:latest", namespace="multilink", workers=2, gpus=1)
    (kept,) = yaml.safe_load_all((INFRA / "kuberay" / "rayjob.yaml").read_text(encoding="utf-8"))
    assert made["spec"].pop("entrypoint") == (
        "multilink train --dataset diy@v1 --lake lake --tracking-uri sqlite:////t.db --workers 2 --no-report"
        " --recipe tiny --set a=1 --json"
    )
    assert kept["spec"].pop("entrypoint").startswith("multilink train ")
    assert made == kept


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({}, "PENDING"),
        ({"status": {"jobStatus": "RUNNING"}}, "RUNNING"),
        ({"status": {"jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Complete"}}, "SUCCEEDED"),
        ({"status": {"jobDeploymentStatus": "Failed"}}, "FAILED"),
    ],
)
def test_the_state_of_a_rayjob(status: dict, state: str) -> None:
    assert job_state(status) == state


def run_text(program: str) -> tuple[dict, list[str]]:
    told: list[str] = []
    return run_command([sys.executable, "-c", program], told.append), told


def test_a_commands_last_json_line_is_its_summary_and_the_rest_its_progress() -> None:
    summary, told = run_text("print('half'); print('{\"a\": 1}'); print('{\"b\": 2}')")
    assert summary == {"b": 2}
    assert told[0] == "half"
    assert last_json(['{"a": 1}', "Job succeeded"]) == {"a": 1}
    assert last_json(["{no json", ""]) is None


@pytest.mark.parametrize(
    ("program", "kind", "words"),
    [
        ("import sys; print('multilink: no such thing'); sys.exit(2)", UsageError, "status 2: no such thing"),
        ("import sys; print('multilink: it broke'); sys.exit(1)", BuildError, "status 1: it broke"),
        ("import os, signal; print('half', flush=True); os.kill(os.getpid(), 9)", BuildError, "status -9: half"),
        ("pass", BuildError, "it printed nothing"),
    ],
)
def test_a_failed_command_says_what_it_said(program: str, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        run_text(program)


def test_the_gates_no_is_a_result() -> None:
    summary, _ = run_text("import sys; print('{\"is_promoted\": false}'); sys.exit(1)")
    assert summary == {"is_promoted": False}


def test_a_command_that_is_not_there_is_one_line() -> None:
    with pytest.raises(BuildError, match="no-such-command: no such command on this machine"):
        run_command(["no-such-command"], print)


def test_a_subprocess_says_what_the_function_says(tmp_path: Path) -> None:
    step = BuildStep(dataset="diy", lake=str(tmp_path), settings=("dedupe.radus=2",))
    for place in (in_process, in_subprocess):
        with pytest.raises(UsageError, match=r"unknown key 'dedupe\.radus'; did you mean 'dedupe\.radius'\?"):
            place(step, print)
