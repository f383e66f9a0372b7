"""Packs that are put together when a build ends meet forgetting and copies in a second lake."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pairs.world import World, check, forget, forget_no_failure, replicate, serving

from pipelines import packs, run
from schemas.lake import MANIFEST, Folder, Lake


@pytest.fixture
def merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Give a world whose packs of copies, of several builds, were put together."""
    forget_no_failure(monkeypatch)
    with serving() as host:
        world = World(tmp_path, host, monkeypatch)
        world.build()
        world.change(changed=frozenset({"A", "book#3"}))
        world.build()
        before = copies(world)
        for module in (packs, run):
            monkeypatch.setattr(module, "MANY", 1)
        world.change(settings=frozenset({"splits.seed=5"}))
        world.build()
        assert len(before) > 1 and len(copies(world)) == 1
        yield world


def copies(world: World) -> list[str]:
    return [path for path in world.lake.images.files() if path.endswith(".parquet")]


def test_what_is_forgotten_is_in_no_merged_pack(merged: World, tmp_path: Path) -> None:
    check(merged)
    forget(merged)
    check(merged)
    assert len(copies(merged)) == 1
    fresh = merged.build(Lake.at(str(tmp_path / "fresh")))
    assert Folder(merged.build().path).read(MANIFEST) == Folder(fresh.path).read(MANIFEST)


def test_versions_of_merged_packs_are_copied_and_built_again_where_they_are_copied_to(merged: World) -> None:
    replicate(merged)
    check(merged)
    assert merged.second.versions("documents") == merged.lake.versions("documents")
    assert not [*merged.second.images.files()]
    there, here = merged.build(merged.second), merged.build()
    assert there.manifest.version == here.manifest.version and there.is_reused
    check(merged)
