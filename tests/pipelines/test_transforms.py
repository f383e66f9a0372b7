"""Steps that every stage shares; counts of workers are added up by stage, and what cannot be written ends nothing."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that, equal_to

from pipelines.runner.spilling import Limits, SpillingRunner
from pipelines.transforms import CountThings, OnOneWorker, Progress, Show, Tally, stage_table
from schemas.failures import Stage

TWO_PROCESSES = ["--direct_num_workers=2", "--direct_running_mode=multi_processing"]


def describe(batch: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    for number in batch:
        yield number, len(batch), os.getpid()


def check(described: list[tuple[int, int, int]]) -> None:
    numbers, sizes, processes = zip(*described, strict=True)
    assert sorted(numbers) == list(range(500))
    assert 1 < max(sizes) <= 40
    assert len(set(processes)) == 1


def test_all_of_a_hosts_requests_are_made_by_one_worker_in_batches() -> None:
    runner = SpillingRunner(limits=Limits(bundle=1000, held=50, run=500))
    with beam.Pipeline(runner=runner, options=PipelineOptions(TWO_PROCESSES)) as pipeline:
        numbers = pipeline | beam.Create(range(500)) | beam.Reshuffle()
        assert_that(numbers | OnOneWorker(describe, batch_size=40), check)


def letters(word: str) -> Iterator[tuple[str, str]]:
    for letter in word:
        yield "letter", letter


def test_things_are_tallied_by_bundle_and_added_up() -> None:
    with beam.Pipeline(runner=SpillingRunner(limits=Limits(bundle=1))) as pipeline:
        words = pipeline | beam.Create(["abba", "ab", ""]) | beam.Reshuffle()
        facts = words | beam.ParDo(Tally(letters)) | CountThings()
        assert_that(facts, equal_to([("letter", ("a", 3)), ("letter", ("b", 3))]))


def test_each_stage_counts_in_its_own_unit() -> None:
    """Eight documents lose three thumbnails each, and one of them all; a link that leads nowhere costs no record."""
    passed = [("sources", 8), ("documents", 8), ("images", 30), ("quality", 7), ("features", 7)]
    lost = [
        (("sources", "bad-link"), 5), (("sources", "empty-sentence"), 9), (("sources", "broken-record"), 1),
        (("images", "not-found"), 4), (("quality", "too-small"), 24), (("quality", "too-few-images"), 1),
        (("features", "feature-missing"), 6),
    ]  # fmt: skip
    recounted = [(("images", "not-found"), 2), (("images", "too-small"), 3), (("features", "feature-missing"), 1)]
    table = stage_table([stage for stage, _ in passed], passed, lost, recounted)
    assert {stage: tuple(row.values()) for stage, row in table.items()} == {  # in, out, rejected, failed
        "sources": (9, 8, 0, 1), "documents": (8, 8, 0, 0), "images": (35, 30, 3, 2), "quality": (8, 7, 1, 0),
        "features": (8, 7, 0, 1),
    }  # fmt: skip


def shown(folder: Path, stage: Stage = Stage.IMAGES) -> Show:
    """Return the step that shows a stage, in a worker that has begun."""
    show = Show(stage, Progress(str(folder)))
    show.setup()
    return show


def test_counts_of_all_workers_are_added_up(tmp_path: Path) -> None:
    for stage, number in ((Stage.IMAGES, 5), (Stage.IMAGES, 3), (Stage.FEATURES, 2), (Stage.DEDUPE, 0)):
        show = shown(tmp_path, stage)
        for element in range(number):
            show.process(element)
        show.finish_bundle()
    assert Progress(str(tmp_path)).counts() == {"images": 8, "features": 2, "dedupe": 0}
    assert not Progress(None).counts()


def test_a_count_is_written_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("pipelines.transforms.time.monotonic", lambda: now[0])
    show = shown(tmp_path)
    seen = []
    for step in (0, 0.4, 0.4, 0.4):
        now[0] += step
        show.process(None)
        seen.append(Progress(str(tmp_path)).counts()["images"])
    assert seen == [1, 1, 1, 4]


def test_a_folder_that_is_gone_ends_nothing(tmp_path: Path) -> None:
    show = shown(tmp_path / "gone")
    show.process(None)
    show.finish_bundle()
    assert not Progress(str(tmp_path / "gone")).counts()
