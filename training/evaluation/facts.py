"""What only an evaluation reads of a split beside its documents: relations of links, pictures of a few images.

Kept apart from `training.data.lake`, which training uses too: relations are ground truth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from schemas.documents import Split
from schemas.lake import Folder
from schemas.manifest import Manifest
from training.data.lake import read_part, split_parts

_COLUMNS = (
    "id",
    "links.list.element.sentence",
    "links.list.element.image",
    "links.list.element.relations.list.element.name",
    "links.list.element.relations.list.element.value",
)
Relations = Mapping[tuple[int, int], Mapping[str, bool | None]]


def read_relations(manifest: Manifest, folder: Folder, split: Split | str) -> dict[str, Relations]:
    """Return document id -> (sentence, image) -> relations of its links, of a split."""
    return {
        row["id"]: {
            (link["sentence"], link["image"]): {item["name"]: item["value"] for item in link["relations"]}
            for link in row["links"] or ()
            if link["relations"]
        }
        for documents, _ in split_parts(manifest, split)
        for row in read_part(folder, documents, _COLUMNS).to_pylist()
    }


def read_pictures(
    manifest: Manifest, folder: Folder, split: Split | str, hashes: Sequence[str]
) -> dict[str, bytes | None]:
    """Return content hash -> JPEG of some images of a split; None where only vectors are kept."""
    found: dict[str, bytes | None] = {}
    wanted = pa.array(sorted(set(hashes)), pa.string())
    if not len(wanted):
        return found
    for _, images in split_parts(manifest, split):
        table = read_part(folder, images, ["hash", "jpeg"])
        for row in table.filter(pc.is_in(table.column("hash"), value_set=wanted)).to_pylist():
            found[row["hash"]] = row["jpeg"]
    return found
