"""The main job by Dagster: launched on its page's own interface, done by the code server's machine on the cluster."""

import time
from collections.abc import Callable

import mlflow
import pytest
from bench import COMMAND_TIMEOUT_S, Bench, Local
from cluster.local.deployment import DAGSTER
from dagster import DagsterRunStatus
from dagster_graphql import DagsterGraphQLClient

from schemas.lake import MANIFEST, Lake
from schemas.manifest import read_manifest

Found = Callable[[str], None]
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
    uri, model = bench.cluster.environment["MLFLOW_TRACKING_URI"], "multilink-diy-cross-document"
    champion = mlflow.MlflowClient(uri, registry_uri=uri).get_model_version_by_alias(model, "champion")
    assert lake.links("diy", manifest.version, model, str(champion.version)).exists(MANIFEST)
    found(f"the manifest of the local build; champion {model}, version {champion.version}; its links in the lake")
