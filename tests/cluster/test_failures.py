"""What ends in the middle: each in a run of its own, with the same result as a run in which nothing ended.

KILLS=20 python -m pytest tests/cluster/test_failures.py -m cluster -k task_manager      20 kills, five a build
"""

import contextlib
import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow.parquet as pq
import pytest
from bench import (
    COMMAND_TIMEOUT_S,
    LAKE,
    ROOT,
    WEIGHTS_DIFFER,
    Bench,
    Found,
    Local,
    Trained,
    largest_difference,
    summary_of,
)
from cluster.local.programs import Engine

from pipelines.launch import run_pipeline
from pipelines.settings import Runner
from schemas.lake import Folder, Lake
from schemas.manifest import read_manifest
from schemas.messages import BuildError
from training.mlflow.tracked_training import TASKS

AWAY_S = 60.0
ANSWERS = 400  # of the recorded web, after which a build is in the middle
ATTEMPTS = 2  # at a picture that is not to be had
KILLS = int(os.environ.get("KILLS", "1"))  # of TaskManagers, in all
KILLS_OF_A_BUILD = 5  # Flink restarts a run ten times within half an hour; a kill may cost two
LOOK_S = 0.2
EPOCHS = 3  # after which a training is in the middle


@pytest.fixture(autouse=True)
def on_flink(bench: Bench) -> None:
    if bench.cluster.plan.engine is not Engine.FLINK:
        pytest.skip("failures are tried on Flink")


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait until something holds while a command runs."""
    deadline = time.monotonic() + COMMAND_TIMEOUT_S
    while not condition():
        if process.poll() is not None:
            pytest.fail(f"the command ended before: {process.communicate()[1][-2000:]}")
        assert time.monotonic() < deadline
        time.sleep(LOOK_S)


@contextlib.contextmanager
def killed_on_failure(process: subprocess.Popen[str]) -> Iterator[None]:
    """Kill a command where its test fails: the next tests run without it."""
    try:
        yield
    except BaseException:
        process.kill()
        raise


@cache
def plain_pictures() -> frozenset[str]:
    """Return the pictures that answer at once: others are asked for more than once where nothing is killed."""
    recorded = json.loads((ROOT / "tests" / "replay" / "recording" / "images.json").read_text(encoding="utf-8"))
    return frozenset(image for image, entry in recorded.items() if "behaviour" not in entry)


def pictures(bench: Bench) -> Counter[tuple[str, str]]:
    asked, plain = bench.asked(), plain_pictures()
    return Counter({key: asked[key] for key in asked if key[0] == "i.imgur.com" and Path(key[1]).stem in plain})


def build_with_kills(bench: Bench, lake: str, kills: int) -> Counter[tuple[str, str]]:
    """Build while one TaskManager after the other is killed as pictures come; return how often each was asked for."""
    before = pictures(bench)
    with bench.start(*bench.build_arguments(lake)) as process, killed_on_failure(process):
        for kill in range(kills):
            name, wanted = f"taskmanager-{1 + kill % 2}", before.total() + (kill + 1) * ANSWERS
            wait_for(partial(is_asked_more, bench, wanted), process)
            wait_for(partial(bench.is_up, name), process)
            bench.kill(name)
        summary_of(process)
    return pictures(bench) - before


def is_asked_more(bench: Bench, count: int) -> bool:
    return pictures(bench).total() > count


def test_mistake_ends_a_run(bench: Bench, found: Found) -> None:
    """A step that fails each time it is tried, by {engine}."""

    def assemble(root: beam.Pipeline) -> None:
        root | beam.Create(["12", "twelve"]) | beam.Reshuffle() | beam.Map(int)

    with pytest.raises(BuildError) as ended:
        run_pipeline(assemble, runner=Runner.FLINK, workers=1, beam_options=bench.cluster.beam_options)
    found(f"tried again ten times, and ended with one line ({str(ended.value)[:90]})")


@pytest.mark.timeout(2 * COMMAND_TIMEOUT_S * KILLS)
@pytest.mark.parametrize("kills", [KILLS])
def test_task_manager_killed(bench: Bench, local: Local, found: Found, kills: int) -> None:
    """A TaskManager killed while pictures are fetched (times: {kills})."""
    again, builds = 0, range(0, kills, KILLS_OF_A_BUILD)
    for first in builds:
        lake, of_build = f"s3://lake/killed-{kills}-{first}", min(KILLS_OF_A_BUILD, kills - first)
        asked = build_with_kills(bench, lake, of_build)
        assert read_manifest(Lake.at(lake), "diy")[0].to_json() == local.manifest.to_json()
        assert max(asked.values()) <= (1 + of_build) * ATTEMPTS
        again += sum(count > 1 for count in asked.values())
    found(f"the same manifest of each of {len(builds)} builds; {again} times a picture was asked for again")


def trained_through(bench: Bench, built: dict[str, Any], reference: Trained, break_: Callable[[], None]) -> str:
    """Train, break something after some epochs, and compare the weights with the reference; return what to tell."""
    runs, client = Folder(f"{LAKE}/runs"), bench.registry
    earlier = {*runs.names(), TASKS}

    def is_under_way() -> bool:
        fresh = set(runs.names()) - earlier
        return any(len(client.get_metric_history(name, "train_loss")) >= EPOCHS for name in fresh)

    process = bench.start(*bench.train_arguments(LAKE, built["version"]))
    wait_for(is_under_way, process)
    break_()
    largest = largest_difference(bench.weights(summary_of(process)["model_uri"]), reference.weights)
    assert largest < WEIGHTS_DIFFER
    return f"largest difference of a weight {largest:.1e}"


def test_ray_node_killed_in_training(bench: Bench, built: dict[str, Any], reference: Trained, found: Found) -> None:
    """A Ray node killed in the middle of training."""
    difference = trained_through(bench, built, reference, lambda: bench.kill("ray-1"))
    found(f"resumed from the last checkpoint; {difference}")


def test_s3_away(bench: Bench, built: dict[str, Any], reference: Trained, found: Found) -> None:
    """The S3 server away for a minute in the middle of training."""
    machine = bench.cluster.plan.machines["store"]
    if not machine.is_separate:
        pytest.skip("a link is cut where each machine has a network of its own")

    def away() -> None:
        machine.connect(is_up=False)
        time.sleep(AWAY_S)
        machine.connect(is_up=True)

    found(f"waited for; {trained_through(bench, built, reference, away)}")


def test_ray_node_killed_in_linking(bench: Bench, trained: dict[str, Any], found: Found) -> None:
    """A Ray node killed in the middle of linking."""
    where = ["--dataset", f"diy@{trained['dataset_version']}", "--lake", LAKE, "--model", trained["model_uri"]]

    def link(folder: str) -> subprocess.Popen[str]:
        return bench.start("link", *where, "--output", folder, "--workers", "2", "--json")

    summary_of(link("s3://lake/links-whole"))
    process = link("s3://lake/links-broken")
    wait_for(is_linking, process)
    bench.kill("ray-2")
    summary_of(process)
    whole, broken = (
        {name: folder.read(name) for name in folder.files() if name.endswith(".parquet")}
        for folder in (Folder("s3://lake/links-whole"), Folder("s3://lake/links-broken"))
    )
    assert whole and broken == whole
    rows = sum(pq.read_metadata(Folder("s3://lake/links-broken").open(name)).num_rows for name in broken)
    found(f"{rows} rows, the same bytes")


def is_linking() -> bool:
    """Return whether a task of linking runs in a worker: Ray names the process after it."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "cmdline").read_bytes().startswith(b"ray::_run"):
                return True
        except OSError:  # it has ended
            continue
    return False


def test_postgres_restarted_in_promotion(bench: Bench, trained: dict[str, Any], found: Found) -> None:
    """PostgreSQL restarted during a promotion."""
    model, version = trained["model"], trained["version"]
    process = bench.start("promote", "--model", model, "--version", version, "--lake", LAKE, "--json")
    time.sleep(AWAY_S / 10)
    assert process.poll() is None
    bench.kill("postgres")
    assert summary_of(process)["is_promoted"]
    found("promoted")


def test_job_manager_restarted(bench: Bench, local: Local, found: Found) -> None:
    """The JobManager restarted in the middle of a build, which ends with one line and is started again."""
    lake = "s3://lake/restarted-job-manager"
    before = pictures(bench).total()
    process = bench.start(*bench.build_arguments(lake))
    wait_for(lambda: pictures(bench).total() - before > ANSWERS, process)
    bench.kill("jobmanager")
    _, told = process.communicate(timeout=COMMAND_TIMEOUT_S)
    last = told.splitlines()[-1]
    assert process.returncode == 1 and last.startswith("multilink: ")
    bench.cluster.await_workers()
    bench.run(*bench.build_arguments(lake))
    assert read_manifest(Lake.at(lake), "diy")[0].to_json() == local.manifest.to_json()
    found(f"the command ended with one line ({last[:90]}); the next one built the same manifest")
