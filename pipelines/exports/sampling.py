"""Some documents of a version, drawn at random by their ids and a seed: the same draw on every machine."""

from collections.abc import Collection
from heapq import nsmallest

from pipelines.exports.reading import Shard, ShownDocument, shards_of
from pipelines.sources.draws import hashed
from schemas.documents import Split
from schemas.lake import Folder
from schemas.manifest import Manifest
from schemas.parts import read_part


def sample_of(
    manifest: Manifest, folder: Folder, *, count: int, seed: int, splits: Collection[Split] = tuple(Split)
) -> list[ShownDocument]:
    """Return at most `count` documents of some splits, in the order of the draw; only their shards are read whole."""
    shards = [shard for shard in shards_of(manifest) if shard.split in splits]
    drawn = nsmallest(
        count, (draw for number, shard in enumerate(shards) for draw in _draws(folder, shard, number, seed))
    )
    found = {}
    for number in sorted({number for _, _, number in drawn}):
        wanted = {key for _, key, shard in drawn if shard == number}
        found.update({each.row["id"]: each for each in shards[number].read(folder) if each.row["id"] in wanted})
    return [found[key] for _, key, _ in drawn]


def _draws(folder: Folder, shard: Shard, number: int, seed: int) -> list[tuple[int, str, int]]:
    ids = read_part(folder, shard.documents, ["id"])["id"].to_pylist()
    return [(hashed(seed, "sample", key), key, number) for key in ids]
