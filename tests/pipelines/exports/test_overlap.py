"""What two versions share is what sets of their keys have in common."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from orchestration.cli import app
from pipelines.config import recipe
from pipelines.exports.overlap import EXAMPLES
from pipelines.run import build_dataset
from schemas.lake import Lake
from schemas.overrides import override

SHARED = "The same five words stand here."


@pytest.fixture
def lake(tmp_path: Path, picture_drawer: Callable[[Path, int], None]) -> str:
    """Two data sets; of `one` documents 0 to 15, of `two` 12 to 19: other sentences, pictures and addresses."""
    for number in range(20):
        picture_drawer(tmp_path / "own" / f"{number}.png", number)
    for name, numbers in (("one", range(16)), ("two", range(12, 20))):
        records(tmp_path / "own" / f"{name}.jsonl", name, numbers)
        settings = (f"source.documents={tmp_path}/own/{name}.jsonl", f"dataset={name}", "features.images=")
        config = override(recipe("documents"), [*settings, "features.sentences=", "splits.val=0", "splits.test=0"])
        build_dataset(config, lake=Lake.at(f"{tmp_path}/lake"), say=lambda _: None)
    return f"{tmp_path}/lake"


def records(path: Path, name: str, numbers: Iterable[int]) -> None:
    lines = [
        {
            "id": f"d{number}",
            "url": f"https://h.example/{name if number % 2 else ''}{number}",
            "sentences": [SHARED, f"In {name} this is sentence {number} of all."],
            "images": [{"path": f"{number}.png"}],
        }
        for number in numbers
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def overlap(lake: str, first: str, second: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["datasets", "overlap", first, second, "--lake", lake, "--json"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout.splitlines()[-1])["overlaps"]
    return {row["thing"]: (row["first"], row["both"], row["second"], tuple(row["examples"])) for row in rows}


def test_two_data_sets(lake: str) -> None:
    found = overlap(lake, "one", "two")
    assert found["ids"] == (12, 4, 4, ("d12", "d13", "d14", "d15"))
    assert found["addresses of pages"] == (14, 2, 6, ("https://h.example/12", "https://h.example/14"))
    assert found["sentences"] == (16, 1, 8, ("the same five words stand here",))
    assert found["texts of documents"] == (16, 0, 8, ())
    assert found["contents of images"][:3] == (12, 4, 4) and len(found["contents of images"][3]) == 4
    assert found["addresses of images"][1] == 4


def test_a_version_and_itself(lake: str) -> None:
    found = overlap(lake, "one", "one")
    assert {(first, second) for first, _, second, _ in found.values()} == {(0, 0)}
    assert found["ids"][1] == 16 and len(found["ids"][3]) == EXAMPLES
