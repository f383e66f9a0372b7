"""The main job, by commands and by Dagster: build, train on Ray, evaluate, promote, link; as on one machine."""

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import obstore
import pyarrow.parquet as pq
import pytest
from bench import (
    COMMAND_TIMEOUT_S,
    LAKE,
    WEIGHTS_DIFFER,
    Bench,
    Found,
    Local,
    References,
    Trained,
    largest_difference,
    summary_of,
)
from cluster.local.deployment import DAGSTER
from dagster import DagsterRunStatus
from dagster_graphql import DagsterGraphQLClient
from servers import beam_services

from schemas.lake import LATEST, MANIFEST, Folder, Lake
from schemas.manifest import Manifest, read_manifest, verify
from schemas.versions import fingerprint

MEASURES = ("auc", "precision_at_1", "precision_at_5")


def digest_of(manifest: Manifest) -> str:
    """Return a digest of every byte of a version: its manifest holds those of all its files."""
    return fingerprint(json.loads(manifest.to_json()))[:16]


def compared(lake: Lake, local: Local) -> str:
    """Compare the newest version of a lake with that of one local process, to the byte; return what to tell."""
    manifest, folder = read_manifest(lake, "diy")
    assert manifest.to_json() == local.manifest.to_json()
    assert list(verify(manifest, folder)) == []
    return f"version {manifest.version}, digest {digest_of(manifest)}"


def test_build(bench: Bench, built: dict[str, Any], local: Local, found: Found) -> None:
    """`multilink build diy` by `{engine}` with the lake on S3, against one local process."""
    assert built["version"] == local.manifest.version
    found(f"{compared(Lake.at(LAKE), local)}, equal byte for byte")


@pytest.mark.parametrize("way", ["local, two processes", "portable, two workers"])
def test_build_without_engine(bench: Bench, local: Local, way: str, found: Found, tmp_path: Path) -> None:
    """`multilink build diy` by `{way}` with the lake on S3, against one local process."""
    lake, runner = f"s3://lake/{way.replace(', ', '-').replace(' ', '-')}", way.partition(",")[0]
    if runner == "local":
        bench.run(*bench.build_arguments(lake, ("--runner", runner, "--workers", "2")))
    else:
        with beam_services(tmp_path, workers=2) as options:
            bench.run(*bench.build_arguments(lake, ("--runner", runner)), "--", *options)
    found(f"{compared(Lake.at(lake), local)}, equal byte for byte")


def test_two_builds_at_once(bench: Bench, local: Local, found: Found) -> None:
    """Two builds of one version at once, into one lake on S3."""
    lake = Lake.at("s3://lake/at-once")
    both = [bench.start(*bench.build_arguments(lake.root.uri, ("--runner", "local"))) for _ in range(2)]
    versions = [summary_of(each)["version"] for each in both]
    version = compared(lake, local)
    assert versions == [local.manifest.version] * 2
    files = [each.dataset("diy", local.manifest.version).files() for each in (lake, local.lake)]
    assert set(files[0]) == set(files[1])
    assert [name for name in lake.root.files() if "lock" in name] == []
    found(f"both give {version}; its files are those of one build")


def test_train(bench: Bench, trained: dict[str, Any], reference: Trained, found: Found) -> None:
    """`multilink train --workers 2` on two Ray nodes with token authentication, against one local process."""
    largest = largest_difference(bench.weights(trained["model_uri"]), reference.weights)
    assert largest < WEIGHTS_DIFFER
    found(f"{trained['epochs']} epochs; largest difference of a weight {largest:.1e}")


def test_train_the_closed_form(bench: Bench, built: dict[str, Any], references: References, found: Found) -> None:
    """`multilink train --recipe closed-form --workers 2` on two Ray nodes, against one local process."""
    way = ["--recipe", "closed-form"]
    trained = bench.run(*bench.train_arguments(LAKE, built["version"], *way))
    largest = largest_difference(bench.weights(trained["model_uri"]), references(*way).weights)
    assert largest == 0
    found(f"{trained['epochs']} passes; the same bits")


def test_evaluate(
    bench: Bench,
    trained: dict[str, Any],
    reference: Trained,
    here: Callable[..., dict[str, Any]],
    found: Found,
) -> None:
    """`multilink evaluate` of both models."""
    where = ["--dataset", f"diy@{trained['dataset_version']}"]
    mine = bench.run("evaluate", "--model", trained["model_uri"], *where, "--lake", LAKE, "--json")
    theirs = here("evaluate", "--model", reference.uri, *where)
    means = {name: f"{mine[name]['mean']:.3f}" for name in MEASURES}
    assert means == {name: f"{theirs[name]['mean']:.3f}" for name in MEASURES}
    found(", ".join(f"{name} {mean}" for name, mean in means.items()) + ": equal to the printed digits")


def test_promote_verify_and_link(bench: Bench, trained: dict[str, Any], found: Found) -> None:
    """`multilink promote`, `verify --deep` on two machines, `link --workers 2` of every document on two Ray nodes."""
    asked = ["--model", trained["model"], "--version", trained["version"], "--lake", LAKE, "--json"]
    assert bench.run("promote", *asked)["is_promoted"]
    public = bench.cluster.plan.home / "key.pub.pem"
    verify = ["verify", f"{trained['model']}@champion", "--trust", str(public), "--deep", "--json"]
    verdicts = [bench.run(*verify, on=name) for name in ("ray-head", "database")]
    assert verdicts[0] == verdicts[1] and verdicts[0]["findings"][-1].endswith("to the last bit")
    champion = bench.registry.get_model_version_by_alias(trained["model"], "champion")
    assert str(champion.version) == trained["version"]
    where = ["--dataset", f"diy@{trained['dataset_version']}", "--lake", LAKE]
    output = {workers: f"s3://lake/links-{workers}" for workers in ("1", "2")}
    for workers, folder in output.items():
        model = ["--model", f"models:/{trained['model']}@champion"]
        bench.run("link", *model, *where, "--output", folder, "--workers", workers, "--json")
    one, two = ({name: Folder(uri).read(name) for name in Folder(uri).files()} for uri in output.values())
    links = {name: data for name, data in two.items() if name.endswith(".parquet")}
    assert links and links == {name: one[name] for name in links}
    rows = sum(pq.read_metadata(Folder(output["2"]).open(name)).num_rows for name in links)
    found(f"two machines verify the champion with one verdict; {rows} rows of links, with two nodes the bytes of one")


WRITERS = 8


def conditions_of(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list that the condition of every put goes into, refused ones too."""
    conditions: list[str] = []
    put = obstore.put

    def noted(*arguments: Any, mode: Any) -> object:
        conditions.append("IfNoneMatch" if mode == "create" else "IfMatch")
        return put(*arguments, mode=mode)

    monkeypatch.setattr(obstore, "put", noted)
    return conditions


def test_writers_at_once(bench: Bench, monkeypatch: pytest.MonkeyPatch, found: Found) -> None:
    """`latest` written by eight at once: `If-None-Match` for the first, `If-Match` for the others."""
    lake = Lake.at("s3://lake/conditional")
    conditions = conditions_of(monkeypatch)
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(lambda number: lake.point_latest("diy", f"v{number}"), range(WRITERS)))
    assert lake.latest("diy") in {f"v{number}" for number in range(WRITERS)}
    written = len(conditions)
    assert conditions.count("IfMatch") >= WRITERS - 1 and conditions.count("IfNoneMatch") >= 1
    assert written >= WRITERS  # refused ones are made again from what is there
    lake.point_latest("diy", lake.latest("diy") or "")
    assert len(conditions) == written  # what is there already is not written again
    names = Folder("s3://lake/conditional").files()
    assert list(names) == [f"datasets/diy/{LATEST}"]  # no lock file, no folder's marker
    found(f"{WRITERS} writers, {written - WRITERS} requests refused and made again")


EVERY_ASSET = "__ASSET_JOB"  # what the page's *Materialize all* launches
ENDS = {DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED}
POLL_S = 2.0


@pytest.mark.filterwarnings("ignore:Using variable_values:DeprecationWarning")  # dagster-graphql's own use of gql
def test_everything(bench: Bench, local: Local, found: Found) -> None:
    """All assets on the cluster: build by `{engine}`, two objectives on two Ray nodes, gate, links."""
    page = DagsterGraphQLClient(bench.cluster.plan.machines["dagster"].address, port_number=DAGSTER)
    run = page.submit_job_execution(EVERY_ASSET, tags={"dagster/partition": "diy"})
    deadline = time.monotonic() + 2 * COMMAND_TIMEOUT_S
    while (status := page.get_run_status(run)) not in ENDS:
        assert time.monotonic() < deadline
        time.sleep(POLL_S)
    assert status is DagsterRunStatus.SUCCESS
    lake = Lake.at(bench.cluster.environment["MULTILINK_LAKE"])
    manifest = read_manifest(lake, "diy")[0]
    assert manifest.to_json() == local.manifest.to_json()
    model = "multilink-diy-cross-document"
    champion = bench.registry.get_model_version_by_alias(model, "champion")
    assert lake.links("diy", manifest.version, model, str(champion.version)).exists(MANIFEST)
    found(f"the manifest of the local build; champion {model}, version {champion.version}; its links in the lake")
