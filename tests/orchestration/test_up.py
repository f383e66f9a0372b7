"""Everything that `multilink up` runs, as a newcomer and as a week of schedules would use it.

One workspace for all tests here, in order: first from Dagster's page, then by schedule and sensors while processes are
killed, then Ctrl-C. The schedule's clock is the test's: the daemon's own scheduler is asked what it
would do a week later. Everything else - queue, sensors, runs, MLflow - are the processes of `multilink up`.
"""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from released import write_released
from running import CHROMIUM, Up, opened_page, started_up, two_clicks
from servers import wait_for

from orchestration.dagster.checks import CHAMPION, KINDS, VERSION_TAG
from orchestration.dagster.definitions import REBUILD
from orchestration.local.supervisor import marked
from schemas.lake import Lake
from training.mlflow.champions import record_of
from training.promotions.record import MODEL_DIGEST_TAG

pytestmark = [
    pytest.mark.trial,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc"),
]
PICTURES = Path(__file__).parent / "pictures"
DATASET, OBJECTIVE = "multi-retrieval", "cross-document"
SETTINGS = """\
is_running: true
sensor_interval_s: 1
datasets:
  - name: {dataset}
    settings: {settings}
    cron: "0 3 * * 1"
    objectives: [cross-document]
    train_settings: [training.epochs=40, training.learning_rate=3e-3, dimensions=64, text.dropout=0, image.dropout=0,
                     text.word_dimensions=32]
retries: {{attempts: 2, delay_s: 0.5}}
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    workspace = tmp_path_factory.mktemp("workspace")
    settings = [*write_released(workspace / "own", train=40), "features.sentences=[]"]
    (workspace / "settings.yaml").write_text(SETTINGS.format(dataset=DATASET, settings=settings), encoding="utf-8")
    with started_up(workspace, DATASET, OBJECTIVE) as running:
        yield running


@pytest.fixture(scope="module")
def pictures(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where pictures go: beside this file with `--refresh-golden`, since the README shows them."""
    if not request.config.getoption("--refresh-golden"):
        return tmp_path_factory.mktemp("pictures")
    PICTURES.mkdir(exist_ok=True)
    return PICTURES


@pytest.fixture(scope="module")
def materialised(up: Up, pictures: Path) -> str:
    """Materialise everything, from Dagster's page where there is a browser, and return the data set version."""
    if CHROMIUM is None:
        up.a_week_later()
    else:
        with opened_page() as page:
            two_clicks(page, up.dagster, pictures / "launch.png")
    version: str = wait_for(lambda: (newest := up.newest()) and newest[0])
    wait_for(lambda: up.is_done(version))
    return version


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine (Debian: apt-get install chromium)")
def test_from_the_asset_graph_to_a_promotion_in_two_clicks(up: Up, materialised: str) -> None:
    (run,) = [each for each in up.instance.get_runs() if each.status is dg.DagsterRunStatus.SUCCESS]
    made_in_it = {
        entry.dagster_event.asset_key.to_user_string()
        for entry in up.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
    }
    assert made_in_it == {"documents", "images", "duplicates", "features", "shards"} | {
        f"cross_document/{kind}" for kind in (*KINDS, CHAMPION)
    }
    assert run.tags["multilink/data_set_version"] == materialised
    assert run.tags["multilink/model"] == f"models:/{up.model}/1"
    assert run.tags["multilink/mlflow_run"].startswith(f"{up.mlflow}/#/experiments/")


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine (Debian: apt-get install chromium)")
def test_the_pages_show_what_was_made(up: Up, materialised: str, pictures: Path) -> None:
    (report,) = (up.workspace / "lake" / "reports" / DATASET / materialised).glob("*/index.html")
    with opened_page() as page:
        page.goto(up.dagster)
        page.get_by_role("button", name="Materialize all").wait_for()
        page.get_by_text("data_sets", exact=True).locator("visible=true").last.wait_for()
        page.keyboard.press("Alt+KeyE")  # expand all groups
        for asset in ("documents", "images", "duplicates", "features", "shards", *KINDS):
            page.get_by_text(asset, exact=True).locator("visible=true").first.wait_for()
        page.mouse.dblclick(1400, 200)  # fit into the window
        page.wait_for_timeout(1500)
        page.screenshot(path=pictures / "asset-graph.png")
        page.goto(report.as_uri())
        assert up.model in page.inner_text("body")
        page.screenshot(path=pictures / "report.png")
        page.goto(f"{up.pages}/links")  # the champion has linked the version, and its index was found
        page.get_by_role("link", name=f"{up.model}-1").first.click()
        page.locator("article.example").first.wait_for()
        page.goto(up.client_page())
        page.get_by_text("hessel-2019 cross-document").first.wait_for()
    assert all((pictures / name).stat().st_size > 10_000 for name in ("launch.png", "asset-graph.png", "report.png"))


def test_new_data_are_rebuilt_trained_judged_and_linked_while_processes_are_killed(up: Up, materialised: str) -> None:
    """Every process of `up` is killed once, each at work, `up` itself last: the end is that of an undisturbed week."""
    write_released(up.workspace / "own", train=60)
    up.a_week_later()
    wait_for(lambda: up.runs(REBUILD, dg.DagsterRunStatus.STARTED))
    up.kill("dagster-daemon")
    up.kill("dagster_webserver")
    version = wait_for(lambda: (newest := up.newest()) and newest[0] != materialised and newest[0])
    wait_for(lambda: up.runs("trained_model", dg.DagsterRunStatus.STARTED))
    os.kill(wait_for(up.trainer), signal.SIGKILL)
    up.kill("mlflow server")
    wait_for(up.trainer)
    up.kill("dagster api grpc")  # the process of the runs
    wait_for(lambda: up.runs("promotion", dg.DagsterRunStatus.STARTED))
    up.kill_itself()
    wait_for(lambda: up.is_done(version))

    registered = up.client().search_model_versions(f"name = '{up.model}'")
    assert sorted(each.tags["dataset_version"] for each in registered) == sorted([materialised, version])
    decided = [each.subject[0]["digest"]["sha256"] for each in record_of(up.client(), up.model).statements]
    assert sorted(decided) == sorted(each.tags[MODEL_DIGEST_TAG] for each in registered)  # each once
    assert {kind: up.versions_of(kind)[0] for kind in KINDS} == dict.fromkeys(KINDS, version)
    assert Lake.at(str(up.workspace / "lake")).latest(DATASET) == version
    runs = (each for each in up.runs("trained_model") if each.status is dg.DagsterRunStatus.SUCCESS)
    trained = {each.tags[VERSION_TAG] for each in runs}
    assert trained - {materialised} == {version}  # without a browser the first version came by the schedule, too


def test_the_end_leaves_nothing(up: Up) -> None:
    mark = up.mark
    assert marked(mark)
    up.process.send_signal(signal.SIGINT)
    assert up.process.wait(60) == 130
    assert marked(mark) == []
