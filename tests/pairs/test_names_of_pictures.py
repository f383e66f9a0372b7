"""Regions that are given by the names of pictures, and lakes that hold a picture under another name already."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builds import build as build_file
from builds import rows
from PIL import Image

from pipelines.run import BuildSummary

TEXT = "One two three four five six."


def draw(path: Path, seed: int) -> None:
    grid = np.random.default_rng(seed).integers(0, 255, (6, 8, 3), dtype=np.uint8)
    Image.fromarray(grid).resize((320, 240), 0).save(path)


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., BuildSummary]:
    """Return a function of a lake's name and of the pictures of each document, which builds them with the regions."""
    draw(tmp_path / "1.png", 1)
    draw(tmp_path / "9.png", 9)
    for copy in ("2.png", "3.png"):
        shutil.copy(tmp_path / "1.png", tmp_path / copy)
    regions = [
        {"name": name, "box": [0.0, 0.0, 0.5, 0.5], "vector": [value] * 4, "label": "", "score": 1.0}
        for name, value in (("1.png", 1.0), ("3.png", 3.0), ("9.png", 9.0))
    ]
    pq.write_table(pa.Table.from_pylist(regions), tmp_path / "regions.parquet")

    def run(lake: str, **pictures: str) -> BuildSummary:
        folder = tmp_path / "-".join(f"{name}{file}" for name, file in pictures.items())
        folder.mkdir(exist_ok=True)
        documents = [
            {"id": name, "sentences": [f"{name}: {TEXT}"], "images": [{"path": file}]}
            for name, file in pictures.items()
        ]
        (folder / "documents.jsonl").write_text("\n".join(map(json.dumps, documents)))
        given = ("features.images=mine", "features.sentences=", f"features.weights=mine={tmp_path}/regions.parquet")
        return build_file(folder / "documents.jsonl", tmp_path / lake, f"source.images={tmp_path}", *given)

    return run


def vectors(summary: BuildSummary) -> list[Any]:
    return sorted(row["regions.mine"][0]["vector"][0] for row in rows(summary, "images"))


def test_a_used_lake_gives_what_a_fresh_one_gives(build: Callable[..., BuildSummary], tmp_path: Path) -> None:
    """What has not changed is not packed again."""
    build("used", x="1.png")
    features = tmp_path / "used" / "features"
    packs = {*features.rglob("*.parquet")}
    first = build("used", x="1.png", y="9.png")
    assert [pq.read_metadata(path).num_rows for path in {*features.rglob("*.parquet")} - packs] == [1]
    for other, expected in (("2.png", [9.0]), ("3.png", [3.0, 9.0])):
        used, fresh = (build(lake, x=other, y="9.png") for lake in ("used", f"fresh-{other}"))
        assert used.manifest.to_json() == fresh.manifest.to_json()
        assert vectors(used) == vectors(fresh) == expected
    again = build("used", x="1.png", y="9.png")
    assert again.manifest == first.manifest and vectors(again) == [1.0, 9.0]
