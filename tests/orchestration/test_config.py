"""The settings file: what is in it is taken, what is wrong in it is one line, what is not in it is a default."""

from pathlib import Path

import pytest

from orchestration.config import MONTHLY, WEEKLY, DatasetSettings, RayWhere, Settings, load_settings, read_settings
from orchestration.demo.recorded_web import dumps_of, web_settings
from orchestration.local.up import DEMO_SETTINGS, Ports, make_services, mlflow_page, prepare
from pipelines.config import datasets
from schemas.messages import ConfigError, NotFoundError

INFRA = Path(__file__).resolve().parents[2] / "infra"
PORTS = Ports(code=1, dagster=2, mlflow=3, pages=4)


def test_without_a_file_every_data_set_is_there_and_nothing_starts_by_itself() -> None:
    settings = load_settings({})
    expected = [(name, WEEKLY if name == "diy" else MONTHLY) for name in datasets()]
    assert [(dataset.name, dataset.schedule) for dataset in settings.datasets] == expected
    assert (settings.is_running, settings.objectives) == (False, ("nostruct", "cross-document"))


def test_a_file_is_read_and_its_paths_are_relative_to_it(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(
        "lake: s3://bucket/lake\n"
        "datasets:\n"
        "  - {name: diy, policy: gate.toml, cron: '0 4 * * 0', objectives: [cross-document]}\n"
        "  - {name: documents, settings: ['source.documents=/own.jsonl'], train_settings: [training.epochs=2],\n"
        "     objectives: [cross-document]}\n"
        "beam: {runner: flink, options: ['--flink_master=flink:8081']}\n"
        "ray: {where: ray-job, address: 'http://head:8265'}\n",
        encoding="utf-8",
    )
    settings = load_settings({"MULTILINK_SETTINGS": str(file)} | {"MULTILINK_MLFLOW_PAGE": "http://here"})
    stores = ("s3://bucket/lake", f"sqlite:///{tmp_path}/mlflow.db", "http://here")
    assert (settings.lake, settings.tracking_uri, settings.mlflow_page) == stores
    assert settings.dataset("diy").policy == str(tmp_path / "gate.toml")
    assert settings.dataset("documents").training_of("nostruct") == ("training.epochs=2", "objective.name=nostruct")
    assert (settings.beam.runner, settings.ray.where) == ("flink", RayWhere.RAY_JOB)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- a list", "expected a mapping of settings, found list"),
        ("lake: [", "expected YAML"),
        ("lakes: lake", "unknown key 'lakes'; did you mean 'lake'?"),
        ("datasets: []", "expected at least one"),
        ("datasets: [{name: diyy}]", "unknown data set 'diyy'"),
        ("datasets: [{name: diy}, {name: diy}]", "expected each name once"),
        (
            "datasets: [{name: diy}, {name: wiki, objectives: [cross-document]}]",
            "datasets = ['wiki']: expected nostruct",
        ),
        ("datasets: [{name: diy, cron: daily}]", "datasets.diy.cron = 'daily'"),
        ("datasets: [{name: diy, cron: 0 0 3 * * *}]", "must have 5 fields"),
        ("datasets: [{name: diy, cron: 0 3 * * MOO}]", "datasets.diy.cron = '0 3 * * MOO'"),
        ("timezone: Europe/Viena", "did you mean 'Europe/Vienna'?"),
        ("datasets: [{name: diy, settings: [dedupe.radus=3]}]", "did you mean 'dedupe.radius'?"),
        ("datasets: [{name: diy, objectives: [magic]}]", "datasets.diy.objectives = 'magic': expected one of"),
        ("datasets: [{name: diy, objectives: [nostruct, cross+intra, intra+cross]}]", "each objective once"),
        ("datasets: [{name: diy, train_recipe: huge}]", "unknown recipe 'huge'"),
        ("beam: {where: cluster}", "unknown key 'beam.where'"),
        ("beam: {runner: flunk}", "beam.runner = 'flunk'"),
        ("ray: {where: ray-job}", "ray-job needs the address"),
        ("ray: {workers: 0}", "ray.workers = 0"),
        ("checks: {least_share: 2}", "checks.least_share = 2: expected `float` <= 1.0"),
        ("checks: {most_share: 0.5}", "checks.most_share = 0.5: expected `float` >= 1.0"),
        ("links: {precision: 1.5}", "links.precision = 1.5: expected `float` <= 1.0"),
        ("retries: {attempts: -1}", "retries.attempts = -1: expected `int` >= 0"),
        ("fresh_within_hours: -1", "fresh_within_hours = -1: expected `int` >= 0"),
        ("checks: {refused_leaks: [smell]}", "checks.refused_leaks = 'smell'"),
    ],
)
def test_a_mistake_is_one_line_that_names_it(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_settings(text, where="settings.yaml")
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_said() -> None:
    with pytest.raises(NotFoundError, match=r"MULTILINK_SETTINGS = nowhere\.yaml: no such file"):
        load_settings({"MULTILINK_SETTINGS": "nowhere.yaml"})


def test_a_new_workspace_gets_the_demo_and_a_web_that_posts_can_be_added_to(tmp_path: Path) -> None:
    file = prepare(tmp_path)
    web = tmp_path / "web"
    (web / "RS_added-1.zst").write_bytes(b"")
    dumps = f"{web / 'RS_recorded.zst'},{web / 'RS_added-1.zst'}"
    assert web_settings(dumps_of(web), 80)[0] == f"source.dump={dumps}"
    file.write_text("datasets: [{name: wiki}]", encoding="utf-8")
    assert prepare(tmp_path).read_text(encoding="utf-8") == "datasets: [{name: wiki}]"  # a person's settings stay


@pytest.mark.parametrize("text", [DEMO_SETTINGS, (INFRA / "compose" / "settings.yaml").read_text(encoding="utf-8")])
def test_the_settings_that_are_given_out_load(text: str) -> None:
    assert isinstance(read_settings(text, where="given"), Settings)


def test_an_objective_with_a_recipe_of_its_own_name_is_trained_by_it() -> None:
    dataset = DatasetSettings(name="diy", objectives=("nostruct", "closed-form"), train_recipe="tiny")
    dataset.check_training()
    assert [dataset.recipe_of(each) for each in dataset.objectives] == ["tiny", "closed-form"]


@pytest.mark.parametrize(
    ("settings", "page", "first"),
    [
        (Settings(), "http://127.0.0.1:3", ["mlflow"]),
        (Settings(tracking_uri="http://mlflow:5000"), "http://mlflow:5000", []),
    ],
)
def test_a_server_that_the_settings_name_is_used_and_no_other_is_started(
    tmp_path: Path, settings: Settings, page: str, first: list[str]
) -> None:
    own = settings.relative_to(tmp_path)
    services = [*first, "code", "webserver", "daemon", "pages"]
    assert [each.name for each in make_services(tmp_path, own, PORTS)] == services
    assert mlflow_page(own, PORTS) == page
