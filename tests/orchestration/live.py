"""Two weeks of `make up` as a newcomer has it, live: `make live`, or `python tests/orchestration/live.py`.

The workspace is the default one, with a schedule of every two minutes in place of every quarter of an hour:

    from the page     Materialize all, Launch 1 run, in headless Chromium
    a quiet week      posts are added; the schedule rebuilds, the automation trains, judges and links
    a rough week      posts are added; every process is killed once, in the middle of its work, `up` itself last
    an idle week      nothing is added: nothing is trained, judged or linked

What each stage took is printed; what Dagster's page shows is kept as pictures. Too long for `make test`, which does the
same with small files (`test_up.py`).
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from running import CHROMIUM, ROOT, Up, opened_page, started_up, two_clicks, wait_for

from orchestration.config import NOSTRUCT
from orchestration.dagster.record import KINDS
from orchestration.local.up import prepare
from schemas.lake import Lake
from schemas.manifest import read_manifest

sys.path.insert(0, str(ROOT / "tests" / "replay"))
from add_posts import add_posts

DATASET, OBJECTIVE, POSTS = "diy", "closed-form", 20
CRON, QUICK_CRON = '"*/15 * * * *"', '"*/2 * * * *"'
QUIET_S = 150.0  # longer than the schedule's interval
WAIT_S = 1500.0


def main() -> None:
    """Run the weeks, and end with what they took."""
    parser = argparse.ArgumentParser(description="Two weeks of `make up`, live.")
    parser.add_argument("--workspace", type=Path, help="a new folder; a temporary one by default")
    parser.add_argument("--pictures", type=Path, help="where pictures of the page go; the workspace by default")
    arguments = parser.parse_args()
    workspace = arguments.workspace or Path(tempfile.mkdtemp(prefix="multilink-live-"))
    pictures = arguments.pictures or workspace / "pictures"
    pictures.mkdir(parents=True, exist_ok=True)
    file = prepare_quick(workspace)
    print(f"workspace {workspace}, settings {file}", flush=True)
    with started_up(workspace, DATASET, OBJECTIVE) as up:
        with told("from the page"):
            first = from_the_page(up, pictures)
        with told("a quiet week"):
            second = quiet_week(up, first)
        show(up, second, pictures)
        with told("a rough week"):
            third = rough_week(up, second)
        with told("an idle week"):
            idle_week(up, third)
        print(*run_times(up), sep="\n")


def prepare_quick(workspace: Path) -> Path:
    """Prepare the default workspace, and let the schedule be due every two minutes."""
    workspace.mkdir(parents=True, exist_ok=True)
    file = prepare(workspace)
    text = file.read_text(encoding="utf-8")
    assert CRON in text, text
    file.write_text(text.replace(CRON, QUICK_CRON), encoding="utf-8")
    return file


def from_the_page(up: Up, pictures: Path) -> str:
    """Materialise everything with two clicks where there is a browser, else wait for the schedule."""
    if CHROMIUM is not None:
        with opened_page() as page:
            two_clicks(page, up.dagster, pictures / "launch.png")
    version: str = come(lambda: (newest := up.newest()) and newest[0])
    come(lambda: is_done(up, version))
    return version


def quiet_week(up: Up, before: str) -> str:
    """Add posts and wait: a new version, a new challenger, a decision with its reasons, links."""
    add_posts(up.workspace / "web", POSTS)
    version = new_version(up, before)
    come(lambda: is_done(up, version))
    check_week(up, before, version)
    return version


def rough_week(up: Up, before: str) -> str:
    """The same, while each process is killed at its work."""
    add_posts(up.workspace / "web", POSTS)
    come(lambda: up.running("shards"))
    up.kill("dagster_webserver")
    captures = len(list((up.workspace / "lake" / "raw").rglob("*")))
    come(lambda: len(list((up.workspace / "lake" / "raw").rglob("*"))) > captures + 20)  # it is scraping what is new
    killed(up, "replay/server.py")
    up.kill("dagster-daemon")
    version = new_version(up, before)
    come(lambda: up.running("trained_model"))
    os.kill(come(up.trainer), signal.SIGKILL)
    up.kill("mlflow server")
    come(up.trainer)
    up.kill("dagster api grpc")
    come(lambda: up.running("promotion"))
    up.kill_itself()
    come(lambda: is_done(up, version))
    check_week(up, before, version)
    return version


def idle_week(up: Up, version: str) -> None:
    """Wait for the schedule with nothing new: the same version, and no run but its rebuild."""
    before = {job: len(up.runs(job)) for job in KINDS}
    newest = up.newest()
    come(lambda: up.newest() != newest and not up.is_busy())
    time.sleep(QUIET_S)
    again = up.newest()
    assert again is not None
    assert again[0] == version, (again, version)
    assert {job: len(up.runs(job)) for job in before} == before


def check_week(up: Up, before: str, version: str) -> None:
    """Check that a week ended as it should: more documents, one new model of each objective, judged with reasons."""
    lake = Lake.at(str(up.workspace / "lake"))
    counts = [documents(lake, each) for each in (before, version)]
    assert counts[1] == counts[0] + POSTS, counts
    failed = read_manifest(lake, f"{DATASET}@{version}")[0].failures
    assert "connection-failed" not in failed, failed
    assert lake.latest(DATASET) == version
    for objective in (NOSTRUCT, OBJECTIVE):
        name = f"multilink-{DATASET}-{objective}"
        models = up.client().search_model_versions(f"name = '{name}'")
        (model,) = [each for each in models if each.tags["dataset_version"] == version]
        challenger = up.client().get_model_version_by_alias(name, "challenger")
        assert challenger.version == model.version
    decision = up.told("promotion")[0]
    assert decision["version"].value == version
    assert decision["reasons"].value.count("- ") >= 3
    print(f"  {version}: {counts[1]} documents, model {decision['model'].value}")
    print(*(f"    {line}" for line in decision["reasons"].value.splitlines()), sep="\n", flush=True)


def documents(lake: Lake, version: str) -> int:
    manifest, _ = read_manifest(lake, f"{DATASET}@{version}")
    return sum(split.documents for split in manifest.splits.values())


def show(up: Up, version: str, pictures: Path) -> None:
    """Check that Dagster's page shows the version, the challenger and the decision, and keep pictures of it."""
    if CHROMIUM is None:
        return
    decision = up.told("promotion")[0]
    asset = f"{up.dagster.partition('/asset-groups')[0]}/assets"
    words = {
        f"{asset}/shards?view=partitions&partition={DATASET}": [version],
        f"{asset}/closed_form/trained_model?view=partitions&partition={DATASET}": [version, decision["model"].value],
        f"{asset}/closed_form/promotion?view=partitions&partition={DATASET}": ["beats random", version],
        f"{asset.removesuffix('assets')}runs": ["automation"],
    }
    with opened_page() as page:
        for number, (address, expected) in enumerate(words.items(), 1):
            page.goto(address)
            for each in expected:
                page.get_by_text(each).locator("visible=true").first.wait_for()
            page.screenshot(path=pictures / f"week-{number}.png")


def is_done(up: Up, version: str) -> bool:
    """Return whether all is made of a version with both objectives, and linked."""
    nostruct = up.client().search_model_versions(f"name = 'multilink-{DATASET}-{NOSTRUCT}'")
    return any(each.tags["dataset_version"] == version for each in nostruct) and up.is_done(version)


def new_version(up: Up, before: str) -> str:
    version: str = come(lambda: (newest := up.newest()) and newest[0] != before and newest[0])
    return version


def killed(up: Up, words: str) -> None:
    """Kill the process whose command holds some words, once it is there."""
    os.kill(come(lambda: up.started(words)), signal.SIGKILL)
    print(f"  killed {words}", flush=True)


def come(condition: Callable[[], Any]) -> Any:
    return wait_for(condition, timeout_s=WAIT_S)


@contextmanager
def told(what: str) -> Iterator[None]:
    """Print what a part took."""
    began = time.monotonic()
    print(what, flush=True)
    yield
    print(f"  {time.monotonic() - began:.0f} s", flush=True)


def run_times(up: Up) -> Iterator[str]:
    """Yield a line for each run: what it was, when it began, what it took, and how it ended."""
    records = sorted(up.instance.get_run_records(), key=lambda record: record.create_timestamp)
    began = records[0].create_timestamp.timestamp()
    for record in records:
        run, start, end = record.dagster_run, record.start_time, record.end_time
        assets = ", ".join(sorted(key.to_user_string() for key in run.asset_selection or ()))
        when = f"{record.create_timestamp.timestamp() - began:6.0f} s"
        took = f"{end - start:4.0f} s" if start and end else "      "
        yield f"{when} {took}  {run.job_name:10} {run.status.value.lower():8} {assets}"


if __name__ == "__main__":
    main()
