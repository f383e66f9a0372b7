"""What writes a version holds its data set, so that nothing is deleted from the lake meanwhile."""

from pathlib import Path
from typing import Any

import pytest

from pipelines.exports.export import replicate
from pipelines.exports.reading import read_shard, shards_of
from pipelines.exports.subset import write_labelled
from pipelines.forgetting.forget import forget
from pipelines.sources.takedowns import parse_takedowns
from schemas.lake import Lake
from schemas.leases import HeldError
from schemas.manifest import read_manifest, verify


def test_what_deletes_waits_for_copies_subsets_and_labelled_sets(built: Any, tmp_path: Path) -> None:
    """Each holds the data set that it writes: what deletes from the lake is refused meanwhile, at each of its files."""
    lake, refused = Lake.at(str(tmp_path / "lake")), list[str]()

    def deleting(line: str) -> None:
        with pytest.raises(HeldError):
            forget(lake, parse_takedowns([b"id:a"], name="list"), dry_run=False, say=lambda _: None)
        refused.append(line)

    replicate(built.lake, built.reference, lake, say=deleting)
    manifest, folder = read_manifest(lake, "documents")
    labels = {row.row["id"]: {0: 0} for shard in shards_of(manifest) for row in read_shard(shard, folder)}
    write_labelled(lake, manifest, folder, labels, "people", say=deleting)
    assert any("files" in line for line in refused) and any("shards" in line for line in refused)
    assert list(verify(*read_manifest(lake, "documents"))) == []
    assert read_manifest(lake, "people")[0].dataset == "people"
