"""What training reads of versions whose shards share pictures, a document a shard: whole splits, and by position."""

from collections.abc import Sequence

import numpy as np
import pyarrow.parquet as pq

from schemas.documents import Split
from schemas.lake import Lake
from schemas.manifest import Manifest, read_manifest
from training.data.documents import ALL_SENTENCES, DocumentSet
from training.data.lake import Columns, read_split
from training.data.split import TrainingSplit

SEVERAL = ("shards.documents=1", "dedupe.policy=keep-all", "max_failure_share=1")
Shown = list[tuple[str, list[tuple[str, bytes | None]]]]  # document, and of each image place hash and picture


def check_reading(lake: Lake, manifest: Manifest, *, has_pictures: bool = True) -> int:
    """Compare what training reads of a version with its Parquet files; return how often a picture is shown again."""
    _, folder = read_manifest(lake, f"{manifest.dataset}@{manifest.version}")
    columns = Columns(jpegs=has_pictures, links=True, places=True, relations=True)
    hashes: list[str] = []
    for split in (Split(name) for name, statistics in manifest.splits.items() if statistics.documents):
        names = [entry.path for entry in manifest.parts("documents", split)]
        assert len(names) == sum(entry.rows for entry in manifest.parts("documents", split))
        expected: Shown = []
        for name in names:
            pictures = pq.read_table(folder.open(name.replace("documents/", "images/", 1))).to_pylist()
            jpegs = {row["hash"]: row["jpeg"] for row in pictures}
            rows = pq.read_table(folder.open(name)).to_pylist()
            expected += [(row["id"], [(x["hash"], jpegs[x["hash"]]) for x in row["images"]]) for row in rows]
        assert shown(read_split(manifest, folder, split, columns)) == expected
        mapped = TrainingSplit(manifest=manifest, folder=folder, split=split, columns=columns, view=ALL_SENTENCES)
        for order in orders(len(expected)):
            assert shown(mapped.documents(np.array(order))) == [expected[place] for place in order]
        hashes += [key for _, images in expected for key, _ in images]
    return len(hashes) - len(set(hashes))


def shown(documents: DocumentSet) -> Shown:
    jpegs: Sequence[bytes | None] = documents.image_jpegs or [None] * len(documents.image_hashes)
    return [
        (key, [(documents.image_hashes[row], jpegs[row]) for row in documents.image_rows[places]])
        for key, places in zip(documents.ids, documents.images, strict=True)
    ]


def orders(count: int) -> list[list[int]]:
    """Return all documents from the last to the first, and each alone: later shards show no picture of their own."""
    return [list(range(count))[::-1], *([place] for place in range(count))]
