"""A step is a command a person could type; where it runs is configuration alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestration.config import BeamSettings, DatasetSettings, LinksSettings, RaySettings, RayWhere, Settings
from orchestration.steps import Step, Steps, Summary, in_process
from schemas.console import Console, Say
from schemas.errors import GateError, UsageError

DIY = DatasetSettings(name="diy", settings=("dedupe.radius=2",), train_recipe="tiny")
CLUSTER = Settings(
    lake="s3://lake",
    tracking_uri="http://m:5000",
    datasets=(DIY,),
    beam=BeamSettings(runner="flink", options=("--x=1",)),
    ray=RaySettings(where=RayWhere.RAY_JOB, workers=2, address="http://head:8265"),
)
STORES = ("--lake", "s3://lake", "--tracking-uri", "http://m:5000")


def recorded(step: Step, _: Say, where: RayWhere) -> Summary:
    """Do nothing: the summary is the command and where it would run."""
    return {"step": step, "where": where}


def test_a_step_is_the_command_a_person_would_type() -> None:
    steps = Steps(settings=CLUSTER, run=recorded)
    done = [
        steps.build(DIY, say=print),
        steps.evaluate("models:/m/1", "diy@v1", report="r", say=print),
        steps.compare("models:/b/1", "models:/a/1", "diy@v1", say=print),
        steps.promote("m", "3", say=print),
        steps.promote("m", "3", policy="/p.toml", say=print),
    ]
    judged = ["promote", "--model", "m", "--version", "3", *STORES]
    assert [each["step"] for each in done] == [
        [
            *("build", "diy", "--lake", "s3://lake", "--runner", "flink", "--workers", "1"),
            *("--set", "dedupe.radius=2", "--json", "--", "--x=1"),
        ],
        ["evaluate", "--model", "models:/m/1", "--dataset", "diy@v1", *STORES, "--report", "r", "--json"],
        ["compare", "models:/a/1", "models:/b/1", "--dataset", "diy@v1", *STORES, "--split", "val", "--json"],
        [*judged, "--json"],
        [*judged, "--policy", "/p.toml", "--json"],
    ]
    assert {each["where"] for each in done} == {RayWhere.SUBPROCESS}  # a Beam cluster is driven from this machine
    here = Steps(settings=replace(CLUSTER, ray=RaySettings(workers=3)), run=recorded)
    judged = [
        here.evaluate("models:/m/1", "diy@v1", report="r", say=print),
        here.compare("models:/b/1", "models:/a/1", "diy@v1", say=print),
        here.promote("m", "3", say=print),
    ]
    assert all(each["step"][each["step"].index("--workers") + 1] == "3" for each in judged)


def test_what_reads_a_whole_version_runs_where_ray_is_with_its_workers(tmp_path: Path) -> None:
    lake, tracking = str(tmp_path / "lake"), f"sqlite:///{tmp_path}/mlflow.db"
    steps = Steps(settings=replace(CLUSTER, lake=lake, tracking_uri=tracking), run=recorded)
    stores = ["--lake", lake, "--tracking-uri", tracking]
    assert steps.train(DIY, "v1", "nostruct", say=print) == {
        "step": [
            *("train", "--dataset", "diy@v1", *stores, "--workers", "2", "--reuse", "--no-report"),
            *("--recipe", "tiny", "--set", "objective.name=nostruct", "--json"),
        ],
        "where": RayWhere.RAY_JOB,
    }
    name = "multilink-diy-nostruct"
    assert steps.link(name, "diy@v1", champion="1", say=print) == {
        "step": [
            *("link", "--model", f"models:/{name}/1", "--dataset", "diy@v1", *stores),
            *("--workers", "2", "--output", f"{lake}/links/diy/v1/{name}-1", "--json"),
        ],
        "where": RayWhere.RAY_JOB,
        "model_version": "1",
    }
    assert steps.index(name, "diy@v1", champion="1", say=print) == {
        "step": ["index", "--model", f"models:/{name}/1", "--dataset", "diy@v1", *stores, "--workers", "2", "--json"],
        "where": RayWhere.RAY_JOB,
        "model_version": "1",
    }

    wanted = LinksSettings(precision=0.9, refine_below=0.2)
    strict = Steps(settings=replace(steps.settings, links=wanted), run=recorded).link(
        name, "diy@v1", champion="1", say=print
    )
    assert strict["step"][-5:] == ["--precision", "0.9", "--refine-below", "0.2", "--json"]


def test_nothing_is_linked_without_a_champion(tmp_path: Path) -> None:
    settings = Settings(lake=str(tmp_path / "lake"), tracking_uri=f"sqlite:///{tmp_path}/mlflow.db")
    assert Steps(settings=settings).link("multilink-diy-nostruct", "diy@v1", say=print) == {}


def test_a_step_in_this_process_gives_its_summary_or_its_error(tmp_path: Path) -> None:
    assert in_process(["settings", "--json"], print)["train"]["tiny"].startswith("Small data")
    wrong = ["build", "diy", "--lake", str(tmp_path), "--set", "dedupe.radus=2", "--json"]
    with pytest.raises(UsageError, match=r"unknown key 'dedupe\.radus'; did you mean 'dedupe\.radius'\?"):
        in_process(wrong, print)


def test_a_step_in_this_process_prints_nothing_and_a_gates_no_is_a_result(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import orchestration.cli

    def refuse(_: list[str], **__: object) -> None:
        console = Console(is_json=True)
        console.say("looking")
        console.summarise(["no"], decision)
        raise GateError("no")

    told: list[str] = []
    monkeypatch.setattr(orchestration.cli, "app", refuse)
    decision: dict[str, object] = {"is_promoted": False, "reasons": ("few",)}
    assert in_process(["promote"], told.append) == {"is_promoted": False, "reasons": ["few"]}
    decision = {"intact": False}
    with pytest.raises(GateError):
        in_process(["datasets", "verify"], told.append)
    assert told == ["looking", "looking"]
    assert capsys.readouterr() == ("", "")
