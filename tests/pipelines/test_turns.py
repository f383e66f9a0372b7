"""Builds work side by side; what deletes from a lake works alone, on a file system and on S3."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pipelines.forgetting.forget import forget
from pipelines.sources.takedowns import parse_takedowns
from pipelines.sweep import sweep_lake
from pipelines.turns import turn_alone, turn_of_build
from schemas.lake import Lake
from schemas.leases import HeldError

TWO_DAYS_S = 2 * 86_400


class WaitingError(Exception):
    """A build waits."""


def stop(line: str) -> None:
    raise WaitingError(line)


@pytest.fixture(params=["file system", "object store"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    if request.param == "object store":
        return Lake.at(f"s3://lake/turns?{request.getfixturevalue('object_store')}")
    return Lake.at(str(tmp_path / "lake"))


def test_a_sweep_leaves_the_parts_of_a_build_that_takes_days(lake: Lake) -> None:
    part, later = "documents/train/part-00000-of-00001.parquet", time.time() + TWO_DAYS_S
    lake.dataset("documents", "0123").write(part, b"rows")
    with turn_of_build(lake, "documents", stop):
        with pytest.raises(HeldError, match="wait until it has ended"):
            sweep_lake(lake, dry_run=False, now=later)
        assert lake.dataset("documents", "0123").read(part) == b"rows"
        assert sweep_lake(lake, dry_run=True, now=later).paths == (f"datasets/documents/0123/{part}",)
        with pytest.raises(HeldError):
            forget(lake, parse_takedowns([b"id:a"], name="list"), dry_run=False, say=stop)
        assert lake.dataset("documents", "0123").exists(part)
    assert sweep_lake(lake, dry_run=False, now=later).paths == (f"datasets/documents/0123/{part}",)


def test_a_sweep_takes_what_was_made_of_versions_that_are_gone(lake: Lake) -> None:
    paths = tuple(f"{top}/documents/0123/file" for top in ("indexes", "links", "retrievals"))
    for path in paths:
        lake.root.write(path, b"made of it")
    assert sweep_lake(lake, dry_run=False, now=time.time() + TWO_DAYS_S).paths == paths
    assert not any(map(lake.root.exists, paths))


def test_builds_of_other_data_sets_go_on_and_one_of_the_same_waits(lake: Lake) -> None:
    with turn_of_build(lake, "documents", stop):
        with turn_of_build(lake, "others", stop):
            pass
        with (
            pytest.raises(WaitingError, match="another build of documents is under way"),
            turn_of_build(lake, "documents", stop),
        ):
            pass


def test_a_build_waits_for_what_works_alone(lake: Lake) -> None:
    with turn_alone(lake):
        with (
            pytest.raises(WaitingError, match="lake sweep or lake forget is under way"),
            turn_of_build(lake, "documents", stop),
        ):
            pass
        with pytest.raises(HeldError), turn_alone(lake):
            pass
    with turn_of_build(lake, "documents", stop):
        pass
