"""What `multilink features list` tells a user who chooses an extractor."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestration.cli import run
from pipelines.features.catalogue import (
    Entry,
    extractors,
    listed_extractors,
    listing,
)
from pipelines.features.values import IMAGES
from pipelines.settings import FeaturesConfig
from schemas.errors import ConfigError


def rows_by_name(*weights: str) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in listed_extractors(FeaturesConfig(weights=weights))}


def test_the_list_tells_what_is_there_and_what_is_missing(
    counts: Counter[str], registered: Callable[[Entry], None], tmp_path: Path
) -> None:
    def cannot(*_: object) -> Any:
        raise ImportError("no module named nowhere")

    registered(Entry(factory=cannot, network="needy", dimensions=7, weights="needy"))
    rows = rows_by_name(f"mine={tmp_path}/mine.onnx", "resnet50=weights.pth")
    assert (rows["efficientnet-lite0"]["kind"], rows["efficientnet-lite0"]["dimensions"]) == ("vector", 1280)
    assert {rows[name]["state"] for name in ("efficientnet-lite0", "use-multilingual", "cells")} == {"available"}
    assert rows["cells"]["kind"] == "regions"
    assert rows["lengths"]["setting"] == "features.sentences"
    assert rows["needy"]["state"] == "needs --set features.weights=needy=FILE"
    assert "nowhere" in rows_by_name("needy=weights.pth")["needy"]["state"]
    assert (rows["mine"]["weights"], "there is no file" in rows["mine"]["state"]) == ("your own", True)
    assert [row["weights"] for name, row in rows.items() if name.startswith("resnet50")] == ["resnet50"] * 5
    lines = list(listing(rows.values()))
    assert len(lines) == len(rows) + 1
    assert any("efficientnet-lite0" in line and "Apache-2.0" in line for line in lines)


def test_columns_of_one_network_come_from_one_extractor() -> None:
    names = ["grid", "efficientnet-lite0", "efficientnet-lite0-classes", "efficientnet-lite0-grid"]
    (made,) = extractors(names, IMAGES, FeaturesConfig())
    assert [column.name for column in made.columns] == names
    assert len({column.fingerprint for column in made.columns}) == 3  # two names of one grid


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(ConfigError, match=r"features\.images = 'resnet51': expected one of .*efficientnet-lite0"):
        extractors(["resnet51"], IMAGES, FeaturesConfig())
    with pytest.raises(ConfigError, match=r"features\.sentences = 'bert': expected one of .*use-multilingual"):
        extractors(["bert"], "documents", FeaturesConfig())


def test_the_command_prints_its_rows(counts: Counter[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["features", "list", "--json"]) == 0
    values = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert values["use-multilingual"]["dimensions"] == 512
