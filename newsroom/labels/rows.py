"""Rows of a data set version's shards: at random, by the ids of documents, by their numbers, by their titles.

Where a document is follows from an index of 16 bytes a document: the first 8 bytes of a digest of its id, sorted, with
its part and its row. That of a split is made when a document of it is first looked for, and mapped from then on
(`training.data.mapped`).
"""

import hashlib
import logging
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from schemas.documents import Split
from schemas.errors import IntegrityError
from schemas.lake import Folder
from schemas.manifest import FileEntry, Manifest
from training.data.mapped import Arrays, content_of, mapped, numbers
from training.data.ragged import Int64

INDEXES_KEPT = 16
KEY_BYTES = 8
Place = tuple[FileEntry, int]  # a documents part, and a row of it
T = TypeVar("T")
Read = TypeVar("Read")
log = logging.getLogger("multilink.pages")


def readable(things: Iterable[T], read: Callable[[T], Read], *, remedy: str) -> Iterator[Read]:
    """Yield what is read of each; what is damaged, or of another version of this program, is left out with a warning.

    Args:
        things: to read.
        read: raises an `IntegrityError` for what it cannot read.
        remedy: end of the warning: what makes such a thing again.
    """
    for thing in things:
        try:
            yield read(thing)
        except IntegrityError as problem:
            _warn_once(f"{problem}; {remedy}")


@cache
def _warn_once(line: str) -> None:
    log.warning(line)  # lists are read again and again


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


def titled(manifest: Manifest, folder: Folder, *, containing: str = "", by_title: bool = False) -> Sequence[Place]:
    """Return the documents whose first text contains a text, whatever the case of letters.

    Args:
        manifest: of the version.
        folder: of it.
        containing: "": every document.
        by_title: whether they are sorted by their first texts; else as they are stored.
    """
    parts = [entry for split in Split for entry in manifest.parts("documents", split)]
    if not parts:
        return ()
    titles = mapped(f"{content_of(parts)}-titles", lambda: _titles(folder, parts))["title"]
    rows = np.arange(len(titles))
    if containing:
        rows = np.flatnonzero(pc.match_substring(titles, containing, ignore_case=True).to_numpy(zero_copy_only=False))
    if by_title:
        rows = rows[pc.array_sort_indices(pc.utf8_lower(titles.take(pa.array(rows)))).to_numpy()]
    return _Places(parts, rows)


@dataclass(frozen=True, slots=True)
class _Places(Sequence[Place]):
    """Documents by their numbers in parts that follow one another."""

    parts: Sequence[FileEntry]
    rows: Int64

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, at: Any) -> Any:
        found = self.rows[at].tolist()
        return [row_of(self.parts, row) for row in found] if isinstance(at, slice) else row_of(self.parts, found)


def _titles(folder: Folder, parts: Sequence[FileEntry]) -> Arrays:
    """Return the first text of each document, part after part."""
    titles = list[pa.Array]()
    for entry in parts:
        with folder.open(entry.path) as stream:
            texts = pq.ParquetFile(stream).read(columns=["sentences.list.element.text"]).column(0)
        for chunk in texts.chunks:
            is_empty = pc.equal(pc.list_value_length(chunk), 0).to_numpy(zero_copy_only=False)
            first = pa.array(chunk.offsets.to_numpy()[:-1], mask=is_empty)
            titles.append(pc.struct_field(chunk.values, "text").take(first).fill_null("").cast(pa.large_string()))
    return {"title": pa.concat_arrays(titles)}


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
