"""Where a step runs is configuration alone: the same step here, in a process of its own, as a Ray job and a RayJob."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from orchestration import places, steps
from orchestration.config import BeamSettings, BeamWhere, DatasetSettings, RaySettings, RayWhere, Settings
from orchestration.places import (
    Summary,
    in_process,
    in_subprocess,
    job_state,
    kuberay,
    last_json,
    ray_job,
    ray_job_command,
    run_command,
)
from orchestration.rayjob import rayjob
from orchestration.steps import Steps
from schemas.console import Say
from schemas.errors import BuildError, UsageError

DIY = DatasetSettings(name="diy", settings=("dedupe.radius=2",), train_recipe="tiny")
CLUSTER = Settings(
    lake="s3://lake",
    tracking_uri="http://m:5000",
    datasets=(DIY,),
    beam=BeamSettings(where=BeamWhere.CLUSTER, runner="flink", options=("--x=1",)),
    ray=RaySettings(workers=2),
)
STORES = ("--lake", "s3://lake", "--tracking-uri", "http://m:5000")
TRAIN = [
    *("train", "--dataset", "diy@v1", *STORES, "--workers", "2", "--no-report"),
    *("--recipe", "tiny", "--set", "objective.name=nostruct", "--json"),
]
INFRA = Path(__file__).resolve().parents[2] / "infra"


class Recorded(Steps):
    """Steps that are not done: the summary is the command and where it would run."""

    def _run(self, where: BeamWhere | RayWhere, step: list[str], say: Say) -> Summary:
        return {"step": step, "where": where}


def test_a_step_is_the_command_a_person_would_type(tmp_path: Path) -> None:
    steps = Recorded(settings=CLUSTER)
    assert steps.build(DIY, say=print)["step"] == [
        *("build", "diy", "--lake", "s3://lake", "--runner", "flink", "--workers", "1"),
        *("--set", "dedupe.radius=2", "--json", "--", "--x=1"),
    ]
    assert steps.evaluate("models:/m/1", "diy@v1", report="r", say=print)["step"] == [
        *("evaluate", "--model", "models:/m/1", "--dataset", "diy@v1", *STORES, "--report", "r", "--json")
    ]
    assert steps.compare("models:/b/1", "models:/a/1", "diy@v1", say=print)["step"] == [
        *("compare", "models:/a/1", "models:/b/1", "--dataset", "diy@v1", *STORES, "--split", "val", "--json")
    ]
    judged = ["promote", "--model", "m", "--version", "3", *STORES]
    assert steps.promote("m", "3", say=print)["step"] == [*judged, "--json"]
    by_policy = steps.promote("m", "3", policy="/p.toml", say=print)
    assert by_policy["step"] == [*judged, "--policy", "/p.toml", "--json"]


def test_a_training_and_a_linking_are_commands_with_the_workers_of_ray(tmp_path: Path) -> None:
    lake, tracking = str(tmp_path / "lake"), f"sqlite:///{tmp_path}/mlflow.db"
    steps = Recorded(settings=replace(CLUSTER, lake=lake, tracking_uri=tracking))
    stores = ["--lake", lake, "--tracking-uri", tracking]
    trained = steps.train(DIY, "v1", "nostruct", say=print)["step"]
    assert trained == TRAIN[:3] + stores + TRAIN[7:]
    name, client = "multilink-diy-nostruct", steps.client()
    client.create_registered_model(name)
    client.create_model_version(name, source=lake)
    client.set_registered_model_alias(name, "champion", "1")
    linked = steps.link(name, "diy@v1", say=print)
    assert linked["model_version"] == "1"
    assert linked["step"] == [
        *("link", "--model", f"models:/{name}/1", "--dataset", "diy@v1", *stores),
        *("--workers", "2", "--output", f"{lake}/links/diy/v1/{name}-1", "--json"),
    ]


def test_nothing_is_linked_without_a_champion(tmp_path: Path) -> None:
    settings = Settings(lake=str(tmp_path / "lake"), tracking_uri=f"sqlite:///{tmp_path}/mlflow.db")
    assert Steps(settings=settings).link("multilink-diy-nostruct", "diy@v1", say=print) == {}


@pytest.mark.parametrize(
    ("beam", "ray", "expected"),
    [
        (BeamSettings(), RaySettings(), ("in_process", "in_process", "in_process")),
        (
            BeamSettings(where=BeamWhere.SUBPROCESS),
            RaySettings(where=RayWhere.SUBPROCESS),
            ("in_subprocess", "in_subprocess", "in_subprocess"),
        ),
        (
            BeamSettings(where=BeamWhere.CLUSTER, runner="dataflow", options=("--region=x",)),
            RaySettings(where=RayWhere.RAY_JOB, address="http://head:8265"),
            ("in_subprocess", "ray_job", "in_subprocess"),
        ),
        (
            BeamSettings(),
            RaySettings(where=RayWhere.KUBERAY, image="multilink:latest"),
            ("in_process", "kuberay", "in_subprocess"),
        ),
    ],
)
def test_configuration_alone_chooses_the_place(
    beam: BeamSettings, ray: RaySettings, expected: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build runs where Beam is, a training where Ray is, and a promotion on this machine."""
    for name in ("in_process", "in_subprocess", "ray_job", "kuberay"):
        monkeypatch.setattr(steps, name, lambda step, say, name=name, **_: {"place": name, "command": step[0]})
    tracking = f"sqlite:///{tmp_path / 'mlflow.db'}"
    asked = Steps(settings=Settings(lake=str(tmp_path), tracking_uri=tracking, datasets=(DIY,), beam=beam, ray=ray))
    done = (
        asked.build(DIY, say=print),
        asked.train(DIY, "v1", "nostruct", say=print),
        asked.promote("m", "1", say=print),
    )
    assert [each["command"] for each in done] == ["build", "train", "promote"]
    assert tuple(each["place"] for each in done) == expected


def test_a_ray_job_runs_the_command_on_the_cluster() -> None:
    command = ray_job_command(TRAIN, address="http://head:8265", job="multilink-1")
    submit = ["ray", "job", "submit", "--address", "http://head:8265", "--submission-id", "multilink-1"]
    assert command == [*submit, "--", "multilink", *TRAIN]


PROGRAM = """#!/usr/bin/env python3
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
    (tmp_path / program).write_text(PROGRAM)
    (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))

    def cancel(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(places, "time", SimpleNamespace(sleep=cancel))
    with pytest.raises(KeyboardInterrupt):
        if program == "ray":
            ray_job(TRAIN, cancel, address="http://head:8265")
        else:
            kuberay(TRAIN, print, ray=RaySettings(where=RayWhere.KUBERAY, image="i", namespace="n"))
    calls = [json.loads(line)[1:] for line in (tmp_path / "calls").read_text().splitlines()]
    if program == "ray":
        job = calls[0][calls[0].index("--submission-id") + 1]
        assert calls[-1] == ["job", "stop", "--address", "http://head:8265", job]
    else:
        name = calls[1][calls[1].index("rayjob") + 1]
        assert calls[-1] == ["--namespace", "n", "delete", "rayjob", name, "--wait=false"]


def test_a_rayjob_is_the_manifest_in_infra_with_another_entrypoint() -> None:
    ray = RaySettings(where=RayWhere.KUBERAY, image="multilink:latest", namespace="multilink", workers=2, gpus=1)
    made = rayjob(TRAIN, name="multilink-train", ray=ray)
    (kept,) = yaml.safe_load_all((INFRA / "kuberay" / "rayjob.yaml").read_text(encoding="utf-8"))
    assert made["spec"].pop("entrypoint") == (
        "multilink train --dataset diy@v1 --lake s3://lake --tracking-uri http://m:5000 --workers 2 --no-report"
        " --recipe tiny --set objective.name=nostruct --json"
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
        ({"status": {"jobDeploymentStatus": "ValidationFailed"}}, "FAILED"),  # was waited for without end
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


@pytest.mark.parametrize("place", [in_process, in_subprocess])
def test_a_step_says_and_gives_the_same_here_and_in_a_process_of_its_own(
    place: Callable[[list[str], Say], Summary], tmp_path: Path
) -> None:
    wrong = ["build", "diy", "--lake", str(tmp_path), "--set", "dedupe.radus=2", "--json"]
    with pytest.raises(UsageError, match=r"unknown key 'dedupe\.radus'; did you mean 'dedupe\.radius'\?"):
        place(wrong, print)
    assert place(["settings", "--json"], print)["train"]["tiny"].startswith("Small data")


def test_a_step_that_runs_here_prints_nothing_and_a_gates_no_is_a_result(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import orchestration.commands
    from schemas.console import Console
    from schemas.errors import GateError

    def refuse(_: list[str], **__: object) -> None:
        console = Console(is_json=True)
        console.say("looking")
        console.summarise(["no"], decision)
        raise GateError("no")

    told: list[str] = []
    monkeypatch.setattr(orchestration.commands, "app", refuse)
    decision: dict[str, object] = {"is_promoted": False, "reasons": ("few",)}
    assert in_process(["promote"], told.append) == {"is_promoted": False, "reasons": ["few"]}
    decision = {"intact": False}
    with pytest.raises(GateError):
        in_process(["datasets", "verify"], told.append)
    assert told == ["looking", "looking"]
    assert capsys.readouterr() == ("", "")
