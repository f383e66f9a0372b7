"""Runs on a Dagster instance: what a check stops, what is tried again, what is asked of the registry before training.

The versions are written by hand, and stand in for a build; checks, jobs, retries and the registry are the real ones.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pytest

from orchestration.config import DatasetSettings, RetrySettings, Settings
from orchestration.dagster.assets import report_folder
from orchestration.dagster.checks import STAGE_CHECKS
from orchestration.dagster.definitions import make_definitions
from orchestration.dagster.history import busy_datasets, made, sound_before
from orchestration.dagster.names import STAGES
from orchestration.dagster.resources import mistakes_are_final
from orchestration.dagster.schedules import make_schedules
from orchestration.models import Trained, find_trained, resumable, trained_on
from orchestration.steps import Say, Summary, TrainStep
from schemas.configs import override
from schemas.errors import BuildError, ConfigError, MultilinkError
from schemas.lake import Folder, Lake
from schemas.manifest import commit
from training.recipes import recipe

sys.path.insert(0, str(Path(__file__).parent))
from versions import CODES, write_version

pytestmark = pytest.mark.filterwarnings("ignore:Specifying a partitions_def on an AssetCheckSpec")
DUPLICATED = (CODES[0], CODES[1], CODES[0], CODES[3])


@dataclass
class Given:
    """In the place of `Pipelines`: raises the errors it is told to, then gives versions that are there, in order."""

    lake: str
    versions: list[str]
    errors: list[type[MultilinkError]]

    def build(self, dataset: DatasetSettings, say: Say) -> Summary:
        if self.errors:
            with mistakes_are_final():
                raise self.errors.pop(0)("it went wrong")
        version = self.versions.pop(0)
        counts = {"in": 2, "out": 2, "rejected": 0, "failed": 0}
        stages = dict.fromkeys(("sources", "documents", "images", "dedupe", "features", "shards"), counts)
        splits = {"train": {"documents": 2, "images": 4, "sentences": 4}}
        about = {"dataset": dataset.name, "version": version, "path": self.lake, "reused": False, "failures": {}}
        return about | {"stages": stages, "splits": splits}


@dataclass
class Asked:
    """In the place of `Training`: notes what is asked for and fails; two documents are nothing to train on."""

    objectives: list[str]

    def train(self, dataset: DatasetSettings, version: str, objective: str, *, is_retry: bool, say: Say) -> Summary:
        self.objectives.append(objective)
        raise dg.Failure("no training here", allow_retries=False)


@dataclass
class Scored:
    """In the place of `Training`: registers a model where one is trained, scores it as told, and notes what follows."""

    lake: str
    tracking_uri: str
    scores: dict[str, float]
    page: str = ""
    promoted: list[str] = field(default_factory=list)
    linked: list[str] = field(default_factory=list)

    def train(self, dataset: DatasetSettings, version: str, objective: str, *, is_retry: bool, say: Say) -> Summary:
        from training.mlflow.runs import connect

        client, name = connect(self.tracking_uri), f"multilink-{dataset.name}-{objective}"
        client.create_registered_model(name)
        client.create_model_version(name, source=self.lake, tags={"dataset_version": version})
        about = {"dataset_version": version, "model_uri": f"models:/{name}/1", "run_id": "none"}
        return about | {"epochs": 1, "best_epoch": 1}

    def evaluate(self, model: str, reference: str, *, report: str = "", say: Say) -> Summary:
        score = self.scores[model.split("/")[1]]
        interval = {"mean": score, "low": score - 1, "high": score + 1}
        scores = dict.fromkeys(("auc", "precision_at_1", "precision_at_5"), interval)
        return scores | {"documents": 2, "report": report, "random": {"auc": {"mean": 50.0}}}

    def compare(self, model: str, other: str, reference: str, *, say: Say) -> Summary:
        first, second = (self.scores[each.split("/")[1]] for each in (other, model))
        lead = {"mean": second - first, "low": second - first - 1, "high": second - first + 1}
        scores = dict.fromkeys(("auc", "precision_at_1", "precision_at_5"), lead)
        return {"models": [{"minus_first": {}}, {"minus_first": scores}]}

    def promote(self, model: str, version: str, *, policy: str = "", say: Say) -> Summary:
        self.promoted.append(f"{model} by {Path(policy).name}")
        decision = {"dataset": "documents@v1", "model": model, "version": version, "is_promoted": True}
        return decision | {"reasons": ["it was told to"], "champion_before": None}

    def link(self, model: str, reference: str, *, say: Say) -> Summary:
        self.linked.append(model)
        return {"links": 1}


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as opened:
        yield opened


def settings_in(folder: Path) -> Settings:
    datasets = (DatasetSettings(name="documents"), DatasetSettings(name="diy"))
    return Settings(lake=str(folder / "lake"), datasets=datasets, retries=RetrySettings(attempts=1, delay_s=0))


def commit_version(settings: Settings, name: str, **faults: object) -> str:
    """Commit a version made of other records for each name, and return what it is called."""
    lake = Lake.at(settings.lake)
    made_by_hand = write_version(Folder(f"{settings.lake}/{name}"), records=name, **faults)
    manifest = replace(made_by_hand.manifest, dataset="documents")
    shutil.copytree(f"{settings.lake}/{name}", lake.dataset("documents", manifest.version).uri, dirs_exist_ok=True)
    commit(lake, manifest)
    return manifest.version


def run(
    settings: Settings,
    instance: dg.DagsterInstance,
    job: str,
    pipelines: Given,
    training: Asked | Scored | None = None,
) -> dg.ExecuteInProcessResult:
    made_of_settings = make_definitions(settings)
    definitions = dg.Definitions(
        assets=made_of_settings.assets,
        asset_checks=made_of_settings.asset_checks,
        jobs=made_of_settings.jobs,
        resources={"pipelines": pipelines, "training": training or Asked([])},
        executor=dg.in_process_executor,
    )
    return definitions.resolve_job_def(job).execute_in_process(
        instance=instance, partition_key="documents", raise_on_error=False
    )


def given(settings: Settings, *versions: str, errors: tuple[type[MultilinkError], ...] = ()) -> Given:
    return Given(settings.lake, list(versions), list(errors))


def steps(result: dg.ExecuteInProcessResult, kind: dg.DagsterEventType) -> set[str]:
    return {event.step_key or "" for event in result.all_events if event.event_type is kind}


@dataclass(frozen=True)
class Fault:
    """What is wrong with a version, and the one check that finds it."""

    step: str
    faults: dict[str, Any]
    is_damaged: bool = False


FAULTS = (
    Fault("documents_failure_budget", {"stages": {"sources": {"in": 10, "out": 4, "rejected": 0, "failed": 6}}}),
    Fault("documents_counts_in_bounds", {"documents": {"train": 10}}),
    Fault("images_failure_budget", {"stages": {"images": {"in": 10, "out": 4, "rejected": 0, "failed": 6}}}),
    Fault("duplicates_duplicate_free", {"codes": DUPLICATED}),
    Fault("features_norms_are_sane", {"vectors": np.diag([1, 1, 1, np.inf])}),
    Fault("shards_manifest_verifies", {}, is_damaged=True),
    Fault(
        "shards_leak_free",
        {"leaks": [{"kind": "exact-image", "split": "test", "other_split": "train", "keys": 1, "documents": 2}]},
    ),
)


def test_each_check_is_tried() -> None:
    assert {fault.step for fault in FAULTS} == {f"{check.asset}_{check.name}" for check in STAGE_CHECKS}


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.step for fault in FAULTS])
def test_a_check_that_says_no_stops_what_depends_on_it_and_nothing_else(
    instance: dg.DagsterInstance, tmp_path: Path, fault: Fault
) -> None:
    settings = settings_in(tmp_path)
    before = commit_version(settings, "v1", documents={"train": 100})
    assert run(settings, instance, "rebuild", given(settings, before)).success
    version = commit_version(settings, "v2", **({"documents": {"train": 100}} | fault.faults))
    if fault.is_damaged:
        flip_a_bit(Lake.at(settings.lake).dataset("documents", version), "documents/train/part-0.parquet")
    training = Asked([])
    result = run(settings, instance, "everything", given(settings, version), training)
    assert not result.success
    assert training.objectives == []  # nothing is trained on it
    assert steps(result, dg.DagsterEventType.STEP_FAILURE) == {fault.step}
    evaluations = result.get_asset_check_evaluations()
    said = {f"{each.asset_key.to_user_string()}_{each.check_name}": each.passed for each in evaluations}
    assert said == {each.step: each is not fault for each in FAULTS}  # the others had their say
    assert {stage for stage in STAGES if materialised(result, stage)} == set(STAGES)
    assert next(made(instance, "documents")).is_sound is False
    assert list(made(instance, "diy")) == []


def materialised(result: dg.ExecuteInProcessResult, asset: str) -> bool:
    return any(each.asset_key == dg.AssetKey(asset) for each in result.get_asset_materialization_events())


def flip_a_bit(folder: Folder, path: str) -> None:
    data = bytearray(folder.read(path))
    data[data.rindex(b"parquet-cpp-arrow")] ^= 1  # who wrote it: no reader minds, only the manifest's hash does
    folder.write(path, bytes(data))


@pytest.mark.parametrize(("own", "passes"), [(90.0, True), (80.5, False), (70.0, False)])
def test_a_model_not_shown_to_be_better_than_nostruct_is_neither_promoted_nor_linked_and_nostruct_never(
    instance: dg.DagsterInstance, tmp_path: Path, own: float, passes: bool
) -> None:
    settings = settings_in(tmp_path)
    judged = replace(settings.datasets[0], policy="policy.toml")
    settings = replace(settings, datasets=(judged, *settings.datasets[1:])).beside(tmp_path)
    training = Scored(
        lake=settings.lake,
        tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}",
        scores={"multilink-documents-nostruct": 80.0, "multilink-documents-cross-document": own},
    )
    result = run(settings, instance, "everything", given(settings, commit_version(settings, "v1")), training)
    failed = steps(result, dg.DagsterEventType.STEP_FAILURE)
    expected = ["multilink-documents-cross-document"] if passes else []
    assert training.promoted == [f"{each} by policy.toml" for each in expected]
    assert training.linked == expected
    assert failed == (set() if passes else {"cross_document__evaluation_better_than_nostruct"})
    done = steps(result, dg.DagsterEventType.STEP_SUCCESS)
    assert {"cross_document__promotion", "cross_document__links"} - done == (
        set() if passes else {"cross_document__promotion", "cross_document__links"}
    )


def test_nothing_is_made_of_a_version_that_is_not_sound_or_not_there(
    instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    settings, training = settings_in(tmp_path), Asked([])
    assert not run(settings, instance, "train", given(settings), training).success
    assert not run(
        settings, instance, "rebuild", given(settings, commit_version(settings, "v1", codes=DUPLICATED))
    ).success
    assert not run(settings, instance, "train", given(settings), training).success
    assert training.objectives == []
    assert run(settings, instance, "rebuild", given(settings, commit_version(settings, "v2"))).success
    run(settings, instance, "train", given(settings), training)
    assert sorted(training.objectives) == ["cross-document", "nostruct"]


def test_a_sound_version_is_trained_on_and_one_failed_training_leaves_the_other(
    instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    settings = settings_in(tmp_path)
    training = Asked([])
    result = run(settings, instance, "everything", given(settings, commit_version(settings, "v1")), training)
    assert sorted(training.objectives) == ["cross-document", "nostruct"]
    failed = steps(result, dg.DagsterEventType.STEP_FAILURE)
    assert failed == {"cross_document__trained_model", "nostruct__trained_model"}
    assert next(made(instance, "documents")).is_sound


def test_versions_are_compared_with_the_last_sound_one(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    names = [
        commit_version(settings, "v1", documents={"train": 100}),
        commit_version(settings, "v2", documents={"train": 10}),
        commit_version(settings, "v2", documents={"train": 10}),
        commit_version(settings, "v3", documents={"train": 90}),
    ]
    outcomes = [run(settings, instance, "rebuild", given(settings, name)).success for name in names]
    assert outcomes == [True, False, False, True]  # the same small version again is no better
    assert [each.version for each in made(instance, "documents") if each.is_sound] == [names[3], names[0]]
    assert sound_before(instance, "documents", names[3]) == names[0]
    assert sound_before(instance, "documents", names[0]) == names[3]
    assert sound_before(instance, "diy", names[0]) is None


@pytest.mark.parametrize(("error", "passes", "retries"), [(BuildError, True, 1), (ConfigError, False, 0)])
def test_a_failed_build_is_tried_again_and_a_mistake_is_not(
    instance: dg.DagsterInstance, tmp_path: Path, error: type[MultilinkError], passes: bool, retries: int
) -> None:
    settings = settings_in(tmp_path)
    pipelines = given(settings, commit_version(settings, "v1"), errors=(error,))
    result = run(settings, instance, "rebuild", pipelines)
    assert result.success is passes
    assert sum(event.event_type is dg.DagsterEventType.STEP_RESTARTED for event in result.all_events) == retries


def test_runs_carry_the_version_and_the_configuration(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    version = commit_version(settings, "v1")
    result = run(settings, instance, "rebuild", given(settings, version))
    (record,) = instance.get_runs()
    assert record.tags["multilink/data_set_version"] == version
    (shards,) = [
        each for each in result.asset_materializations_for_node("build") if each.asset_key == dg.AssetKey("shards")
    ]
    assert shards.metadata["configuration"].value["objectives"] == ["nostruct", "cross-document"]
    assert shards.metadata["dagster/row_count"].value == 2
    assert shards.tags is not None
    assert shards.tags["dagster/data_version"] == version


def test_a_schedule_passes_over_a_data_set_that_is_being_worked_on(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    schedules = {each.name: each for each in make_schedules(settings)}
    with (
        dg.DagsterInstance.local_temp(str(tmp_path)) as instance,
        dg.build_schedule_context(instance, repository_def=make_definitions(settings).get_repository_def()) as context,
    ):
        train = make_definitions(settings).resolve_job_def("train")
        instance.create_run_for_job(train, tags={"dagster/partition": "diy"}, status=dg.DagsterRunStatus.STARTED)
        assert busy_datasets(instance) == {"diy"}
        skipped, asked_for = (schedules[n].evaluate_tick(context) for n in ("rebuild_diy", "rebuild_documents"))
    assert skipped.skip_message == "a run of diy is not finished yet"
    assert [request.partition_key for request in asked_for.run_requests or []] == ["documents"]


def test_the_registry_is_asked_before_training(tmp_path: Path) -> None:
    from training.mlflow.runs import connect, start_run

    tracking = f"sqlite:///{tmp_path / 'mlflow.db'}"
    step = TrainStep(
        dataset="diy@v1", lake=str(tmp_path), tracking=tracking, recipe="tiny", settings=("training.epochs=3",)
    )
    client = connect(tracking)
    assert find_trained(tracking, step) is None
    assert resumable(tracking, step, is_retry=True) == ""
    config = override(recipe("tiny"), step.settings)
    described = {"dataset": "diy", "version": "v1", "uri": str(tmp_path), "lake": str(tmp_path), "workers": 1}
    run_of_step = start_run(client, config, **described)
    start_run(client, recipe("tiny"), **described)  # other settings
    start_run(client, config, **described | {"version": "v2"})  # another version
    assert resumable(tracking, step, is_retry=False) == ""  # it may be running elsewhere
    assert resumable(tracking, step, is_retry=True) == run_of_step.id
    client.set_terminated(run_of_step.id, "FAILED")
    assert resumable(tracking, step, is_retry=False) == run_of_step.id

    name = "multilink-diy-cross-document"
    client.create_registered_model(name)
    tags = {"dataset_version": "v1", "epochs": "3", "best_epoch": "2", "recipe": "tiny"}
    client.create_model_version(name, source=str(tmp_path), run_id=run_of_step.id, tags=tags)
    assert resumable(tracking, step, is_retry=True) == ""
    done = find_trained(tracking, step)
    assert done is not None
    assert (done["model_uri"], done["run_id"], done["best_epoch"]) == (f"models:/{name}/1", run_of_step.id, 2)
    assert find_trained(tracking, replace(step, settings=("training.epochs=4",))) is None
    found = trained_on(tracking, "diy", "v1", "cross-document")
    assert found is not None and found.version == "1"
    assert trained_on(tracking, "diy", "v2", "cross-document") is None


def test_a_report_of_a_remote_lake_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    model = Trained(name="m", version="1", run_id="r")
    training = Scored(lake="s3://bucket/lake?region=eu-west-1", tracking_uri="", scores={})
    with report_folder(training, "documents@v1", model) as folder:
        assert Path(folder).parent == tmp_path
    assert list(tmp_path.iterdir()) == []
    training.lake = str(tmp_path)
    with report_folder(training, "documents@v1", model) as folder:
        assert folder == str(tmp_path / "reports" / "documents" / "v1" / "m-1")
