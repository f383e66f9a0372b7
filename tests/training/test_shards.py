"""Work on shards: Ray's workers give what this process gives, in the order of the shards, to the byte."""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import lakes
import numpy as np
import pytest
import ray
import torch

from newsroom.archive.build import build_index
from schemas.documents import Split
from schemas.lake import Lake
from schemas.manifest import read_manifest
from schemas.messages import BuildError, UsageError
from schemas.parts import Shard, split_parts
from training.config import LoopConfig, Select, TrainConfig
from training.model import LinkModel
from training.ray.train import RayWorkers, _files, _run, _Shared
from training.shards import embed_split, run_here, run_shards, shards_run_by
from training.towers.recurrence import GruSettings
from training.towers.vectors import LinearSettings

CONFIG = TrainConfig(
    dimensions=16,
    text=GruSettings(word_dimensions=8, min_word_count=1),
    image=LinearSettings(),
    training=LoopConfig(epochs=1, select=Select.LAST),
)

ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import what the tests import


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return lakes.write_lake(tmp_path_factory.mktemp("shards") / "lake", lakes.splits(train=30, test=30), shards=5)


@pytest.fixture(scope="module")
def model(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> LinkModel:
    return LinkModel.load(lakes.learn(CONFIG, lake, tmp_path_factory.mktemp("run")))


def fail_at(number: int, model: LinkModel, shard: Shard) -> str:
    """Return the name of a shard, or raise for one of them."""
    if shard.name.startswith(f"part-{number:05d}"):
        raise UsageError(f"{shard.name} is no good")
    return shard.name


def device_of(model: LinkModel, shard: Shard) -> str:
    return str(model.device)


def named(lake: Lake) -> list[Shard]:
    return split_parts(read_manifest(lake, "synthetic")[0], Split.TEST)


@pytest.mark.slow
def test_workers_give_to_the_byte_what_one_process_gives_and_raise_what_it_raises(
    lake: Lake, model: LinkModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that was given no GPU takes none that it sees: on a mixed cluster bytes would depend on the machine."""
    manifest, source = read_manifest(lake, "synthetic")
    documents, here = embed_split(model, manifest, source, Split.TEST)
    index = build_index(model, lake, "synthetic", uri="m", name="one", say=print)
    with RayWorkers(2) as run, shards_run_by(run):
        same, there = embed_split(model, manifest, source, Split.TEST)
        other = build_index(model, lake, "synthetic", uri="m", name="two", say=print)
        started = ray.get_runtime_context().get_job_id()
        names = list(run_shards(model, partial(fail_at, -1), named(lake)))
        for runner in (run_here, run):
            with pytest.raises(UsageError, match=r"part-00003-of-00005\.parquet is no good"):
                list(runner(model, partial(fail_at, 3), named(lake)))
        assert ray.get_runtime_context().get_job_id() == started  # Ray was not started again
        shared = ray.put(_Shared(_files(model), device_of, "cpu"))
        with monkeypatch.context() as patch:
            patch.setattr(torch.cuda, "is_available", lambda: True)
            assert _run([shared], named(lake)[0]) == "cpu"
    assert not ray.is_initialized()
    assert documents.ids == same.ids and len(documents) == 30
    assert all(
        np.array_equal(a.texts, b.texts) and np.array_equal(a.images, b.images)
        for a, b in zip(here, there, strict=True)
    )
    assert index.manifest.files == other.manifest.files
    assert names == [shard.name for shard in named(lake)]


def die(model: LinkModel, shard: Shard) -> Any:
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.trial
def test_a_shard_that_kills_its_workers_ends_the_work(lake: Lake, model: LinkModel) -> None:
    expected = pytest.raises(BuildError, match=r"test/part-00000-of-00005.parquet: a worker failed: WorkerCrashedError")
    with expected, RayWorkers(1) as run:
        list(run(model, die, named(lake)[:2]))


def test_a_single_shard_needs_no_ray(lake: Lake, model: LinkModel) -> None:
    with RayWorkers(2) as run:
        assert list(run(model, device_of, named(lake)[:1])) == ["cpu"]
        assert not ray.is_initialized()


def test_results_come_in_the_order_of_the_shards(lake: Lake, model: LinkModel, tmp_path: Path) -> None:
    shards = named(lake)[::-1]
    assert list(run_shards(model, partial(fail_at, -1), shards)) == [shard.name for shard in shards]
