"""What only an evaluation reads of a split beside its documents: languages, roles, relations; pictures of a few images.

Kept apart from `training.data.reading`, which training uses too: relations are ground truth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from schemas.documents import Split
from schemas.lake import Folder
from schemas.manifest import Manifest
from training.data.reading import split_parts

_COLUMNS = (
    "id",
    "language",
    "sentences.list.element.role",
    "links.list.element.sentence",
    "links.list.element.image",
    "links.list.element.relations.list.element.name",
    "links.list.element.relations.list.element.value",
)


@dataclass(frozen=True, slots=True)
class DocumentFacts:
    """Language of a document, roles of its n sentences, and (sentence, image) -> relations of its links."""

    language: str
    roles: tuple[str, ...]
    relations: Mapping[tuple[int, int], Mapping[str, bool | None]]


def read_facts(manifest: Manifest, folder: Folder, split: Split | str) -> dict[str, DocumentFacts]:
    """Return document id -> facts of a split."""
    found = {}
    for documents, _ in split_parts(manifest, split):
        with folder.open(documents.path) as stream:
            rows = pq.ParquetFile(stream).read(columns=list(_COLUMNS)).to_pylist()
        for row in rows:
            relations = {
                (link["sentence"], link["image"]): {item["name"]: item["value"] for item in link["relations"]}
                for link in row["links"] or ()
                if link["relations"]
            }
            roles = tuple(sentence["role"] for sentence in row["sentences"])
            found[row["id"]] = DocumentFacts(row["language"], roles, relations)
    return found


def read_pictures(
    manifest: Manifest, folder: Folder, split: Split | str, hashes: Sequence[str]
) -> dict[str, bytes | None]:
    """Return content hash -> JPEG of some images of a split; None where only vectors are kept."""
    found: dict[str, bytes | None] = {}
    wanted = pa.array(sorted(set(hashes)), pa.string())
    if not len(wanted):
        return found
    for _, images in split_parts(manifest, split):
        with folder.open(images.path) as stream:
            table = pq.read_table(stream, columns=["hash", "jpeg"])
        for row in table.filter(pc.is_in(table.column("hash"), value_set=wanted)).to_pylist():
            found[row["hash"]] = row["jpeg"]
    return found
