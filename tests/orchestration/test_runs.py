"""Runs on a Dagster instance: what a check stops, what is tried again, what is asked of the registry before training.

The versions are written by hand, and stand in for a build; checks, jobs, retries and the registry are the real ones.
"""

import io
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pyarrow.parquet as pq
import pytest
from versions import write_version

from orchestration.config import CheckSettings, DatasetSettings, RaySettings, RayWhere, RetrySettings, Settings
from orchestration.dagster.assets import report_folder
from orchestration.dagster.checks import KINDS, STAGES, TRAINED, newest_version, sound_versions
from orchestration.dagster.definitions import make_definitions
from orchestration.dagster.external import LEAD
from orchestration.dagster.pipes import StepPipes
from orchestration.plan import Plan
from orchestration.rules.verdicts import STAGE_CHECKS
from orchestration.steps import Step, build
from schemas.lake import MANIFEST, Folder, Lake
from schemas.manifest import commit
from schemas.messages import BuildError, GateError, IntegrityError
from training.promotions.record import ModelVersion

pytestmark = [
    pytest.mark.filterwarnings("ignore:Parameter `include_sources`"),  # of Dagster's own look at conditions
    pytest.mark.filterwarnings("ignore:Specifying a partitions_def on an AssetCheckSpec"),
    pytest.mark.filterwarnings(
        "ignore:Parameter `partitions_def`"
    ),  # a job of checks alone has no assets to infer from
]


@dataclass(frozen=True, kw_only=True)
class Given(StepPipes):
    """In place of processes: raises errors, reports versions that are there, in order, and fails to train."""

    settings: Settings
    ray: RaySettings = field(default_factory=RaySettings)
    versions: list[str] = field(default_factory=list)
    errors: list[dg.Failure | BuildError] = field(default_factory=list)
    trained: list[str] = field(default_factory=list)
    settings_seen: list[tuple[str, ...]] = field(default_factory=list)

    @cached_property
    def definitions(self) -> dg.Definitions:
        """Return the definitions with these steps; what was trained is in no registry."""
        return make_definitions(self.settings, self)

    def do(
        self, context: dg.AssetExecutionContext, *steps: Step, where: RayWhere = RayWhere.SUBPROCESS
    ) -> list[dg.MaterializeResult[Any]]:
        metadata: dict[str, Any] = {}
        for step in steps:
            metadata |= getattr(self, step.func.__name__)(**step.keywords)
        if steps[0].func is not build:
            return [dg.MaterializeResult(metadata=metadata)]
        version = dg.DataVersion(metadata["version"])
        return [dg.MaterializeResult(asset_key=each, metadata=metadata, data_version=version) for each in STAGES]

    def build(self, *, settings: tuple[str, ...], **_: Any) -> dict[str, Any]:
        if self.errors:
            raise self.errors.pop(0)
        self.settings_seen.append(settings)
        return {"version": self.versions.pop(0)}

    def train(self, *, dataset: str, settings: tuple[str, ...], **_: Any) -> dict[str, Any]:
        self.trained.append(settings[-1].partition("=")[2])
        self.settings_seen.append(settings)
        raise GateError("two documents are nothing to train on")


@dataclass(frozen=True, kw_only=True)
class Scored(Given):
    """Registers a model where one is trained, scores it as told, and notes what follows."""

    scores: dict[str, float]
    models: dict[tuple[str, str, str], ModelVersion] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)

    def train(self, *, dataset: str, settings: tuple[str, ...], **_: Any) -> dict[str, Any]:
        name, _, version = dataset.partition("@")
        objective = settings[-1].partition("=")[2]
        model = ModelVersion(name=f"multilink-{name}-{objective}", version="1", run_id=None, tags={})
        self.models[name, version, objective] = model
        return {"model_uri": model.uri}

    def evaluate(self, *, model: str, **_: Any) -> dict[str, Any]:
        return {"auc": self.scores[model.split("/")[1]]}

    def compare(self, *, models: tuple[str, ...], **_: Any) -> dict[str, Any]:
        first, second = (self.scores[each.split("/")[1]] for each in models)
        return {LEAD: {"auc": {"mean": second - first, "low": second - first - 1, "high": second - first + 1}}}

    def promote(self, *, model: str, policy: str, **_: Any) -> dict[str, Any]:
        self.done.append(f"promoted {model} by {Path(policy).name}")
        return {"is_promoted": True}

    def link(self, *, model: str, **_: Any) -> dict[str, Any]:
        self.done.append(f"linked by {model}")
        return {"links": 1}

    def index(self, *, model: str, dataset: str, **_: Any) -> dict[str, Any]:
        self.done.append(f"indexed by {model} on {dataset}")
        return {"images": 1}


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
    target = lake.dataset("documents", manifest.version).uri
    shutil.copytree(f"{settings.lake}/{name}", target, ignore=shutil.ignore_patterns(MANIFEST), dirs_exist_ok=True)
    commit(lake, manifest)
    return manifest.version


SELECTIONS = {
    "rebuild": dg.AssetSelection.assets(*STAGES),
    "train": dg.AssetSelection.key_substring(TRAINED),
    "everything": dg.AssetSelection.all(),
    "checks": dg.AssetSelection.checks_for_assets(*(dg.AssetKey(stage) for stage in STAGES)),
}


def run(
    instance: dg.DagsterInstance,
    job: str | dg.AssetSelection,
    steps: Given,
    *,
    dataset: str = "documents",
    config: dict[str, Any] | None = None,
) -> dg.ExecuteInProcessResult:
    """Run a selection of assets or checks for a data set."""
    made = dg.define_asset_job("asked_for", selection=SELECTIONS[job] if isinstance(job, str) else job)
    definitions = dg.Definitions.merge(steps.definitions, dg.Definitions(jobs=[made]))
    of_data_set: dict[str, Any] = {"partition_key": dataset}
    if job == "checks":  # without an asset, a job has no partitions: Dagster's page sets the tag of a check's
        of_data_set = {"tags": {"dagster/partition": dataset}}
    resolved = definitions.resolve_job_def("asked_for")
    return resolved.execute_in_process(instance=instance, raise_on_error=False, run_config=config, **of_data_set)


class Automation:
    """The daemon's looks, one after the other: what is asked for, done at once."""

    def __init__(self, instance: dg.DagsterInstance, steps: Given) -> None:
        self.instance, self.steps, self._cursor = instance, steps, None
        self.look()

    def look(self) -> dict[str, set[str]]:
        """Return what is asked for by data set; the registry is observed before."""
        definitions = self.steps.definitions
        (observer,) = (each for each in definitions.sensors or () if each.name == "registry")
        context = dg.build_sensor_context(self.instance, definitions=definitions)
        for event in observer.evaluate_tick(context).asset_events:
            self.instance.report_runless_asset_event(event)
        found = dg.evaluate_automation_conditions(definitions, self.instance, cursor=self._cursor)
        self._cursor = found.cursor
        asked: dict[str, set[str]] = {}
        for key in definitions.resolve_asset_graph().get_all_asset_keys():
            for name in (each.name for each in self.steps.settings.datasets):
                if name in found.get_requested_partitions(key):
                    asked.setdefault(name, set()).add(key.to_user_string())
        return asked

    def work(self) -> list[dict[str, set[str]]]:
        """Do what is asked for until nothing is, and return what was."""
        rounds = []
        while asked := self.look():
            rounds.append(asked)
            for name, keys in asked.items():
                selected = dg.AssetSelection.assets(*(dg.AssetKey(key.split("/")) for key in keys))
                run(self.instance, selected, self.steps, dataset=name)
        return rounds


def given(settings: Settings, *versions: str, errors: tuple[dg.Failure | BuildError, ...] = ()) -> Given:
    return Given(settings=settings, versions=list(versions), errors=list(errors))


def steps_of(result: dg.ExecuteInProcessResult, kind: dg.DagsterEventType) -> set[str]:
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
    Fault("duplicates_duplicate_free", {"duplicates_left": 2}),
    Fault("features_norms_are_sane", {"vectors": np.diag([1, 1, 1, np.inf])}),
    Fault("shards_manifest_verifies", {}, is_damaged=True),
    Fault(
        "shards_leak_free",
        {"leaks": [{"kind": "exact-image", "split": "test", "other_split": "train", "keys": 1, "documents": 2}]},
    ),
)


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.step for fault in FAULTS])
def test_a_fault_is_found_by_its_check_alone(tmp_path: Path, fault: Fault) -> None:
    sound = {"documents": {"train": 100}, "before": {"train": 100}}
    subject = write_version(Folder(str(tmp_path)), **sound | fault.faults)
    if fault.is_damaged:
        compress_anew(subject.folder, "documents/train/part-0.parquet")
    passed = {f"{asset}_{name}": rule(subject).passed for (asset, name), (rule, _) in STAGE_CHECKS.items()}
    assert passed == {each.step: each is not fault for each in FAULTS}


@pytest.mark.parametrize("fault", [FAULTS[0], FAULTS[5]], ids=[FAULTS[0].step, FAULTS[5].step])
def test_a_check_that_says_no_stops_what_depends_on_it_and_nothing_else(
    instance: dg.DagsterInstance, settings: Settings, fault: Fault
) -> None:
    before = commit_version(settings, "v1", documents={"train": 100})
    assert run(instance, "rebuild", given(settings, before)).success
    version = commit_version(settings, "v2", **({"documents": {"train": 100}} | fault.faults))
    if fault.is_damaged:
        compress_anew(Lake.at(settings.lake).dataset("documents", version), "documents/train/part-0.parquet")
    steps = given(settings, version)
    result = run(instance, "everything", steps)
    assert not result.success and steps.trained == []  # nothing is trained on it
    assert steps_of(result, dg.DagsterEventType.STEP_FAILURE) == {fault.step}
    evaluations = result.get_asset_check_evaluations()
    said = {f"{each.asset_key.to_user_string()}_{each.check_name}": each.passed for each in evaluations}
    assert said == {each.step: each is not fault for each in FAULTS}  # the others had their say
    assert {each.asset_key.to_user_string() for each in result.get_asset_materialization_events()} >= set(STAGES)
    assert newest_version(instance, "documents") == version and newest_version(instance, "diy") is None
    assert list(sound_versions(instance, "documents")) == [before]


def compress_anew(folder: Folder, path: str) -> None:
    """Let a part be another file of the same rows: no reader minds, only its size is not the manifest's."""
    sink = io.BytesIO()
    pq.write_table(pq.read_table(folder.open(path)), sink, compression="gzip")
    folder.write(path, sink.getvalue())


@pytest.mark.parametrize(("own", "passes"), [(90.0, True), (80.5, False)])
def test_a_model_not_shown_to_be_better_than_nostruct_is_neither_promoted_nor_linked_and_nostruct_never(
    instance: dg.DagsterInstance,
    tmp_path: Path,
    settings: Settings,
    own: float,
    passes: bool,
    scored: Callable[..., Scored],
) -> None:
    judged = replace(settings.datasets[0], policy="policy.toml")
    settings = replace(settings, datasets=(judged, *settings.datasets[1:])).relative_to(tmp_path)
    version = commit_version(settings, "v1")
    steps = scored(settings, version, own=own)
    result = run(instance, "everything", steps)
    model = "multilink-documents-cross-document"
    of_cross_document = {
        f"promoted {model} by policy.toml",
        f"linked by models:/{model}/1",
        f"indexed by models:/{model}/1 on documents@{version}",
    }
    assert sorted(steps.done) == (sorted(of_cross_document) if passes else [])
    failed = steps_of(result, dg.DagsterEventType.STEP_FAILURE)
    assert failed == (set() if passes else {"cross_document__evaluation_better_than_nostruct"})
    done = steps_of(result, dg.DagsterEventType.STEP_SUCCESS)
    after = {f"cross_document__{each}" for each in ("promotion", "links", "index")}
    assert after - done == (set() if passes else after)


def test_versions_are_compared_with_the_last_sound_one(instance: dg.DagsterInstance, settings: Settings) -> None:
    names = [
        commit_version(settings, "v1", documents={"train": 100}),
        commit_version(settings, "v2", documents={"train": 10}),
        commit_version(settings, "v2", documents={"train": 10}),
        commit_version(settings, "v3", documents={"train": 90}),
    ]
    outcomes = [run(instance, "rebuild", given(settings, name)).success for name in names]
    assert outcomes == [True, False, False, True]  # the same small version again is no better
    assert list(sound_versions(instance, "documents")) == [names[3], names[0]]
    assert list(sound_versions(instance, "diy")) == []


@pytest.mark.parametrize(
    ("error", "passes", "retries"),
    [
        (BuildError("the process was killed"), True, 1),
        (dg.Failure("the store does not answer", allow_retries=True), True, 1),
        (dg.Failure("a mistake", allow_retries=False), False, 0),
    ],
)
def test_a_failed_build_is_tried_again_and_a_mistake_is_not(
    instance: dg.DagsterInstance, settings: Settings, error: dg.Failure | BuildError, passes: bool, retries: int
) -> None:
    result = run(instance, "rebuild", given(settings, commit_version(settings, "v1"), errors=(error,)))
    assert result.success is passes
    assert sum(event.event_type is dg.DagsterEventType.STEP_RESTARTED for event in result.all_events) == retries


def test_runs_carry_version_and_configuration(instance: dg.DagsterInstance, settings: Settings) -> None:
    name = commit_version(settings, "v1")
    result = run(instance, "rebuild", given(settings, name))
    assert [record.tags["multilink/data_set_version"] for record in instance.get_runs()] == [name]
    for made in result.asset_materializations_for_node("build"):
        assert made.metadata["configuration"].value["objectives"] == ["nostruct", "cross-document"]
        assert made.tags["dagster/data_version"] == name


def test_a_rebuild_that_is_due_meanwhile_waits_its_turn(tmp_path: Path) -> None:
    """It was passed over: nobody rebuilt what was due while a training of hours ran."""
    definitions = make_definitions(settings_in(tmp_path))
    schedule = next(each for each in definitions.schedules or () if each.name == "rebuild_diy")
    about = {"dagster/partition": "diy"}
    with (
        dg.DagsterInstance.local_temp(str(tmp_path)) as instance,
        dg.build_schedule_context(instance, repository_def=definitions.get_repository_def()) as context,
    ):
        rebuild = definitions.resolve_job_def("rebuild")
        instance.create_run_for_job(rebuild, tags=about, status=dg.DagsterRunStatus.STARTED)
        assert [each.partition_key for each in schedule.evaluate_tick(context).run_requests or ()] == ["diy"]
        instance.create_run_for_job(rebuild, tags=about, status=dg.DagsterRunStatus.NOT_STARTED)
        assert schedule.evaluate_tick(context).skip_message == "a rebuild of diy waits already"


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Scored]:
    """Steps that score what they trained; the champion is version 1."""

    def make(settings: Settings, *versions: str, own: float = 90.0) -> Scored:
        scores = {"multilink-documents-nostruct": 80.0, "multilink-documents-cross-document": own}
        made = Scored(settings=settings, versions=list(versions), scores=scores)
        monkeypatch.setattr(Plan, "model_of", lambda _, *about: made.models.get(about))
        monkeypatch.setattr(Plan, "champion", lambda *_: "1")
        return made

    return make


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings whose registry has no record of promotions."""
    monkeypatch.setattr(Plan, "standing", lambda *_: {})
    return settings_in(tmp_path)


SCORED = {f"{objective}/{kind}" for objective in ("cross_document", "nostruct") for kind in KINDS[:2]}
APPLIED = {"cross_document/links", "cross_document/index"}


def test_a_new_version_is_trained_on_judged_and_linked_by_its_champion(
    instance: dg.DagsterInstance, settings: Settings, scored: Callable[..., Scored]
) -> None:
    version = commit_version(settings, "v1")
    steps = scored(settings, version, version)
    automation = Automation(instance, steps)
    assert automation.work() == []
    assert run(instance, "rebuild", steps).success
    asked = [SCORED, {"cross_document/promotion"}, APPLIED]  # trained and scored in one run, then a check has its say
    assert automation.work() == [{"documents": each} for each in asked]
    assert run(instance, "rebuild", steps).success  # the same version
    assert automation.work() == []


def test_without_nostruct_among_the_objectives_a_version_is_promoted_all_the_same(
    instance: dg.DagsterInstance, settings: Settings, scored: Callable[..., Scored]
) -> None:
    """As by a run that a person starts: there is nothing to compare with, and nobody could mend that."""
    alone = replace(settings, datasets=(DatasetSettings(name="documents", objectives=("cross-document",)),))
    steps = scored(alone, commit_version(alone, "v1"))
    automation = Automation(instance, steps)
    assert run(instance, "rebuild", steps).success
    own = {each for each in SCORED if each.startswith("cross_document")}
    assert automation.work() == [{"documents": each} for each in (own | {"cross_document/promotion"}, APPLIED)]


def test_a_version_that_fails_a_check_waits_until_the_check_passes(
    instance: dg.DagsterInstance, settings: Settings, scored: Callable[..., Scored]
) -> None:
    half_failed = {"sources": {"in": 10, "out": 4, "rejected": 0, "failed": 6}}
    version = commit_version(settings, "v1", stages=half_failed)
    steps = scored(settings, version)
    automation = Automation(instance, steps)
    assert not run(instance, "rebuild", steps).success
    assert automation.work() == [] and list(sound_versions(instance, "documents")) == []
    assert not run(instance, "train", steps).success  # nor by hand
    looser = replace(steps, settings=replace(settings, checks=CheckSettings(max_failure_share=0.9)))
    assert run(instance, "checks", looser).success
    assert list(sound_versions(instance, "documents")) == [version]
    assert automation.work()[0] == {"documents": SCORED}


def test_what_failed_for_good_is_made_after_the_next_rebuild_and_not_before(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    version = commit_version(settings, "v1")
    steps = given(settings, version, version)
    automation = Automation(instance, steps)
    assert run(instance, "rebuild", steps).success
    assert automation.work() == [{"documents": SCORED}]
    assert sorted(steps.trained) == ["cross-document", "nostruct"]
    assert run(instance, "rebuild", steps).success
    assert automation.work() == [{"documents": SCORED}]
    assert sorted(steps.trained) == ["cross-document"] * 2 + ["nostruct"] * 2


def test_a_champion_and_an_approval_of_a_person_are_seen(
    instance: dg.DagsterInstance, settings: Settings, monkeypatch: pytest.MonkeyPatch, scored: Callable[..., Scored]
) -> None:
    standing = {"champion": "1", "approvals": ""}
    monkeypatch.setattr(Plan, "standing", lambda *_: dict(standing))
    steps = scored(settings, commit_version(settings, "v1"))
    monkeypatch.setattr(Plan, "champion", lambda *_: standing["champion"])
    automation = Automation(instance, steps)
    assert run(instance, "rebuild", steps).success
    automation.work()
    standing["champion"] = "7"  # by a rollback
    assert automation.work() == [{"documents": APPLIED}]
    standing["approvals"] = "1: Ann"
    assert automation.work()[0] == {"documents": APPLIED | {"cross_document/promotion"}}


def test_a_damaged_record_of_one_model_leaves_the_other_data_sets(
    instance: dg.DagsterInstance, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def standing(plan: Plan, dataset: str, objective: str) -> dict[str, str]:
        if dataset == "documents":
            raise IntegrityError("the record is damaged")
        return {"champion": "1", "approvals": ""}

    monkeypatch.setattr(Plan, "standing", standing)
    (observer,) = (each for each in make_definitions(settings).sensors or () if each.name == "registry")
    tick = observer.evaluate_tick(dg.build_sensor_context(instance))
    assert [(each.asset_key.to_user_string(), each.partition) for each in tick.asset_events] == [
        ("cross_document/champion", "diy")
    ]


def test_an_objective_has_the_data_sets_that_are_configured_for_it(tmp_path: Path) -> None:
    datasets = (DatasetSettings(name="diy"), DatasetSettings(name="documents", objectives=("nostruct", "closed-form")))
    graph = make_definitions(replace(settings_in(tmp_path), datasets=datasets)).resolve_asset_graph()
    expected = {"closed_form": ["documents"], "nostruct": ["diy", "documents"]}
    of = {group: graph.get(dg.AssetKey([group, TRAINED])).partitions_def for group in expected}
    assert {group: definition.get_partition_keys() for group, definition in of.items()} == expected


def test_a_person_changes_a_setting_of_one_run(instance: dg.DagsterInstance, settings: Settings) -> None:
    steps = given(settings, commit_version(settings, "v1"))
    chosen = {"settings": ["dedupe.radius=2"]}
    assert run(instance, "rebuild", steps, config={"ops": {"build": {"config": chosen}}}).success
    epochs = {"cross_document__trained_model": {"config": {"settings": ["training.epochs=1"]}}}
    run(instance, dg.AssetSelection.assets(["cross_document", TRAINED]), steps, config={"ops": epochs})
    assert steps.settings_seen == [("dedupe.radius=2",), ("training.epochs=1", "objective.name=cross-document")]


def test_the_newest_model_of_a_version_is_found(tmp_path: Path, empty_store: str) -> None:
    from training.mlflow.runs import connect

    name, datasets = "multilink-diy-cross-document", (DatasetSettings(name="diy"),)
    plan = Plan(settings=Settings(lake=str(tmp_path), tracking_uri=empty_store, datasets=datasets))
    client = connect(empty_store)
    client.create_registered_model(name)
    client.create_model_version(name, source=str(tmp_path), tags={"dataset_version": "v1"})
    assert plan.model_of("diy", "v1", "cross-document").version == "1"
    assert plan.model_of("diy", "v2", "cross-document") is None


def test_a_report_of_a_remote_lake_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    model = ModelVersion(name="m", version="1", run_id="r", tags={})
    with report_folder("s3://bucket/lake?region=eu-west-1", "documents@v1", model) as folder:
        assert Path(folder).parent == tmp_path
    assert list(tmp_path.iterdir()) == []
    with report_folder(str(tmp_path), "documents@v1", model) as folder:
        assert folder == str(tmp_path / "reports" / "documents" / "v1" / "m-1")
