"""Packs that are put together when a build ends meet forgetting and copies in a second lake."""

from pathlib import Path

import pytest
from pairs.world import World, check, forget, forget_no_failure, replicate, serving

from pipelines import packs, run
from schemas.lake import MANIFEST, Folder, Lake


def copies(world: World) -> list[str]:
    return [path for path in world.lake.images.files() if path.endswith(".parquet")]


def test_packs_that_were_put_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their versions are copied and built again where they are copied to; what is forgotten is in none of them."""
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
        replicate(world)
        check(world)
        assert world.second.versions("documents") == world.lake.versions("documents")
        assert not [*world.second.images.files()]
        there, here = world.build(world.second), world.build()
        assert there.manifest.version == here.manifest.version and there.is_reused
        check(world)
        forget(world)
        check(world)
        assert len(copies(world)) == 1
        fresh = world.build(Lake.at(str(tmp_path / "fresh")))
        assert Folder(world.build().path).read(MANIFEST) == Folder(fresh.path).read(MANIFEST)
