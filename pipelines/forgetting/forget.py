"""What is named is taken out of a lake, for good: captures, copies, features, indexes, links, and rows of versions.

    captures  ->  copies, features  ->  indexes, links  ->  versions: a new one without it, then the old one goes
    (raw/)        (packs)

Versions go last but for the ledger, since they say what belongs to what is named: killed anywhere and run again, it
goes on. A version that held something is replaced by one without it, under a name of its own, and `latest` follows; its
failures, duplicates and leaks are not taken over, and links and indexes are to be made again. A reader of the old
version finds that it is gone. Captured input files of such versions go as a whole, and so does what unfinished builds
left.

No build may run meanwhile: while one does, nothing is changed.
Models are not touched here: `training.mlflow.champions` lets them be known.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.exports.subset import EmptySubsetError, RowsKept, with_values, write_subset
from pipelines.forgetting.captures import Marks, Removal, remove_captures, take_out
from pipelines.forgetting.holdings import Holding, NamedContent, find_holdings
from pipelines.packs import packs_with, remove_rows
from pipelines.raw import FILES, recover, request_key
from pipelines.shards.writing import write_rows
from pipelines.sources.takedowns import Takedowns
from pipelines.sweep import remove_version
from pipelines.turns import turn_alone
from pipelines.web.requests import FetchFailed, Kind, normalise
from schemas.document_rows import from_row, to_row
from schemas.documents import (
    AFTER_SENTENCE,
    GIVEN_LINKS,
    GIVEN_SIMILARITIES,
    IMAGE_NUMBERS,
    Image,
    ImageStatement,
    document_schema,
)
from schemas.indexes import FIELDS, PARTS, IndexManifest
from schemas.lake import DRAFTS, LATEST, MANIFEST, Folder, Lake, is_temporary
from schemas.manifest import Manifest, read_manifest
from schemas.messages import IntegrityError, Say
from schemas.raw import RETRIEVAL_SCHEMA, Retrieved, retrieval_tables
from schemas.versions import fingerprint


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """What went, or would go.

    Attributes:
        found: what is named.
        captures: of each source of the raw store.
        files: captured input files.
        packs: of copies and features, relative to the lake.
        indexes: of versions that hold nothing of it, and yet a row of a picture that an earlier version had, likewise.
        replaced: references of versions, and of what took their place ("": nothing was left).
        ledger: rows of the ledger.
    """

    found: NamedContent
    captures: tuple[Removal, ...]
    files: tuple[str, ...]
    packs: tuple[str, ...]
    indexes: tuple[str, ...]
    replaced: tuple[tuple[str, str], ...]
    ledger: int

    @property
    def is_any(self) -> bool:
        """Return whether anything was found."""
        return any((self.captures, self.files, self.packs, self.indexes, self.replaced, self.ledger))


_STATED = ("source", "licence", "metadata", "statements")  # columns of an image that follow its documents
# Columns of a document that follow its images.
_OF_IMAGES = ("images", "links", AFTER_SENTENCE, GIVEN_LINKS, GIVEN_SIMILARITIES, IMAGE_NUMBERS)


@dataclass(frozen=True, slots=True)
class _Without(RowsKept):
    """Which rows a version keeps; a document without its last image is not kept.

    Attributes:
        addresses: see `Holding`: of a shared image nothing is kept that is stated elsewhere.
    """

    documents: frozenset[str]
    gone: frozenset[str]
    addresses: Mapping[str, frozenset[str | None]]

    def rows(self, documents: pa.Table) -> pa.Table:
        """Return the rows that stay, their images, links and places renumbered where an image goes."""
        left = documents.filter(pc.invert(pc.is_in(documents["id"], pa.array(sorted(self.documents), pa.string()))))
        edited = [self._edited(row) for row in left.select(document_schema().names).to_pylist()]
        left = with_values(left, edited, _OF_IMAGES)
        return left.filter(pa.array([bool(row["images"]) for row in edited], pa.bool_()))

    def _edited(self, row: dict[str, Any]) -> dict[str, Any]:
        kept = [number for number, image in enumerate(row["images"]) if image["hash"] not in self.gone]
        return row if len(kept) == len(row["images"]) else to_row(from_row(row).with_images(kept))

    def images(self, images: pa.Table) -> pa.Table:
        """Return rows of an images part without what is stated of them in documents that go."""
        rows = images.select(["hash", *_STATED]).to_pylist()
        for row in rows:
            sources = self.addresses.get(row["hash"], frozenset[str | None]())
            if sources and row["statements"]:
                left = [each for each in row["statements"] if each["source"] in sources]
                row.update(asdict(Image(row["hash"]).with_statements(msgspec.convert(left, list[ImageStatement]))))
        return with_values(images, rows, _STATED)

    def settings(self, parent: str) -> dict[str, Any]:
        """Return what the new version says: how much went, and nothing by which it could be found."""
        entries = fingerprint([sorted(self.documents), sorted(self.gone)])
        return {
            "forgotten": {"parent": parent, "documents": len(self.documents), "images": len(self.gone), "list": entries}
        }


def forget(
    lake: Lake, takedowns: Takedowns, *, dry_run: bool, before: Callable[[NamedContent], None] | None = None, say: Say
) -> Forgotten:
    """Take what is named out of a lake, or only find it.

    `before` is called with what was found before anything of it goes; not of a dry run.

    Raises:
        HeldError: a build is under way.
    """
    with contextlib.nullcontext() if dry_run else turn_alone(lake):
        if not dry_run:
            _remove_unfinished(lake)
        say("looking for it in every version")
        found = find_holdings(lake, takedowns)
        if before is not None and not dry_run:
            before(found)
        marks = Marks(takedowns, found.images, found.addresses, found.documents | found.records)
        say("looking for it in what was captured")
        captures = tuple(remove_captures(lake.raw, marks, dry_run=dry_run))
        files = tuple(_remove_files(lake.raw, found, dry_run=dry_run))
        packs = tuple(_remove_packed(lake, found, dry_run=dry_run))
        indexes = tuple(_remove_indexes(lake, found, dry_run=dry_run))
        made = {each: lake.dataset(*each.split("@")).infos()[MANIFEST].mtime_ns for each in lake.references()}
        replaced = []
        for holding in found.holdings:
            say(f"{holding.reference}: {len(holding.documents)} documents and {len(holding.images)} images")
            new = "" if dry_run else _replace(lake, holding, found, made, say)
            replaced.append((holding.reference, new))
        rows = take_out(lake, found.documents, found.images, dry_run=dry_run)
    return Forgotten(
        found=found, captures=captures, files=files, packs=packs, indexes=indexes, replaced=tuple(replaced), ledger=rows
    )


def _remove_unfinished(lake: Lake) -> None:
    """Remove what killed programs left: folders of no version, what was made of one that is gone, drafts, half files.

    No row of it is known, so it could hold what is named; no build is under way that could still need it.
    """
    for kind in ("datasets", "retrievals", "links", "indexes"):
        top = lake.root.child(kind)
        for name in top.names():
            for version in set(top.child(name).names()) - {LATEST, *lake.versions(name)}:
                top.child(name, version).remove()
    lake.builds.child(DRAFTS).remove()
    recover(lake.raw)
    for path in [path for path in lake.root.files() if is_temporary(path)]:
        lake.root.delete(path)


def _remove_files(raw: Folder, found: NamedContent, *, dry_run: bool) -> Iterator[str]:
    """Remove captured input files of versions that hold something."""
    for url in sorted(found.inputs):
        with contextlib.suppress(FetchFailed):
            key = request_key(Kind.FILE, normalise(url))
            folder = raw.child(FILES, key[:2], key)
            if folder.exists():
                if not dry_run:
                    folder.remove()
                yield url


def _remove_packed(lake: Lake, found: NamedContent, *, dry_run: bool) -> Iterator[str]:
    """Take copies and features out of the packs; yield the packs that had any."""
    gone = {"hash": found.images, "key": found.images | found.text_keys}
    for path, folder, pack, key, keys in packs_with(lake, gone):
        if not dry_run:
            remove_rows(folder, pack, key, keys)
        yield path


def _remove_indexes(lake: Lake, found: NamedContent, *, dry_run: bool) -> Iterator[str]:
    """Remove indexes that were grown from one of another version, and have a row of an image that goes."""
    gone, versions = pa.array(sorted(found.images), pa.string()), {each.reference for each in found.holdings}
    for path in [path for path in lake.root.child("indexes").files() if path.endswith(f"/{MANIFEST}")]:
        folder = lake.index(*path.split("/")[:3])
        with contextlib.suppress(IntegrityError):  # of another format: an index had no such rows
            manifest = IndexManifest.from_json(folder.read(MANIFEST).decode(), where=folder.uri)
            if manifest.dataset not in versions and any(_has_row(folder, part, gone) for part in manifest.parts):
                if not dry_run:
                    folder.delete(MANIFEST)
                    folder.remove()
                yield f"indexes/{path.removesuffix(f'/{MANIFEST}')}"


def _has_row(folder: Folder, part: str, images: pa.Array) -> bool:
    with folder.open(f"{PARTS}/{part}/{FIELDS}") as stream:
        known = pa.ipc.open_file(stream).read_all().column("image")
    return bool(pc.any(pc.is_in(known, images)).as_py())


def _replace(lake: Lake, holding: Holding, found: NamedContent, times: dict[str, int], say: Say) -> str:
    """Put a version in the place of one that held something, and return its reference ("": nothing was left).

    Where nothing is left of the latest version, the one that was made last before it becomes the latest. A version in
    the place of another has that one's time.
    """
    manifest, folder = read_manifest(lake, holding.reference)
    was_latest = lake.latest(holding.dataset) == holding.version
    choice = _Without(found.documents, found.images, holding.addresses)
    new = None
    with contextlib.suppress(EmptySubsetError):
        new = write_subset(lake, manifest, folder, choice, say=say)
        times[f"{new.dataset}@{new.version}"] = times[holding.reference]
        _keep_times(lake, holding, found, new)
    if was_latest:
        left = [version for version in lake.versions(holding.dataset) if version != holding.version]
        left.sort(key=lambda version: times.get(f"{holding.dataset}@{version}", 0))
        if new is not None or left:
            lake.point_latest(holding.dataset, new.version if new is not None else left[-1])
        else:
            lake.root.child("datasets", holding.dataset).delete(LATEST)
    remove_version(lake, holding.dataset, holding.version)
    return "" if new is None else f"{new.dataset}@{new.version}"


def _keep_times(lake: Lake, holding: Holding, found: NamedContent, new: Manifest) -> None:
    """Write when what the new version is made of was fetched."""
    old, gone = lake.retrievals(holding.dataset, holding.version), found.documents | found.images
    target = lake.retrievals(new.dataset, new.version)
    for number, table in enumerate(retrieval_tables(old)):
        rows = table.to_pylist()
        left = [{"captured": None, **row} for row in rows if row["kind"] != Retrieved.INPUT and row["key"] not in gone]
        if left:
            write_rows(target, f"kept-{number:05d}.parquet", left, RETRIEVAL_SCHEMA)
