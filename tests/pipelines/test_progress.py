"""Counts of workers are added up by stage, and what cannot be written or read ends nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.transforms import Progress, Shown


def test_counts_of_all_workers_are_added_up(tmp_path: Path) -> None:
    for stage, number in (("images", 5), ("images", 3), ("features", 2), ("dedupe", 0)):
        shown = Shown(str(tmp_path), stage)
        for _ in range(number):
            shown.add()
        shown.write()
    assert Progress(str(tmp_path)).counts() == {"images": 8, "features": 2, "dedupe": 0}
    assert not Progress(None).counts()


def test_a_count_is_written_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("pipelines.transforms.time.monotonic", lambda: now[0])
    shown = Shown(str(tmp_path), "images")
    seen = []
    for step in (0, 0.4, 0.4, 0.4):
        now[0] += step
        shown.add()
        seen.append(Progress(str(tmp_path)).counts()["images"])
    assert seen == [1, 1, 1, 4]


def test_a_folder_that_is_gone_ends_nothing(tmp_path: Path) -> None:
    shown = Shown(str(tmp_path / "gone"), "images")
    shown.add()
    shown.write()
    assert not Progress(str(tmp_path / "gone")).counts()
