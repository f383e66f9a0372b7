"""The format `lance`: a Lance data set a split, with the columns of `hf`.

Lance names its files at random and writes the time into a version's manifest: of all formats it alone gives other bytes
each time. Its rows are the same. It writes to its own kind of storage, so a data set is made in a scratch folder and
copied to where it is wanted, which may be any store that a lake may be on.
"""

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from pipelines.exports.formats import ROW_SCHEMA, ROWS_PER_GROUP, document_row
from pipelines.exports.reading import Shard
from pipelines.shards.writing import groups_of, write_file
from schemas.errors import UsageError
from schemas.lake import Folder
from schemas.manifest import FileEntry


def write_lance(shards: Iterable[Shard], source: Folder, target: Folder, name: str) -> list[FileEntry]:
    """Write shards as one Lance data set, named `name`, in a folder.

    Raises:
        UsageError: Lance is not installed.
    """
    try:
        import lance
    except ModuleNotFoundError as problem:
        raise UsageError("--to lance: needs pylance: install multilink with the extra lance") from problem
    with tempfile.TemporaryDirectory(prefix="multilink-lance-") as scratch:
        made = Path(scratch, name)
        lance.write_dataset(pa.RecordBatchReader.from_batches(ROW_SCHEMA, _batches(shards, source)), str(made))
        return [_copied(path, target, f"{name}/{path.relative_to(made).as_posix()}") for path in _files(made)]


def _batches(shards: Iterable[Shard], source: Folder) -> Iterator[pa.RecordBatch]:
    for shard in shards:
        for some in groups_of(list(shard.read(source)), ROWS_PER_GROUP):
            yield from pa.Table.from_pylist(list(map(document_row, some)), ROW_SCHEMA).to_batches()


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _copied(path: Path, target: Folder, name: str) -> FileEntry:
    def write(stream: BinaryIO) -> int:
        with path.open("rb") as data:
            shutil.copyfileobj(data, stream)
        return 0

    return write_file(target, name, write)
