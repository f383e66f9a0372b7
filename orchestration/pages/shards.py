"""Rows of a data set version's shards that a page shows."""

import random
from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from schemas.documents import Split
from schemas.lake import Folder
from schemas.manifest import FileEntry, Manifest


def sampled(manifest: Manifest, *, count: int, seed: int, split: str = "") -> list[tuple[FileEntry, int]]:
    """Return documents at random as their part and row: the same ones for the same seed.

    Args:
        manifest: of the version.
        count: at most so many.
        seed: of the draw.
        split: of which they are; empty: of every split.
    """
    parts = [entry for each in Split if split in ("", each) for entry in manifest.parts("documents", each)]
    ends = list(accumulate(entry.rows for entry in parts))
    total = ends[-1] if ends else 0
    drawn = random.Random(seed).sample(range(total), min(count, total))
    found = []
    for number in drawn:
        place = int(np.searchsorted(ends, number, side="right"))
        found.append((parts[place], number - (ends[place] - parts[place].rows)))
    return found


def rows_at(folder: Folder, places: Sequence[tuple[FileEntry, int]], columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return some columns of rows of parts, in the given order; of a part, the row groups of those rows alone."""
    numbers: defaultdict[FileEntry, list[int]] = defaultdict(list)
    for entry, number in places:
        numbers[entry].append(number)
    found: dict[tuple[FileEntry, int], dict[str, Any]] = {}
    for entry, rows in numbers.items():
        with folder.open(entry.path) as stream:
            file = pq.ParquetFile(stream)
            ends = list(accumulate(file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)))
            for row in rows:
                group = int(np.searchsorted(ends, row, side="right"))
                start = ends[group - 1] if group else 0
                table = file.read_row_group(group, columns=list(columns)).slice(row - start, 1)
                found[entry, row] = table.to_pylist()[0]
    return [found[place] for place in places]
