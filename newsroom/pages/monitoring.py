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
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from fastapi import FastAPI, Request
from fastapi.responses import Response
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from schemas.errors import IntegrityError
from schemas.lake import MANIFEST, Lake
from schemas.manifest import read_manifest
from training.listening import METRICS, Metered, exposition
from training.promotions.record import CHANGED, JUDGED, trusted_statements

Number = tuple[str, Mapping[str, str], float]  # name, labels, value
HELP = "See docs/how-to/alarms.md."


def add_metrics(app: FastAPI, lake: Lake) -> None:
    """Let an application count its requests, and answer `GET /metrics` to whom it answers at all."""
    registry = CollectorRegistry()
    registry.register(LakeNumbers(lake))

    def metrics(_: Request) -> Response:
        return exposition(registry)

    app.add_api_route(METRICS, metrics)
    app.add_middleware(Metered, registry=registry)


class LakeNumbers(Collector):
    """Reads a lake whenever it is asked: a manifest a data set, the statements of each registered model."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Yield nothing: the lake is not read when this is registered."""
        return iter(())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the numbers."""
        unreadable = list[Number]()
        for kind, names, read in (
            ("dataset", self.lake.dataset_names(), self._of_dataset),
            ("promotions", self.lake.root.child("promotions").names(), self._of_model),
        ):
            found = list[Number]()
            for name in names:
                is_damaged = False
                try:
                    found += list(read(name))
                except IntegrityError:
                    is_damaged = True
                unreadable.append(("unreadable", {"kind": kind, "name": name}, is_damaged))
            yield from _families(found)
        yield from _families(unreadable)
        if (local := self.lake.root.local) is not None:
            yield GaugeMetricFamily("multilink_free_bytes", HELP, value=shutil.disk_usage(local).free)

    def _of_dataset(self, name: str) -> Iterator[Number]:
        if self.lake.latest(name) is not None:
            manifest, folder = read_manifest(self.lake, name)
            about = {"dataset": name}
            yield "dataset_made_timestamp_seconds", about, folder.stamp(MANIFEST)[1] / 1e9
            yield "dataset_documents", about, sum(split.documents for split in manifest.splits.values())
            for stage, row in manifest.stages.items():
                yield "dataset_failed_share", about | {"stage": stage}, row["failed"] / max(row["in"], 1)

    def _of_model(self, name: str) -> Iterator[Number]:
        statements, about = trusted_statements(self.lake.promotions(name)), {"model": name}
        changed = [place for place, each in enumerate(statements) if each.event == CHANGED]
        after = statements[changed[-1] + 1 :] if changed else statements
        yield "refusals_since_champion", about, sum(each.event == JUDGED for each in after)
        if changed:
            since = datetime.fromisoformat(statements[changed[-1]].predicate["at"])
            yield "champion_since_timestamp_seconds", about, since.timestamp()


def _families(numbers: Sequence[Number]) -> Iterator[GaugeMetricFamily]:
    """Yield numbers of one name together, as the format asks for."""
    for name in dict.fromkeys(name for name, _, _ in numbers):
        own = [(labels, value) for each, labels, value in numbers if each == name]
        family = GaugeMetricFamily(f"multilink_{name}", HELP, labels=list(own[0][0]))
        for labels, value in own:
            family.add_metric(list(labels.values()), value)
        yield family
