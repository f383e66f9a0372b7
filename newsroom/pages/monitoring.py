"""What Prometheus reads of the pages: their requests, and what the lake tells about its data sets and champions.

multilink_dataset_made_timestamp_seconds    when the latest version was made
multilink_dataset_documents                 that it has
multilink_dataset_failed_share              of what a stage read, 0 to 1
multilink_champion_since_timestamp_seconds  when the champion last changed
multilink_refusals_since_champion           candidates that the gate refused since then
multilink_unreadable                        1: a manifest or a record of promotions is damaged
multilink_free_bytes                        of the disk that a local lake is on
"""

import shutil
from collections.abc import Mapping
from datetime import datetime

from fastapi import FastAPI, Request, Response
from prometheus_client import CollectorRegistry, Gauge

from schemas.lake import MANIFEST, Lake
from schemas.manifest import read_manifest
from schemas.messages import IntegrityError
from training.listening import METRICS, Metered, exposition
from training.promotions.record import CHANGED, JUDGED, trusted_statements

HELP = "See docs/how-to/alarms.md."
LABELS = {
    "dataset_made_timestamp_seconds": ("dataset",),
    "dataset_documents": ("dataset",),
    "dataset_failed_share": ("dataset", "stage"),
    "champion_since_timestamp_seconds": ("model",),
    "refusals_since_champion": ("model",),
    "unreadable": ("kind", "name"),
}


def add_metrics(app: FastAPI, lake: Lake) -> None:
    """Let an application count its requests, and answer `GET /metrics` to whom it answers at all."""
    registry = CollectorRegistry()

    def metrics(_: Request) -> Response:
        return exposition(registry, lake_numbers(lake))

    app.add_api_route(METRICS, metrics)
    app.add_middleware(Metered, registry=registry)


def lake_numbers(lake: Lake) -> CollectorRegistry:
    """Return what a lake says now: a manifest a data set is read, and the statements of each registered model."""
    registry = CollectorRegistry()
    gauges = {name: Gauge(f"multilink_{name}", HELP, labels, registry=registry) for name, labels in LABELS.items()}
    for kind, names, read in (
        ("dataset", lake.dataset_names(), _read_dataset),
        ("promotions", lake.root.child("promotions").names(), _read_model),
    ):
        for name in names:
            unreadable = gauges["unreadable"].labels(kind, name)
            try:
                read(lake, name, gauges)
            except IntegrityError:
                unreadable.set(1)
    if (local := lake.root.local) is not None:
        Gauge("multilink_free_bytes", HELP, registry=registry).set(shutil.disk_usage(local).free)
    return registry


def _read_dataset(lake: Lake, name: str, gauges: Mapping[str, Gauge]) -> None:
    if lake.latest(name) is not None:
        manifest, folder = read_manifest(lake, name)
        gauges["dataset_made_timestamp_seconds"].labels(name).set(folder.stamp(MANIFEST)[1] / 1e9)
        gauges["dataset_documents"].labels(name).set(sum(split.documents for split in manifest.splits.values()))
        for stage, row in manifest.stages.items():
            gauges["dataset_failed_share"].labels(name, stage).set(row["failed"] / max(row["in"], 1))


def _read_model(lake: Lake, name: str, gauges: Mapping[str, Gauge]) -> None:
    statements = trusted_statements(lake.promotions(name))
    changed = [place for place, each in enumerate(statements) if each.event == CHANGED]
    after = statements[changed[-1] + 1 :] if changed else statements
    gauges["refusals_since_champion"].labels(name).set(sum(each.event == JUDGED for each in after))
    if changed:
        since = datetime.fromisoformat(statements[changed[-1]].predicate["at"])
        gauges["champion_since_timestamp_seconds"].labels(name).set(since.timestamp())
