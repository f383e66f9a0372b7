"""Writing a version in a format that other projects read: `multilink datasets export`.

    <target>/README.md     the card: what it is, how it is read
    <target>/...           the files of the format (`formats.py`)
    <target>/export.json   written last: the version, the format, and every file with its size, rows and SHA-256

One shard is in memory at a time. An export's folder is empty or holds an earlier export, which the new one replaces
once it is there as a whole, in a folder inside.

Lance names its files at random and writes the time into a version's manifest: of all formats it alone gives other bytes
each time. Its rows are the same. It writes to its own kind of storage, so a data set is made in a scratch folder and
copied to where it is wanted, which may be any store that a lake may be on.
"""

import dataclasses
import json
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from pipelines.card.card import README, render
from pipelines.card.show import split_lines
from pipelines.exports.formats import FORMATS, ROW_SCHEMA, ROWS_PER_GROUP, document_row
from pipelines.exports.reading import Shard, shards_of
from pipelines.shards.writing import groups_of, write_file
from schemas.console import Say
from schemas.errors import UsageError
from schemas.lake import Folder, inner_path
from schemas.manifest import FileEntry, Manifest

EXPORT = "export.json"
LANCE = "lance"
NAMES = (*FORMATS, LANCE)
_SCRATCH = ".export-"  # begins the name of the folder that an export is made in


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """What an export is: the content of its `export.json`."""

    dataset: str
    version: str
    format: str
    files: tuple[FileEntry, ...]

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def export_version(manifest: Manifest, folder: Folder, target: Folder, *, form: str, say: Say) -> Export:
    """Write a version into a folder in a format, with a card.

    Args:
        manifest: of the version.
        folder: of the version.
        target: where it goes.
        form: one of `NAMES`.
        say: receives a line of progress a shard.

    Raises:
        UsageError: there is no such format, the folder holds something else, or what writes the format is not
            installed.
        IntegrityError: a part of the version is damaged.
    """
    if form not in NAMES:
        raise UsageError(f"--to {form}: expected one of {', '.join(NAMES)}")
    shards = list(shards_of(manifest))
    earlier = _earlier(target)
    scratch = target.child(f"{_SCRATCH}{uuid.uuid4().hex}")
    written = list(_written(shards, folder, scratch, form, say))
    export = Export(
        dataset=manifest.dataset,
        version=manifest.version,
        format=form,
        files=(*written, _write_text(scratch, README, _card(manifest, shards, form))),
    )
    new = {entry.path for entry in export.files}
    target.write(EXPORT, json.dumps({"files": [{"path": path} for path in sorted(earlier | new)]}).encode())
    for path in sorted(new):
        scratch.move(path, target)
    for path in earlier - new:
        target.delete(path)
    scratch.remove()
    target.write(EXPORT, (json.dumps(export.to_json(), indent=1) + "\n").encode())
    return export


def _earlier(target: Folder) -> set[str]:
    """Return the paths of an earlier export; what a killed one left in its folder is removed."""
    for name in target.names():
        if name.startswith(_SCRATCH):
            target.child(name).remove()
    there = list(target.files())
    if there and EXPORT not in there:
        raise UsageError(f"{target.uri}: expected an empty folder or an earlier export, found {there[0]}")
    return {inner_path(entry["path"]) for entry in json.loads(target.read(EXPORT))["files"]} if there else set()


def _written(shards: Sequence[Shard], folder: Folder, target: Folder, form: str, say: Say) -> Iterator[FileEntry]:
    if form == LANCE:
        for split, of_split in groupby(shards, attrgetter("split")):
            say(f"writing {split}.lance")
            yield from write_lance(of_split, folder, target, f"{split}.lance")
        return
    for number, shard in enumerate(shards, start=1):
        paths = [path.format(shard.name) for path in FORMATS[form].paths]
        yield from FORMATS[form].write(list(shard.read(folder)), target, paths)
        say(f"{number} of {len(shards)} shards: {paths[0]}")


def _write_text(target: Folder, path: str, text: str) -> FileEntry:
    return write_file(target, path, lambda stream: 0 * stream.write(text.encode()))


def _card(manifest: Manifest, shards: Sequence[Shard], form: str) -> str:
    patterns = {
        split: f"{split}.lance" if form == LANCE else FORMATS[form].paths[0].format(f"{split}-*")
        for split in dict.fromkeys(shard.split for shard in shards)
    }
    return render(
        "export.md.j2",
        manifest=manifest,
        form=form,
        patterns=patterns,
        is_on_hub=form != LANCE,
        statistics=split_lines(manifest),
    )


def write_lance(shards: Iterable[Shard], source: Folder, target: Folder, name: str) -> list[FileEntry]:
    """Write shards as one Lance data set, named `name`, in a folder, with the columns of `hf`.

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
        files = sorted(path for path in made.rglob("*") if path.is_file())
        return [_copied(path, target, f"{name}/{path.relative_to(made).as_posix()}") for path in files]


def _batches(shards: Iterable[Shard], source: Folder) -> Iterator[pa.RecordBatch]:
    for shard in shards:
        for some in groups_of(list(shard.read(source)), ROWS_PER_GROUP):
            yield from pa.Table.from_pylist(list(map(document_row, some)), ROW_SCHEMA).to_batches()


def _copied(path: Path, target: Folder, name: str) -> FileEntry:
    def write(stream: BinaryIO) -> int:
        with path.open("rb") as data:
            shutil.copyfileobj(data, stream)
        return 0

    return write_file(target, name, write)
