"""Rows of a data set version's shards: at random, by the part and the id of documents, by their numbers and titles."""

import logging
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from schemas.documents import Split
from schemas.lake import Folder
from schemas.manifest import FileEntry, Manifest
from schemas.messages import IntegrityError
from training.data.mapped import Arrays, content_of, mapped
from training.data.ragged import Int64

IDS_KEPT = 256  # parts whose ids are held
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


def place_of(folder: Folder, parts: Iterable[FileEntry], path: str, document: str) -> Place | None:
    """Return the part and the row of a document in the part of a path; None: it is not there."""
    part = next((entry for entry in parts if entry.path == path), None)
    row = -1 if part is None else int(pc.index(_ids(folder, path), document).as_py())
    return (part, row) if part is not None and row >= 0 else None


@lru_cache(IDS_KEPT)
def _ids(folder: Folder, path: str) -> pa.ChunkedArray:
    with folder.open(path) as stream:
        return pq.read_table(stream, columns=["id"]).column(0)


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


def titled(
    manifest: Manifest, folder: Folder, *, containing: str = "", by_title: bool = False
) -> tuple[Sequence[FileEntry], Int64]:
    """Return parts, and the numbers in these (`row_of`) of the documents whose first text contains a text.

    The case of letters makes no difference.

    Args:
        manifest: of the version.
        folder: of it.
        containing: "": every document.
        by_title: whether they are sorted by their first texts; else as they are stored.
    """
    parts = [entry for split in Split for entry in manifest.parts("documents", split)]
    if not parts:
        return parts, np.zeros(0, np.int64)
    titles = mapped(f"{content_of(parts)}-titles", lambda: _titles(folder, parts))["title"]
    rows = np.arange(len(titles))
    if containing:
        rows = np.flatnonzero(pc.match_substring(titles, containing, ignore_case=True).to_numpy(zero_copy_only=False))
    if by_title:
        rows = rows[pc.array_sort_indices(pc.utf8_lower(titles.take(pa.array(rows)))).to_numpy()]
    return parts, rows


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
