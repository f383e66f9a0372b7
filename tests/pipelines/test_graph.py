"""The graph of a build: how often the data are shuffled, and what travels to every worker."""

import json
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.internal import cloudpickle_pickler
from apache_beam.internal.cloudpickle import cloudpickle
from builds import PLAIN, build, build_of
from picture_files import noise
from recorded_lakes import RECORDING

import pipelines.build

MOST_SHUFFLES = 37  # a shuffle sends all of its elements over the network: add none without need
LISTED = "an-entry-5137"
KEYS = {"REDDIT_CLIENT_ID": "an-id-7351", "REDDIT_CLIENT_SECRET": "a-secret-9264", "IMGUR_CLIENT_ID": "an-id-4486"}


class EndedError(Exception):
    """The pipeline would begin here."""


def graph_of_diy(folder: Path, patch: pytest.MonkeyPatch) -> Any:
    """Return what a build of `diy` would give its runner."""
    graphs = []

    def translate(assemble: Any, **_: Any) -> None:
        pipeline = beam.Pipeline()
        assemble(pipeline)
        graphs.append(pipeline.to_runner_api())
        raise EndedError

    patch.setattr("pipelines.run.run_pipeline", translate)
    (folder / "list.txt").write_text(f"id:{LISTED}\n")
    with pytest.raises(EndedError):
        build_of(
            "diy",
            folder / "lake",
            f"source.dump={RECORDING / 'RS_first40.bz2'}",
            *PLAIN,
            f"takedown_list={folder / 'list.txt'}",
        )
    return graphs[0]


def test_the_shuffles_of_a_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = graph_of_diy(tmp_path, monkeypatch).components.transforms.values()
    shuffles = sorted(step.unique_name for step in steps if step.spec.urn == "beam:transform:group_by_key:v1")
    assert 20 < len(shuffles) <= MOST_SHUFFLES, "\n".join(shuffles)


def test_no_key_is_in_a_graph_and_a_takedown_list_travels_as_the_path_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a job server stores of a build is what its steps are pickled to."""
    packed, dumps = list[bytes](), cloudpickle_pickler.dumps

    def keeping(step: Any, *args: Any, **options: Any) -> Any:
        packed.append(cloudpickle.dumps(step))
        return dumps(step, *args, **options)

    monkeypatch.setattr(cloudpickle_pickler, "dumps", keeping)
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    graph_of_diy(tmp_path, monkeypatch)
    steps = b"\n".join(packed)
    assert len(packed) > 100 and b"https://oauth.reddit.com" in steps and b"-takedowns.json" in steps
    assert not [secret for secret in (LISTED, *KEYS.values()) if secret.encode() in steps]


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
                noise(32, 32, number).save(tmp_path / f"{number}.png")
                images = [{"path": f"{number}.png", "licence": f"licence {number}"}, {"path": f"none-{number}.png"}]
                record = {"id": f"d{number}", "licence": f"licence {number}", "sentences": [f"Number {number}."]}
                stream.write(json.dumps(record | {"images": images}) + "\n")
        settings = ("dedupe.policy=keep-all", "max_failure_share=1", "documents.keep_partial=true")
        build(path, tmp_path / f"lake-{count}", *PLAIN, *settings)
    few, many = gathered
    assert many == few
