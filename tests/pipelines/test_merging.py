"""Packs that are put together when a build ends meet rebuilds and `lake sweep`."""

from pathlib import Path

import pytest
from builds import PLAIN, build, quiet
from ten_documents import draw_picture

from pipelines import packs, run, sweep
from pipelines.run import BuildSummary
from pipelines.turns import turn_of_build
from schemas.lake import Lake
from schemas.manifest import read_manifest, verify


@pytest.fixture(autouse=True)
def _two_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs, "MANY", 1)
    monkeypatch.setattr(run, "MANY", 1)


def copies(lake: Path) -> list[Path]:
    return sorted((lake / "images").rglob("*.parquet"))


def parts(summary: BuildSummary) -> dict[str, str]:
    return {entry.path: entry.sha256 for entry in summary.manifest.files}


@pytest.mark.trial
def test_a_used_lake_with_merged_packs_gives_what_a_fresh_one_gives(ten_documents: Path, tmp_path: Path) -> None:
    lake, pictures = tmp_path / "lake", ten_documents.parent / "pictures"
    build(ten_documents, lake, *PLAIN)
    for number in range(2):  # others come: each build adds a pack
        draw_picture(pictures / f"{number}-0.png", 1000 + number)
        with turn_of_build(Lake.at(str(lake)), "other", quiet):  # nothing is merged while another build is under way
            build(ten_documents, lake, *PLAIN)
    assert len(copies(lake)) == 3
    merged = build(ten_documents, lake, *PLAIN, "splits.seed=1")
    assert len(copies(lake)) == 1
    again = build(ten_documents, lake, *PLAIN, "splits.seed=2")
    assert parts(build(ten_documents, tmp_path / "fresh", *PLAIN, "splits.seed=2")) == parts(again)

    at = Lake.at(str(lake))
    old = [name for name in at.versions("documents") if name not in (merged.manifest.version, again.manifest.version)]
    for version in old:
        sweep.delete_version(at, f"documents@{version}", needed_by={}, dry_run=False)
    (path,) = copies(lake)
    size = path.stat().st_size
    later = 10 * sweep.MIN_AGE_S + path.stat().st_mtime
    sweep._sweep(at, dry_run=False, now=later)
    assert copies(lake) == [path] and path.stat().st_size == size  # three rows of 33: not worth writing it anew
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep, "LEAST_SPARE", 0.05)
        patch.setattr(sweep, "LEAST_BYTES", 1)
        found = sweep._sweep(at, dry_run=True, now=later)
        assert found.paths == (str(path.relative_to(lake)),) and 0 < found.bytes < size / 5
        sweep._sweep(at, dry_run=False, now=later)
    (less,) = copies(lake)
    assert less != path and less.stat().st_size < size
    for version in at.versions("documents"):
        assert list(verify(*read_manifest(at, f"documents@{version}"))) == []
    assert parts(build(ten_documents, lake, *PLAIN, "splits.seed=3")) == parts(
        build(ten_documents, tmp_path / "fresh", *PLAIN, "splits.seed=3")
    )
