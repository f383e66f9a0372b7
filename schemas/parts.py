"""Parts of a data set version as a reader meets them: in pairs, each checked against the manifest first."""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from schemas.documents import Split
from schemas.errors import IntegrityError, NotFoundError
from schemas.lake import Folder
from schemas.manifest import FileEntry, Manifest
from schemas.tables import check_schema
from schemas.versions import digest_stream

_VERIFIED_PARTS = 65_536  # remembered as checked


class Shard(NamedTuple):
    """A documents part of a split, and the images part of equal number, which has the images that those show."""

    documents: FileEntry
    images: FileEntry

    @property
    def split(self) -> str:
        return self.documents.path.split("/")[-2]

    @property
    def name(self) -> str:
        """Return the name of its parts in the folder of the split."""
        return part_name(self.documents)

    def path(self, folder: str) -> str:
        """Return the path that a file made of the shard has in a folder."""
        return f"{folder}/{self.split}/{self.name}"


def split_parts(manifest: Manifest, split: Split | str) -> list[Shard]:
    """Return a split's shards, in order.

    Raises:
        NotFoundError: the data set version has no part in that split.
        IntegrityError: a documents part has no images part beside it.
    """
    documents, images = manifest.parts("documents", split), manifest.parts("images", split)
    if not documents:
        there = ", ".join(sorted(name for name, each in manifest.splits.items() if each.documents)) or "none"
        raise NotFoundError(f"{manifest.dataset}@{manifest.version} has no split '{split}'; splits: {there}")
    if [part_name(entry) for entry in documents] != [part_name(entry) for entry in images]:
        raise IntegrityError(f"{manifest.dataset}@{manifest.version}, {split}: documents and images parts do not pair")
    return list(map(Shard, documents, images))


def sampled(manifest: Manifest, documents: int) -> Manifest:
    """Return a manifest whose splits are cut to their first shards, of at most so many documents, at least one shard.

    Which shard a document is in follows from a hash of its id, so the first shards are a random sample of the split.

    Args:
        manifest: of the whole version.
        documents: of a split; 0: all.
    """
    left_out: set[str] = set()
    for split in manifest.splits if documents else ():
        shards = split_parts(manifest, split) if manifest.parts("documents", split) else []
        totals = accumulate(shard.documents.rows for shard in shards)
        beyond = [shard for shard, total in zip(shards, totals, strict=True) if total > documents]
        left_out.update(entry.path for shard in beyond if shard != shards[0] for entry in shard)
    if not left_out:
        return manifest
    return replace(manifest, files=tuple(entry for entry in manifest.files if entry.path not in left_out))


def part_name(entry: FileEntry) -> str:
    """Return the name of a part in the folder of its split."""
    return entry.path.rsplit("/", 1)[-1]


def read_part(
    folder: Folder,
    entry: FileEntry,
    columns: Sequence[str] | None,
    schema: pa.Schema | None = None,
    rows: Sequence[int] | None = None,
) -> pa.Table:
    """Return some columns of a part, all for None, after its bytes, its schema and its number of rows were checked.

    Args:
        folder: of the version.
        entry: of the part.
        columns: None: all.
        schema: that the part must have.
        rows: that are wanted, in order; only their row groups are read. None: all.

    Raises:
        IntegrityError: the part is damaged, or not of this schema.
    """
    _verify(folder, entry)
    with folder.open(entry.path) as stream:
        file = pq.ParquetFile(stream)
        if schema is not None:
            check_schema(file.schema_arrow, schema, where=entry.path)
        if file.metadata.num_rows != entry.rows:
            raise IntegrityError(f"{entry.path}: {file.metadata.num_rows} rows, the manifest says {entry.rows}")
        names = columns if columns is None else list(columns)
        return file.read(columns=names) if rows is None else _read_rows(file, names, rows)


def _read_rows(file: pq.ParquetFile, columns: list[str] | None, rows: Sequence[int]) -> pa.Table:
    sizes = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
    ends = np.cumsum(sizes, dtype=np.int64)
    wanted = np.asarray(rows, np.int64)
    groups, place = np.unique(np.searchsorted(ends, wanted, side="right"), return_inverse=True)
    read = np.take(sizes, groups)
    not_read = ends[groups] - np.cumsum(read)  # rows before each group
    return file.read_row_groups(groups.tolist(), columns=columns).take(wanted - not_read[place])


def rows_where(
    folder: Folder, part: FileEntry, columns: Sequence[str], wanted: Sequence[str], schema: pa.Schema | None = None
) -> list[dict[str, Any]]:
    """Return the rows of a part whose first column is one of some texts."""
    table = read_part(folder, part, columns, schema)
    rows: list[dict[str, Any]] = table.filter(pc.is_in(table.column(0), pa.array(wanted, pa.string()))).to_pylist()
    return rows


@lru_cache(_VERIFIED_PARTS)
def _verify(folder: Folder, entry: FileEntry) -> None:
    """Raise an `IntegrityError` where a file is not there or its bytes are not those the manifest names.

    Of an object store, which keeps checksums of its own, no more is read than what is asked for: the size is compared.
    """
    try:
        with folder.open(entry.path) as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(0)
            digest = entry.sha256 if folder.local is None and size == entry.bytes else digest_stream(stream)
    except FileNotFoundError as problem:
        raise IntegrityError(f"{folder.uri}/{entry.path}: missing, though the manifest names it") from problem
    if digest != entry.sha256:
        raise IntegrityError(
            f"{folder.uri}/{entry.path}: damaged: SHA-256 {digest[:16]}..., the manifest says {entry.sha256[:16]}...; "
            "`multilink datasets verify` names every damaged file"
        )
