"""Indexes that are made while the pages run are found; a look that fails keeps those that were found before."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from orchestration.pages import archives
from orchestration.pages.archives import Archives
from schemas.errors import BuildError, IntegrityError
from schemas.indexes import IndexManifest
from schemas.lake import MANIFEST, Lake


def write_index(lake: Lake, model: str) -> None:
    manifest = IndexManifest(
        model=f"models:/{model}/1",
        dataset="news@v1",
        made_by="x",
        rows_by="x",
        images=1,
        rows=1,
        dimensions=1,
        parts=(),
        cells=None,
        rank_by="visual",
        described={},
        files=(),
    )
    lake.index("news", "v1", f"{model}-1").write(MANIFEST, manifest.to_json().encode())


def wait_for(found: Archives, count: int) -> list[str]:
    deadline = time.monotonic() + 60
    while len(found.choices) != count:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return [each.model for each in found.choices]


def test_an_index_that_is_made_later_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "LOOK_AGAIN_S", 0.0)
    lake, champions = Lake.at(str(tmp_path)), {"b": "1"}
    found = Archives(lake, (), lambda name: {"champion": champions[name]} if name in champions else {}, ())
    assert found.choices == []
    write_index(lake, "a")
    assert wait_for(found, 1) == ["a 1"]
    write_index(lake, "b")
    assert wait_for(found, 2) == ["b 1", "a 1"]  # the champion is the first
    found.close()


def test_an_index_of_another_format_is_told_and_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lake = Lake.at(str(tmp_path))
    write_index(lake, "a")
    write_index(lake, "b")
    folder = lake.index("news", "v1", "a-1")
    old = folder.read(MANIFEST).decode().replace('"format": 2', '"format": 1')
    folder.write(MANIFEST, old.encode())
    found = Archives(lake, (), lambda _: {}, ())
    assert [each.model for each in found.choices] == ["b 1"]
    assert "`multilink index` makes it anew" in caplog.text
    with pytest.raises(IntegrityError, match="found format = 1"):
        Archives(lake, (folder.uri,), lambda _: {}, ())


def test_a_look_that_fails_keeps_what_was_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "LOOK_AGAIN_S", 0.0)
    lake, asked = Lake.at(str(tmp_path)), []

    def registry(name: str) -> dict[str, str]:
        asked.append(name)
        if len(asked) > 1:
            raise BuildError("the registry is away")
        return {}

    write_index(lake, "a")
    found = Archives(lake, (), registry, ())
    deadline = time.monotonic() + 60
    while len(asked) < 3:  # it goes on asking
        assert [each.model for each in found.choices] == ["a 1"]
        assert time.monotonic() < deadline
    found.close()
