"""A sweep trains each combination once, goes on where it was, and says what came of each."""

import json
from pathlib import Path
from typing import Any

import lakes
import mlflow
import pytest

from orchestration.cli import run
from schemas.documents import Split
from schemas.lake import Lake
from schemas.messages import BuildError, ConfigError, UsageError
from training.config import TrainConfig
from training.evaluation.models import evaluate_model
from training.evaluation.studies import combinations
from training.loop.trainer import TrainResult
from training.mlflow import tracked_training
from training.mlflow.loading import load
from training.mlflow.runs import TrackedRun
from training.workflows import studies as sweep

SMALL = ("dimensions=8", "training.epochs=1", "text.dropout=0")
VARY = ("training.negative_documents=3,6", "objective.negatives=hardest,mean")
Trained = list[tuple[str, ...]]


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> Trained:
    """Note the settings of each run that trains, and the run where it was begun before.

    The third of margin 0.3 is stopped before its first epoch, one with a rate of 9 fails.
    """
    done: Trained = []
    launch = tracked_training._launch

    def noted(config: TrainConfig, run: TrackedRun, **more: Any) -> TrainResult:
        resumed = run.client.get_run(run.id).data.tags.get("resumed")
        (term,) = config.objective
        done.append((run.id if resumed else "", f"{config.training.negative_documents} {term.negatives}"))
        if len(done) == 3 and term.margin == 0.3:
            raise KeyboardInterrupt
        if config.training.learning_rate == 9:
            raise BuildError("loss nan")
        return launch(config, run, **more)

    monkeypatch.setattr(tracked_training, "_launch", noted)
    return done


def test_combinations_vary_the_last_key_fastest() -> None:
    assert combinations(["a.b=1,2", "c=x , y,x"]) == [
        ("a.b=1", "c=x"),
        ("a.b=1", "c=y"),
        ("a.b=2", "c=x"),
        ("a.b=2", "c=y"),
    ]
    assert [len(combinations(items)) for items in (sweep.PAPER, ["seed=1"])] == [6, 1]
    for wrong in (["a"], ["a="], ["=1"], ["a=1,"], ["a=1", "a=2"]):
        with pytest.raises(ConfigError, match=r"--vary (a|=1)"):
            combinations(wrong)


@pytest.mark.trial
def test_a_sweep_that_was_killed_goes_on(client: mlflow.MlflowClient, registry_lake: Lake, trained: Trained) -> None:
    def swept(*settings: str) -> sweep.Sweep:
        return sweep.run_sweep(
            lake=registry_lake.root.uri,
            dataset="synthetic",
            recipe="tiny",
            overrides=[*SMALL, *settings],
            vary=VARY,
            tracking=client.tracking_uri,
            say=lambda line: None,
        )

    with pytest.raises(KeyboardInterrupt):
        swept("objective.margin=0.3")
    assert [settings for _, settings in trained] == ["3 hardest", "3 mean", "6 hardest"]
    found = swept("objective.margin=0.3")
    resumed, fresh = trained[3:]
    assert resumed[0] and resumed[1] == "6 hardest" and fresh == ("", "6 mean")
    again = swept("objective.margin=0.3")
    assert len(trained) == 5 and again == found
    for cell, settings in zip(found.cells, combinations(VARY), strict=True):
        assert cell.settings == settings
        expected = evaluate_model(load(cell.model, client).model, registry_lake, "synthetic", "val").mean
        assert {name: score.value for name, score in cell.means.items()} == {
            name: score.value for name, score in expected.items()
        }
        assert client.get_run(cell.run).data.tags["mlflow.parentRunId"] == found.run
    assert client.get_run(found.run).info.status == "FINISHED"
    assert [item.path for item in client.list_artifacts(found.run)] == ["sweep-val.txt"]
    assert swept().run != found.run and len(trained) == 9


def test_the_command_prints_the_table_and_what_came_to_nothing(
    client: mlflow.MlflowClient,
    registry_lake: Lake,
    trained: Trained,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fixed = [part for setting in SMALL for part in ("--set", setting)]
    arguments = ["sweep", "--lake", registry_lake.root.uri, "--dataset", "synthetic", "--recipe", "tiny", *fixed]
    arguments += ["--tracking-uri", client.tracking_uri, "--json"]
    assert run([*arguments, "--vary", "training.rate=1,9"]) == 2 and not trained
    assert "unknown key 'training.rate'" in capsys.readouterr().err
    assert run([*arguments, "--vary", "training.learning_rate=0.01,9"]) == 0
    printed = capsys.readouterr().out.splitlines()
    summary = json.loads(printed[-1])
    good, bad = summary["cells"]
    assert 0 <= good["auc"]["mean"] <= 100 and good["model"] == "models:/multilink-synthetic-cross-document/1"
    assert "auc" not in bad and bad["problem"] == "loss nan"
    assert f"training.learning_rate=0.01: {good['model']}" in printed
    assert "- training.learning_rate=9: loss nan" in printed
    (kept,) = client.list_artifacts(summary["run"])
    text = mlflow.artifacts.load_text(f"runs:/{summary['run']}/{kept.path}")
    assert text.splitlines() == printed[: printed.index(f"run {summary['run']}")]


def test_a_sweep_that_cannot_be_judged_trains_nothing_and_leaves_no_run(
    client: mlflow.MlflowClient, trained: Trained, tmp_path: Path
) -> None:
    made = {
        split: lakes.without_links(lakes.make_documents(split, 20, lakes.World())) for split in (Split.TRAIN, Split.VAL)
    }
    lake = lakes.write_lake(tmp_path / "lake", made)
    with pytest.raises(UsageError, match="no link of synthetic"):
        sweep.run_sweep(
            lake=lake.root.uri, dataset="synthetic", recipe="tiny", vary=VARY, tracking=client.tracking_uri, say=print
        )
    assert not trained and not client.search_experiments(filter_string="name = 'multilink-synthetic'")


def test_what_labels_are_worth_is_a_sweep_that_may_start_from_a_registered_model(
    client: mlflow.MlflowClient, registry_lake: Lake
) -> None:
    about: dict[str, Any] = {"lake": registry_lake.root.uri, "dataset": "synthetic", "recipe": "tiny"}
    about |= {"tracking": client.tracking_uri, "say": lambda line: None}
    start = tracked_training.run_train(**about, overrides=SMALL).version.uri
    supervised = (*SMALL, "objective.name=supervised", f"training.start_from={start}")
    found = sweep.run_sweep(**about, overrides=supervised, vary=["objective.labelled_share=0.1,1"])
    assert [cell.settings for cell in found.cells] == [
        ("objective.labelled_share=0.1",),
        ("objective.labelled_share=1",),
    ]
    assert all(cell.model and "auc" in cell.means for cell in found.cells)
