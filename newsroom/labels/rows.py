"""Rows of a data set version's shards: at random, by the ids of documents, by their numbers.

Where a document is follows from an index of 16 bytes a document: the first 8 bytes of a digest of its id, sorted, with
its part and its row. That of a split is made when a document of it is first looked for, and mapped from then on
(`training.data.mapped`).
"""

import hashlib
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from schemas.documents import Split
from schemas.lake import Folder
from schemas.manifest import FileEntry, Manifest
from training.data.mapped import Arrays, content_of, mapped, numbers

INDEXES_KEPT = 16
KEY_BYTES = 8
Place = tuple[FileEntry, int]  # a documents part, and a row of it


def sampled(manifest: Manifest, *, count: int, seed: int, split: str = "") -> list[Place]:
    """Return documents at random as their part and row: the same ones for the same seed.

    Args:
        manifest: of the version.
        count: at most so many.
        seed: of the draw.
        split: of which they are; empty: of every split.
    """
    parts = [entry for each in Split if split in ("", each) for entry in manifest.parts("documents", each)]
    total = sum(entry.rows for entry in parts)
    return [row_of(parts, number) for number in random.Random(seed).sample(range(total), min(count, total))]


def row_of(parts: Sequence[FileEntry], number: int) -> Place:
    """Return the part and the row of a document by its number in parts that follow one another."""
    ends = list(accumulate(entry.rows for entry in parts))
    place = int(np.searchsorted(ends, number, side="right"))
    return parts[place], number - (ends[place] - parts[place].rows)


def find_documents(manifest: Manifest, folder: Folder, ids: Iterable[str]) -> dict[str, Place]:
    """Return the part and the row of documents by id; those that the version has not are left out."""
    wanted, found = {*ids}, dict[str, Place]()
    for split in Split:
        if parts := tuple(manifest.parts("documents", split)):
            found |= _find(folder, parts, wanted - found.keys())
    return found


def _find(folder: Folder, parts: Sequence[FileEntry], ids: Iterable[str]) -> dict[str, Place]:
    index = _index(folder, tuple(parts))
    keys, places, rows = (numbers(index[name]) for name in ("key", "part", "row"))
    found: dict[str, Place] = {}
    for name in ids:
        start, end = (int(np.searchsorted(keys, _key(name), side=side)) for side in ("left", "right"))
        candidates = [(parts[places[at]], int(rows[at])) for at in range(start, end)]
        texts = rows_at(folder, candidates, ["id"])  # a digest of 8 bytes may be another id's
        found.update((name, place) for place, row in zip(candidates, texts, strict=True) if row["id"] == name)
    return found


def rows_at(folder: Folder, places: Sequence[Place], columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return some columns of rows of parts, in the given order; of a part, the row groups of those rows alone."""
    wanted: defaultdict[FileEntry, list[int]] = defaultdict(list)
    for entry, number in places:
        wanted[entry].append(number)
    found: dict[Place, dict[str, Any]] = {}
    for entry, rows in wanted.items():
        with folder.open(entry.path) as stream:
            file = pq.ParquetFile(stream)
            ends = list(accumulate(file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)))
            groups = np.searchsorted(ends, rows, side="right")
            for group in np.unique(groups).tolist():
                table, start = file.read_row_group(group, columns=list(columns)), ends[group - 1] if group else 0
                own = [row for row, of in zip(rows, groups, strict=True) if of == group]
                values = table.take([row - start for row in own]).to_pylist()
                found |= {(entry, row): value for row, value in zip(own, values, strict=True)}
    return [found[place] for place in places]


@lru_cache(INDEXES_KEPT)
def _index(folder: Folder, parts: tuple[FileEntry, ...]) -> Mapping[str, pa.Array]:
    return mapped(f"{content_of(parts)}-places", lambda: _indexed(folder, parts))


def _indexed(folder: Folder, parts: Sequence[FileEntry]) -> Arrays:
    """Return the index of a split's documents, part after part."""
    keys, places, rows = [], [], []
    for number, entry in enumerate(parts):
        with folder.open(entry.path) as stream:
            names = pq.read_table(stream, columns=["id"]).column(0).to_pylist()
        keys.append(np.array([_key(name) for name in names], np.uint64))
        places.append(np.full(len(names), number, np.uint32))
        rows.append(np.arange(len(names), dtype=np.uint32))
    order = np.argsort(key := np.concatenate(keys), kind="stable")
    return {
        "key": pa.array(key[order]),
        "part": pa.array(np.concatenate(places)[order]),
        "row": pa.array(np.concatenate(rows)[order]),
    }


def _key(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=KEY_BYTES).digest(), "big")
