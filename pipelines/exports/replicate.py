"""Copies of versions in a second lake, each byte checked: `multilink datasets replicate`.

Files go one after the other; each is digested on its way and must be what the manifest says. The manifest is written
last, by a conditional request where the store has them, so that a version is there whole or not at all. What a stopped
run copied is digested where it lies and not copied again. `retrievals/` goes along, and what the other lake knows of
its own build of the version stays; answers of hosts, packs, links and indexes do not go.
"""

import io
import shutil
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.card.card import write_cards
from pipelines.shards.writing import write_file, write_part
from pipelines.turns import turn_of_build
from schemas.console import Say
from schemas.errors import IntegrityError, UsageError
from schemas.lake import Folder, Lake
from schemas.manifest import FileEntry, check_same, commit, read_manifest
from schemas.versions import digest_stream

_PIECE_BYTES = 1 << 20


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
    def write(stream: BinaryIO) -> int:
        try:
            with origin.open(entry.path) as data:
                shutil.copyfileobj(data, stream, _PIECE_BYTES)
        except FileNotFoundError as problem:
            raise IntegrityError(f"{origin.uri}/{entry.path}: missing, though the manifest names it") from problem
        return entry.rows

    if (found := write_file(copy, entry.path, write)) != entry:
        copy.delete(entry.path)
        raise IntegrityError(
            f"{origin.uri}/{entry.path}: SHA-256 {found.sha256[:16]}..., the manifest has {entry.sha256[:16]}..."
        )
