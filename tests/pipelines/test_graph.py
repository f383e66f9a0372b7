"""The graph of a build: how often the data are shuffled, and what travels to every worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.internal import cloudpickle_pickler
from apache_beam.internal.cloudpickle import cloudpickle

from pipelines.build import BuildPlan, chain_stages
from pipelines.config import recipe
from pipelines.progress import Progress
from pipelines.run import features_of
from pipelines.sources.takedowns import parse_takedowns
from schemas.lake import Lake
from schemas.overrides import override

MOST_SHUFFLES = 37  # a shuffle sends all of its elements over the network: add none without need
LISTED = "an-entry-5137"


def graph_of_diy(lake: Lake) -> Any:
    config = override(recipe("diy"), ["features.images=", "features.sentences="])
    plan = BuildPlan(
        config=config,
        lake=lake,
        features=features_of(config, lake=lake, workers=1),
        progress=Progress(None),
        files=".",
        takedowns=parse_takedowns([f"id:{LISTED}".encode()], name="list").kept_in(lake.builds, "list.json"),
        name="a build",
    )
    pipeline = beam.Pipeline()
    chain_stages(pipeline, plan)
    return pipeline.to_runner_api()


def test_the_shuffles_of_a_build(tmp_path: Path) -> None:
    steps = graph_of_diy(Lake.at(str(tmp_path))).components.transforms.values()
    shuffles = sorted(step.unique_name for step in steps if step.spec.urn == "beam:transform:group_by_key:v1")
    assert 20 < len(shuffles) <= MOST_SHUFFLES, "\n".join(shuffles)


def test_a_takedown_list_travels_as_the_path_of_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = list[bytes]()
    dumps = cloudpickle_pickler.dumps

    def keeping(step: Any, *args: Any, **options: Any) -> Any:
        packed.append(cloudpickle.dumps(step))
        return dumps(step, *args, **options)

    monkeypatch.setattr(cloudpickle_pickler, "dumps", keeping)
    graph_of_diy(Lake.at(str(tmp_path)))
    assert any(b"list.json" in step for step in packed)
    assert not any(LISTED.encode() in step for step in packed)
