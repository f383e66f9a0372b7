"""What `multilink features list` and `features bench` tell a user who chooses an extractor."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from orchestration.cli import run
from pipelines.features.choosing import made_up_pictures, measured, measurements
from pipelines.features.extractors import IMAGE_EXTRACTORS, Entry
from pipelines.features.listing import ListedExtractor, listed_extractors, listing
from pipelines.settings import FeaturesConfig
from schemas.errors import ConfigError


def listed_extractors_by_name(*, weights: tuple[str, ...]) -> dict[str, ListedExtractor]:
    return {row.name: row for row in listed_extractors(FeaturesConfig(weights=weights))}


def test_the_list_tells_what_is_there_and_what_is_missing(
    counts: Counter[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    needy = Entry(place="nowhere:Nothing", dimensions=7, weights="needy")
    monkeypatch.setitem(IMAGE_EXTRACTORS, "needy", needy)
    weights = (f"mine={tmp_path}/mine.onnx", "resnet50=weights.pth")
    rows = listed_extractors_by_name(weights=weights)
    assert (rows["efficientnet-lite0"].kind, rows["efficientnet-lite0"].dimensions) == ("vector", 1280)
    assert {rows[name].state for name in ("efficientnet-lite0", "use-multilingual", "cells")} == {"available"}
    assert rows["cells"].kind == "regions"
    assert rows["lengths"].setting == "features.sentences"
    assert rows["needy"].state == "needs --set features.weights=needy=FILE"
    assert "nowhere" in listed_extractors_by_name(weights=("needy=weights.pth",))["needy"].state
    assert (rows["mine"].weights, rows["mine"].state != "available") == ("your own", True)
    assert sum(name == "resnet50" and row.weights == "your own" for name, row in rows.items()) == 0
    lines = listing(list(rows.values()))
    assert len(lines) == len(rows) + 1
    assert any("efficientnet-lite0" in line and "Apache-2.0" in line for line in lines)


def test_a_bench_measures_what_it_was_asked_for(counts: Counter[str]) -> None:
    config = FeaturesConfig(max_regions=36)
    cells, lengths = (measured(name, config, count=6) for name in ("cells", "lengths"))
    assert cells.per_s > 0 and lengths.per_s > 0
    assert cells.bound_share is None
    # 4 regions: box 16, score 4, vector 6, label 3 to 5 and its offset 4; and the offset of the list
    assert 4 * (16 + 4 + 6 + 3 + 4) <= cells.value_bytes <= 4 * (16 + 4 + 6 + 5 + 4) + 16
    assert lengths.value_bytes == 4
    assert counts["cells"] >= 6 * 4  # once for its size, and in a warm-up and three rounds
    assert "regions" in measurements([cells])[1]
    with pytest.raises(ConfigError, match="expected one of"):
        measured("unknown", config, count=4)
    assert len(set(made_up_pictures(4))) == 4


def test_the_commands_print_their_rows(counts: Counter[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["features", "bench", "cells", "lengths", "--images", "4", "--json"]) == 0
    values = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(values) == {"cells", "lengths"}
    assert run(["features", "list", "--json"]) == 0
    values = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert values["use-multilingual"]["dimensions"] == 512
