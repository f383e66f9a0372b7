"""What a build found in a data set version: clusters of near-duplicates and leaks between splits, a page at a time."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.card.duplicates import cluster_of, find_copies
from schemas.duplicates import DUPLICATE_SCHEMA, LEAK_SCHEMA, LeakKind
from schemas.lake import Folder, Lake
from schemas.manifest import Manifest, table_parts

IMAGES_COMPARED = 1_000  # of a cluster, each with each
IMAGE_LEAKS = pa.array([LeakKind.EXACT_IMAGE, LeakKind.NEAR_IMAGE], pa.string())


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstPair:
    """The two images of a cluster that are least alike, and the bits between their fingerprints."""

    first: str
    second: str
    distance: int


def clusters(
    manifest: Manifest, folder: Folder, lake: Lake, *, start: int, count: int
) -> tuple[int, list[dict[str, Any]]]:
    """Return how many clusters a version has, and some: those whose images differ most from their nearest first.

    Each is that of `pipelines.card.duplicates.cluster_of`, with its `worst` pair: None where it is one image that
    occurs several times, or fingerprints are gone from the lake.
    """
    rows = _table(manifest, folder, "duplicates", DUPLICATE_SCHEMA)
    sizes = rows.group_by("cluster").aggregate([("distance", "max"), ([], "count_all")])
    keys = [("distance_max", "descending"), ("count_all", "descending"), ("cluster", "ascending")]
    names = sizes.sort_by(keys).slice(start, count).column("cluster").to_pylist()
    found = []
    for name in names:
        own = rows.filter(pc.equal(rows.column("cluster"), name))
        images = sorted(pc.unique(own.column("image")).to_pylist())[:IMAGES_COMPARED]
        found.append(cluster_of(name, own) | {"worst": worst_pair(find_copies(lake, images, "fingerprint"))})
    return sizes.num_rows, found


def leak_kinds(manifest: Manifest, folder: Folder) -> dict[str, int]:
    """Return how many leaks of each kind a version has."""
    kinds = _table(manifest, folder, "leaks", LEAK_SCHEMA).column("kind").value_counts().to_pylist()
    return {row["values"]: row["counts"] for row in sorted(kinds, key=lambda row: str(row["values"]))}


def leaks(manifest: Manifest, folder: Folder, *, kind: str, start: int, count: int) -> tuple[int, list[dict[str, Any]]]:
    """Return how many leaks of a kind there are (empty: of any), and some of them."""
    rows = _table(manifest, folder, "leaks", LEAK_SCHEMA)
    if kind:
        rows = rows.filter(pc.equal(rows.column("kind"), kind))
    ordered = rows.sort_by([("kind", "ascending"), ("key", "ascending")])
    return rows.num_rows, ordered.slice(start, count).to_pylist()


def pictures_of(manifest: Manifest, folder: Folder, records: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the images for which documents were left out, by record: copies of others', or shared by splits."""
    found: dict[str, tuple[str, ...]] = {}
    wanted = pa.array(sorted({*records}), pa.string())
    for name, schema, column in (("duplicates", DUPLICATE_SCHEMA, "image"), ("leaks", LEAK_SCHEMA, "key")):
        rows = _table(manifest, folder, name, schema)
        rows = rows.filter(pc.is_in(rows.column("document"), wanted))
        is_shown = rows.column("is_dropped") if name == "duplicates" else pc.is_in(rows.column("kind"), IMAGE_LEAKS)
        for row in rows.filter(is_shown).select(["document", column]).to_pylist():
            found[row["document"]] = tuple(dict.fromkeys([*found.get(row["document"], ()), row[column]]))
    return found


def _table(manifest: Manifest, folder: Folder, name: str, schema: pa.Schema) -> pa.Table:
    parts = (part.select(schema.names).cast(schema) for part in table_parts(manifest, folder, name))
    return pa.concat_tables([schema.empty_table(), *parts])


def worst_pair(fingerprints: Mapping[str, str]) -> WorstPair | None:
    """Return the two of some images whose 64-bit fingerprints (hexadecimal, by content hash) differ in most bits."""
    names = sorted(fingerprints)
    if len(names) < 2:
        return None
    codes = np.array([int(fingerprints[name], 16) for name in names], np.uint64)
    bits = np.bitwise_count(codes[:, None] ^ codes[None, :])
    first, second = np.unravel_index(int(bits.argmax()), bits.shape)
    return WorstPair(first=names[first], second=names[second], distance=int(bits[first, second]))
