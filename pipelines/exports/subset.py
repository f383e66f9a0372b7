"""A true subset of a version, as a version of its own: `multilink datasets subset`.

Which documents are in a share follows from their ids: a tenth is within a fifth, whatever the version, and documents
keep their splits. Every column of theirs goes along, features included, and of the images exactly those they show.
Shards of the parent become shards of about the wanted size, neighbours together; rows are not computed again.

The manifest's settings name the parent (`subset`), and so does an input. What the build left out, its duplicates and
its leaks are the parent's to tell.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.card.card import write_cards
from pipelines.exports.reading import shards_of
from pipelines.settings import ShardsConfig
from pipelines.shards.writing import ROWS_PER_GROUP, DocumentSize, part_name, size_of, summarise, write_part
from pipelines.sources.draws import hashed
from pipelines.turns import turn_of_build
from schemas.document_rows import from_row, to_row
from schemas.documents import Link, Split, document_schema, image_schema, indexes
from schemas.lake import MANIFEST, Folder, Lake, check_name
from schemas.manifest import COPIES, FileEntry, Manifest, commit, read_manifest, version_name
from schemas.messages import Say, UsageError
from schemas.parts import Shard, read_part
from schemas.versions import fingerprint, reached_digest

IDS_SHOWN = 10  # in the message about those that are unknown
_DRAW = "subset"  # its own draw: that of splits would take whole splits


class EmptySubsetError(UsageError):
    """No document is in a subset."""


class RowsKept(ABC):
    """Which documents of a version another one has."""

    @abstractmethod
    def rows(self, documents: pa.Table) -> pa.Table:
        """Return the rows of a documents part that are in it, perhaps without some of their images."""
        ...

    def images(self, images: pa.Table) -> pa.Table:
        """Return rows of an images part as the new version has them: by default as the old one does."""
        return images

    @abstractmethod
    def settings(self, parent: str) -> dict[str, Any]:
        """Return what the settings of the new version say of it, given the reference of the old one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection(RowsKept):
    """Which documents are in a subset.

    Attributes:
        share: of the documents, 0 to 1.
        ids: those from which the share is taken; None: all.
    """

    share: float = 1.0
    ids: frozenset[str] | None = None

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise UsageError(f"--share {self.share:g}: expected more than 0, and at most 1")
        if self.share == 1 and self.ids is None:
            raise UsageError("subset: expected --share or --ids")

    def rows(self, documents: pa.Table) -> pa.Table:
        """Return the rows of a documents part that are in the subset."""
        chosen = [
            (self.ids is None or key in self.ids) and hashed(0, _DRAW, key) < self.share * 2**64
            for key in documents["id"].to_pylist()
        ]
        return documents.filter(pa.array(chosen, pa.bool_()))

    def settings(self, parent: str) -> dict[str, Any]:
        """Return what the settings of a subset say of it."""
        ids = None if self.ids is None else fingerprint(sorted(self.ids))
        return {"subset": {"parent": parent, "share": self.share, "ids": ids}}


def read_ids(path: str, manifest: Manifest, folder: Folder) -> frozenset[str]:
    """Return the ids of documents of a version from a file with one a line.

    Raises:
        UsageError: the file is not UTF-8, or the version lacks some of its ids.
    """
    try:
        ids = frozenset(Path(path).read_text(encoding="utf-8-sig").split("\n")) - {""}
    except UnicodeDecodeError as problem:
        raise UsageError(f"--ids {path}: expected UTF-8, found byte {problem.start} that is not") from problem
    parts = (read_part(folder, entry, ["id"])["id"].to_pylist() for entry in manifest.parts("documents"))
    if unknown := sorted(ids.difference(*parts)):
        shown = ", ".join(map(repr, unknown[:IDS_SHOWN])) + ", ..." * (len(unknown) > IDS_SHOWN)
        raise UsageError(f"--ids {path}: {len(unknown)} of {len(ids)} ids are not in {manifest.reference}: {shown}")
    return ids


def write_subset(
    lake: Lake, manifest: Manifest, folder: Folder, selection: RowsKept, *, name: str = "", say: Say
) -> Manifest:
    """Write a subset of a version beside it, or as a data set of another name; `latest` stays where it is.

    Returns its manifest.

    Raises:
        EmptySubsetError: no document is in it.
        IntegrityError: a part of the version is damaged.
    """
    chosen = dataclasses.replace(_draft(manifest, selection), dataset=check_name(name or manifest.dataset))
    target = lake.dataset(chosen.dataset, chosen.version)
    if target.exists(MANIFEST):
        return Manifest.from_json(target.read(MANIFEST).decode())
    groups = {split: list(_groups(manifest, folder, selection, split)) for split in Split}
    if not any(groups.values()):
        raise EmptySubsetError(f"no document of {manifest.dataset}@{manifest.version} is in this subset")
    files, statistics = list[FileEntry](), {}
    for split, shards in groups.items():
        sizes, hashes = Counter[DocumentSize](), set[str]()
        for index, some in enumerate(shards):
            name = part_name(index, len(shards))
            documents, images = _rows(manifest, folder, selection, some)
            files += [
                _written(
                    target, f"documents/{split}/{name}", documents, document_schema(manifest.columns("documents"))
                ),
                _written(target, f"images/{split}/{name}", images, image_schema(manifest.columns("images"))),
            ]
            sizes.update(size_of(from_row(row)) for row in documents.select(document_schema().names).to_pylist())
            hashes.update(images["hash"].to_pylist())
            say(f"{split}: {index + 1} of {len(shards)} shards, {sum(sizes.values())} documents")
        statistics[str(split)] = summarise(sizes, len(hashes))
    chosen = dataclasses.replace(chosen, files=tuple(sorted(files)), splits=statistics)
    write_cards(target, chosen)
    commit(lake, chosen, is_latest=False)
    return chosen


def _draft(parent: Manifest, selection: RowsKept) -> Manifest:
    """Return the manifest of a subset without its files and statistics."""
    deciding: dict[str, Any] = {
        "config": {
            **parent.config,
            **selection.settings(f"{parent.dataset}@{parent.version}"),
        },
        "inputs": {
            **parent.inputs,
            "code": reached_digest(__name__, beside="pipelines.card"),
            "parent": fingerprint(sorted(entry.sha256 for entry in parent.files)),
        },
        "schema_versions": parent.schema_versions,
    }
    return dataclasses.replace(
        parent,
        version=version_name(**deciding),
        files=(),
        splits={},
        failures={},
        stages={},
        notes={name: note for name, note in parent.notes.items() if name == COPIES},
        **deciding,
    )


def _groups(manifest: Manifest, folder: Folder, selection: RowsKept, split: Split) -> Iterator[list[Shard]]:
    """Yield neighbouring shards of a split that together have as many chosen documents as a shard should."""
    wanted = manifest.config.get("shards", {}).get("documents", ShardsConfig().documents)
    group, count = list[Shard](), 0
    for shard in (shard for shard in shards_of(manifest) if shard.split == split):
        found = len(selection.rows(_part(folder, shard.documents, document_schema())))
        if found and count + found > wanted and group:
            yield group
            group, count = [], 0
        if found:
            group, count = [*group, shard], count + found
    if group:
        yield group


def _rows(
    manifest: Manifest, folder: Folder, selection: RowsKept, shards: Iterable[Shard]
) -> tuple[pa.Table, pa.Table]:
    """Return the chosen documents of some shards, by id, and each of their images once, by hash."""
    documents, images = list[pa.Table](), list[pa.Table]()
    for shard in shards:
        rows = selection.rows(_part(folder, shard.documents, document_schema(manifest.columns("documents"))))
        shown = pa.array({image["hash"] for images in rows["images"].to_pylist() for image in images}, pa.string())
        part = _part(folder, shard.images, image_schema(manifest.columns("images")))
        documents.append(rows)
        images.append(selection.images(part.filter(pc.is_in(part["hash"], shown))))
    by_id, by_hash = pa.concat_tables(documents), pa.concat_tables(images)
    _, once = np.unique(by_hash["hash"].to_numpy(zero_copy_only=False).astype(str), return_index=True)
    return by_id.take(pc.sort_indices(by_id["id"])), by_hash.take(pa.array(once))


def _part(folder: Folder, entry: FileEntry, schema: pa.Schema) -> pa.Table:
    """Return a part with every column of a schema; one that was added since is null where the part lacks it."""
    table = read_part(folder, entry, schema.names, schema)
    for field in (field for field in schema if field.name not in table.schema.names):
        table = table.append_column(field, pa.nulls(len(table), field.type))
    return table.select(schema.names).cast(schema)


def with_values(table: pa.Table, rows: Sequence[Mapping[str, Any]], names: Iterable[str]) -> pa.Table:
    """Return a table with the values of rows in some columns."""
    for name in names:
        position = table.schema.get_field_index(name)
        column = table.schema.field(position)
        table = table.set_column(position, column, pa.array([row[name] for row in rows], column.type))
    return table


def _written(target: Folder, path: str, table: pa.Table, schema: pa.Schema) -> FileEntry:
    groups = (table.slice(start, ROWS_PER_GROUP) for start in range(0, len(table), ROWS_PER_GROUP))
    return write_part(target, path, groups, schema)


def subset_lines(manifest: Manifest, parent: Manifest) -> Sequence[str]:
    """Return in words what a subset is."""
    counts = {split: (row.documents, parent.splits[split].documents) for split, row in manifest.splits.items()}
    counted = ", ".join(f"{split} {some} of {all_} documents" for split, (some, all_) in counts.items())
    return [f"{manifest.dataset}@{manifest.version}: {counted}", f"of {parent.dataset}@{parent.version}"]


Labels = Mapping[str, Mapping[int, int | None]]  # document -> index of an image -> number of its sentence, or none


@dataclass(frozen=True, slots=True)
class _Labelled(RowsKept):
    """Which rows the data set has, and their links."""

    labels: Labels

    def rows(self, documents: pa.Table) -> pa.Table:
        """Return the labelled documents with their labelled images, linked by their labels."""
        own = documents.filter(pc.is_in(documents["id"], pa.array(sorted(self.labels), pa.string())))
        names = document_schema().names
        return with_values(own, [self._linked(row) for row in own.select(names).to_pylist()], names)

    def _linked(self, row: dict[str, Any]) -> dict[str, Any]:
        labels = self.labels[row["id"]]
        kept, document = sorted(labels), from_row(row)
        texts = indexes(document.sentence_numbers or range(len(document.sentences)))
        links = tuple(Link(texts[text], new) for new, old in enumerate(kept) if (text := labels[old]) is not None)
        return to_row(replace(document.with_images(kept), links=links))

    def settings(self, parent: str) -> dict[str, Any]:
        """Return what the settings of the data set say of it."""
        answers = [[name, sorted(own.items())] for name, own in sorted(self.labels.items())]
        return {"labelled": {"parent": parent, "answers": fingerprint(answers)}}


def write_labelled(lake: Lake, manifest: Manifest, folder: Folder, labels: Labels, name: str, *, say: Say) -> Manifest:
    """Write the labelled images of a version as the newest version of a data set of another name.

    Raises:
        EmptySubsetError: nothing is labelled.
        UsageError: there is a data set of that name that was not made of labels.
    """
    if name in lake.dataset_names() and "labelled" not in read_manifest(lake, name)[0].config:
        raise UsageError(f"--as {name}: a data set of this name is there, and was not made of labels")
    with turn_of_build(lake, name, say):
        written = write_subset(lake, manifest, folder, _Labelled(labels), name=name, say=say)
        lake.point_latest(name, written.version)
    return written
