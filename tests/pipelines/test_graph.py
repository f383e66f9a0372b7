"""The graph of a build: how often the data are shuffled, and what travels to every worker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.internal import cloudpickle_pickler
from apache_beam.internal.cloudpickle import cloudpickle
from PIL import Image

import pipelines.build
from pipelines.build import BuildPlan, chain_stages
from pipelines.config import recipe
from pipelines.run import build_dataset, features_of
from pipelines.sources.takedowns import parse_takedowns
from pipelines.transforms import Progress
from schemas.documents import Split
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


def test_what_one_worker_gathers_does_not_grow_with_documents_or_licences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathered = list[dict[str, int]]()
    compose = pipelines.build.compose_manifest

    def counting(identity: Any, features: Any, stages: Any, facts: dict[str, list[Any]], **rest: Any) -> Any:
        gathered.append({kind: len(values) for kind, values in facts.items() if len(values) > 1})
        return compose(identity, features, stages, facts, **rest)

    monkeypatch.setattr(pipelines.build, "compose_manifest", counting)
    for count in (20, 60):
        path = tmp_path / f"{count}.jsonl"
        with path.open("w", encoding="utf-8") as stream:
            for number in range(count):
                pixels = np.random.default_rng(number).integers(0, 256, (32, 32, 3), np.uint8)
                Image.fromarray(pixels).save(tmp_path / f"{number}.png")
                image = {"path": f"{number}.png", "licence": f"licence {number}"}
                missing = {"path": f"none-{number}.png"}
                record = {"id": f"d{number}", "licence": f"licence {number}", "sentences": [f"Number {number}."]}
                stream.write(json.dumps(record | {"images": [image, missing]}) + "\n")
        settings = [f"source.documents={path}", "dedupe.policy=keep-all", "max_failure_share=1", "features.images="]
        config = override(recipe("documents"), [*settings, "features.sentences=", "documents.keep_partial=true"])
        build_dataset(config, lake=Lake.at(str(tmp_path / f"lake-{count}")), say=lambda _: None)
    of_first_bytes = {few_or_many.pop("unique_images") for few_or_many in gathered}
    assert max(of_first_bytes) <= 256 * len(Split)  # one number for each first byte of a hash in each split
    few, many = gathered
    assert many == few
