"""A version that two lakes built, each at its own time, meets `replicate`: what both know of it stays."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pairs.world import World, check, forget_no_failure, replicate, serving

from schemas.lake import Folder, Lake


def rows(lake: Lake, version: str) -> dict[str, list[dict[str, Any]]]:
    folder = lake.retrievals("documents", version)
    return {path: pq.read_table(folder.open(path)).to_pylist() for path in folder.files()}


def put_back(folder: Folder, path: str) -> None:
    """Let what a file says have been fetched an hour before."""
    table = pq.read_table(folder.open(path))
    position = table.schema.get_field_index("retrieved")
    earlier = [moment - timedelta(hours=1) for moment in table["retrieved"].to_pylist()]
    table = table.set_column(
        position, table.schema.field(position), pa.array(earlier, table.schema.field(position).type)
    )
    with folder.create(path) as sink:
        pq.write_table(table, sink.stream)
        sink.commit()


def test_the_times_and_failures_of_both_lakes_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget_no_failure(monkeypatch)
    with serving() as host:
        world = World(tmp_path, host, monkeypatch)
        version = world.build().manifest.version
        host.luck = 0  # another failure that is luck
        assert world.build(world.second).manifest.version == version
        target = world.second.retrievals("documents", version)
        for path in [path for path in target.files() if not path.startswith("unreached/")]:
            put_back(target, path)
        here, there = rows(world.lake, version), rows(world.second, version)
        replicate(world)
        merged = rows(world.second, version)
        assert here.keys() | there.keys() == merged.keys()
        for path, found in merged.items():
            known = [*here.get(path, ()), *there.get(path, ())]
            assert all(row in found for row in known) and all(row in known for row in found)
            assert len(found) == len({repr(row) for row in known}) > len(here[path])
        replicate(world)
        assert rows(world.second, version) == merged
        check(world)
