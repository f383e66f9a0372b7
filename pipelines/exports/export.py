"""A version elsewhere: in a format that other projects read, and in a second lake.

`multilink datasets export`:

    <target>/README.md     the card: what it is, how it is read
    <target>/...           the files of the format (`formats.py`)
    <target>/export.json   written last: the version, the format, and every file with its size, rows and SHA-256

One shard is in memory at a time. The folder of an export must be empty: no file is replaced. Without `export.json` an
export is not complete.

Lance names its files at random and writes the time into a version's manifest: of all formats it alone gives other bytes
each time. Its rows are the same. It writes to its own kind of storage, so a data set is made in a scratch folder and
copied to where it is wanted, which may be any store that a lake may be on.

`multilink datasets replicate`: files go one after the other; each is digested on its way and must be what the manifest
says. The manifest is written last, by a conditional request where the store has them, so that a version is there whole
or not at all. What a stopped run copied is digested where it lies and not copied again. `retrievals/` goes along, and
what the other lake knows of its own build of the version stays; answers of hosts, packs, links and indexes do not go.
"""

import dataclasses
import io
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.card.card import README, render, write_cards
from pipelines.card.show import split_lines
from pipelines.exports.formats import FORMATS, ROW_SCHEMA, ROWS_PER_GROUP, document_row
from pipelines.exports.reading import read_shard, shards_of
from pipelines.shards.writing import groups_of, write_file, write_part
from pipelines.turns import turn_of_build
from schemas.lake import Folder, Lake
from schemas.manifest import FileEntry, Manifest, check_same, commit, read_manifest
from schemas.messages import IntegrityError, Say, UsageError
from schemas.parts import Shard
from schemas.versions import digest_stream

EXPORT = "export.json"
LANCE = "lance"
NAMES = (*FORMATS, LANCE)
_PIECE_BYTES = 1 << 20  # copied at once


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
        target: an empty folder, or one that is not there yet.
        form: one of `NAMES`.
        say: receives a line of progress a shard.

    Raises:
        UsageError: there is no such format, the folder is not empty, or what writes the format is not installed.
        IntegrityError: a part of the version is damaged.
    """
    if form not in NAMES:
        raise UsageError(f"--to {form}: expected one of {', '.join(NAMES)}")
    if found := ["a file"] if target.local and target.local.is_file() else target.names():
        raise UsageError(
            f"{target.uri}: expected an empty folder, found {found[0]}; name another folder, or delete what is there, "
            "such as an earlier or unfinished export"
        )
    shards = list(shards_of(manifest))
    written = list(_written(shards, folder, target, form, say))
    card = _card(manifest, shards, form).encode()
    export = Export(
        dataset=manifest.dataset,
        version=manifest.version,
        format=form,
        files=(*written, write_file(target, README, lambda stream: 0 * stream.write(card))),
    )
    target.write(EXPORT, (json.dumps(export.to_json(), indent=1) + "\n").encode())
    return export


def _written(shards: Sequence[Shard], folder: Folder, target: Folder, form: str, say: Say) -> Iterator[FileEntry]:
    if form == LANCE:
        for split, of_split in groupby(shards, attrgetter("split")):
            say(f"writing {split}.lance")
            yield from write_lance(of_split, folder, target, f"{split}.lance")
        return
    for number, shard in enumerate(shards, start=1):
        stem = f"{shard.split}-{shard.name.removeprefix('part-').removesuffix('.parquet')}"
        paths = [path.format(stem) for path in FORMATS[form].paths]
        yield from FORMATS[form].write(list(read_shard(shard, folder)), target, paths)
        say(f"{number} of {len(shards)} shards: {paths[0]}")


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
        made = Folder(scratch).child(name)
        lance.write_dataset(pa.RecordBatchReader.from_batches(ROW_SCHEMA, _batches(shards, source)), made.uri)
        return [_copied(partial(made.open, path), target, f"{name}/{path}") for path in made.files()]


def _batches(shards: Iterable[Shard], source: Folder) -> Iterator[pa.RecordBatch]:
    for shard in shards:
        for some in groups_of(list(read_shard(shard, source)), ROWS_PER_GROUP):
            yield from pa.Table.from_pylist(list(map(document_row, some)), ROW_SCHEMA).to_batches()


def _copied(opened: Callable[[], BinaryIO], target: Folder, name: str, rows: int = 0) -> FileEntry:
    """Copy a file into a folder; return the entry of the copy."""

    def write(stream: BinaryIO) -> int:
        with opened() as data:
            shutil.copyfileobj(data, stream, _PIECE_BYTES)
        return rows

    return write_file(target, name, write)


@dataclass(frozen=True, slots=True)
class Replica:
    """What became of a version: how many of its files were copied, and how many were there."""

    version: str
    copied: int
    bytes: int
    there: int


def replicate(source: Lake, reference: str, target: Lake, *, say: Say) -> list[Replica]:
    """Copy a version (NAME@VERSION), or all versions of a data set (NAME), to another lake.

    `latest` of the other lake moves where all versions are copied, or where it has none.

    Raises:
        UsageError: both lakes are one.
        IntegrityError: a file is not what its manifest says, or the other lake has another version of this name.
    """
    if source.root.uri.rstrip("/") == target.root.uri.rstrip("/"):
        raise UsageError(f"replicate: {target.root.uri} is the lake itself; expected another one")
    name, version = source.find(reference)
    is_all = "@" not in reference
    with turn_of_build(target, name, say):
        replicas = [
            _replicate(source, name, each, target, say) for each in (source.versions(name) if is_all else [version])
        ]
        if is_all or not target.latest(name):
            target.point_latest(name, version)
    return replicas


def _replicate(source: Lake, name: str, version: str, target: Lake, say: Say) -> Replica:
    manifest, origin = read_manifest(source, f"{name}@{version}")
    copy = target.dataset(name, version)
    check_same(manifest, copy)
    there = {path: info.size for path, info in copy.infos().items()}
    missing = [entry for entry in manifest.files if not _is_there(entry, copy, there)]
    for number, entry in enumerate(missing, start=1):
        _copy(entry, origin, copy)
        say(f"{name}@{version}: {number} of {len(missing)} files: {entry.path}")
    times, copied = source.retrievals(name, version), target.retrievals(name, version)
    for path in times.files():
        _copy_times(path, times, copied)
    write_cards(copy, manifest)
    commit(target, manifest, is_latest=False)
    return Replica(version, len(missing), sum(entry.bytes for entry in missing), len(manifest.files) - len(missing))


def _copy_times(path: str, times: Folder, copied: Folder) -> None:
    """Copy a table of `retrievals/`; where the other lake has one of its own, its rows stay, too."""
    data = times.read(path)
    if not copied.exists(path) or copied.read(path) == data:
        copied.settle(path, data)
        return
    every = pa.concat_tables(pq.read_table(io.BytesIO(each)) for each in (copied.read(path), data))
    once = every.group_by(every.column_names, use_threads=False).aggregate([])
    ordered = once.sort_by([(name, "ascending") for name in every.column_names])
    write_part(copied, path, [ordered.cast(every.schema)], every.schema)


def _is_there(entry: FileEntry, copy: Folder, sizes: dict[str, int]) -> bool:
    if sizes.get(entry.path) != entry.bytes:
        return False
    with copy.open(entry.path) as stream:
        return digest_stream(stream) == entry.sha256


def _copy(entry: FileEntry, origin: Folder, copy: Folder) -> None:
    try:
        found = _copied(partial(origin.open, entry.path), copy, entry.path, entry.rows)
    except FileNotFoundError as problem:
        raise IntegrityError(f"{origin.uri}/{entry.path}: missing, though the manifest names it") from problem
    if found != entry:
        copy.delete(entry.path)
        raise IntegrityError(
            f"{origin.uri}/{entry.path}: SHA-256 {found.sha256[:16]}..., the manifest has {entry.sha256[:16]}..."
        )
