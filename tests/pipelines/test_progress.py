"""Counts of workers are added up by stage, and what cannot be written or read ends nothing."""

from pathlib import Path

import pytest

from pipelines.transforms import Progress, Show
from schemas.failures import Stage


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
