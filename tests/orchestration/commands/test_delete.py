"""`multilink datasets delete`: an old version goes with what was made of it, unless somebody needs it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from orchestration.cli import run
from schemas.lake import Lake

RELEASE = Path(__file__).parents[2] / "fixtures" / "formats" / "0.1.0"
OLD, NEW = json.loads((RELEASE / "expected.json").read_text())["version"], "b" * 16


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A lake with an old version, its links and the promotion that was judged on it, and a newer version."""
    shutil.copytree(RELEASE / "lake", tmp_path / "lake")
    versions = tmp_path / "lake" / "datasets" / "documents"
    shutil.copytree(versions / OLD, versions / NEW)
    return tmp_path / "lake"


def delete(lake: Path, version: str, *arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, Any]:
    status = run(["datasets", "delete", f"documents@{version}", "--lake", str(lake), *arguments, "--json"])
    printed = capsys.readouterr()
    return status, printed.err, json.loads(printed.out.splitlines()[-1])


def test_what_is_latest_or_needed_by_a_champion_is_refused(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, err, _ = delete(lake, OLD, "--yes", capsys=capsys)
    assert status == 2 and "it is the latest version of 'documents'" in err
    Lake.at(str(lake)).point_latest("documents", NEW)
    status, err, values = delete(lake, OLD, "--yes", capsys=capsys)
    assert status == 2 and "needed by models:/multilink-documents-closed-form/1" in err
    assert values["exit_status"] == 2
    assert run(["datasets", "delete", "documents", "--lake", str(lake)]) == 2
    assert "expected NAME@VERSION" in capsys.readouterr().err
    assert (lake / "datasets" / "documents" / OLD / "manifest.json").is_file()


def test_an_old_version_goes_with_what_was_made_of_it(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Lake.at(str(lake)).point_latest("documents", NEW)
    shutil.rmtree(lake / "promotions")
    before = {path.relative_to(lake).as_posix(): path.stat().st_size for path in lake.rglob("*") if path.is_file()}
    of_old = {path: size for path, size in before.items() if f"/{OLD}/" in path}
    assert any(path.startswith("links/") for path in of_old)
    status, _, values = delete(lake, OLD[:5], capsys=capsys)  # only listed
    assert status == 0 and values["dry_run"] and sorted(values["paths"]) == sorted(of_old)
    assert (lake / "datasets" / "documents" / OLD).is_dir()
    status, _, values = delete(lake, OLD, "--yes", capsys=capsys)
    assert status == 0 and values["bytes"] == sum(of_old.values())
    left = {path.relative_to(lake).as_posix() for path in lake.rglob("*") if path.is_file()}
    assert {path for path in left if not path.startswith("builds/")} == before.keys() - of_old.keys()
    assert Lake.at(str(lake)).versions("documents") == [NEW]
