"""What a list of takedowns names in a lake.

A document that is named goes with its images, but for those that another document shows, in any version: these stay
until they are named themselves. An image that is named goes from every document; a document without another goes too.
Documents that a build rejected are found in the ledger. A version names what its tables of failures, duplicates and
leaks have a row of. What models made of versions, links and indexes, is in folders with their names.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.forgetting.captures import find_named, versions_without_ledger
from pipelines.ledger import texts_key
from pipelines.sources.takedowns import Takedowns
from schemas.lake import MANIFEST, Folder, Lake
from schemas.manifest import Manifest, read_manifest
from schemas.parts import read_part
from schemas.raw import Retrieved, retrieval_tables

_DOCUMENT = ("id", "provenance", "sentences", "images")
_IMAGE = ("hash", "source")


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What one version holds of what is named.

    Attributes:
        documents: ids of those that go.
        images: hashes of those that go.
        links: folders of links predicted in the version, relative to the lake.
        indexes: folders of its indexes, likewise.
        addresses: of images that documents share which go with others that stay: where these others have them from.
    """

    dataset: str
    version: str
    documents: tuple[str, ...]
    images: tuple[str, ...]
    links: tuple[str, ...]
    indexes: tuple[str, ...]
    addresses: Mapping[str, frozenset[str | None]]

    @property
    def reference(self) -> str:
        return f"{self.dataset}@{self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedContent:
    """What is named in a lake.

    Attributes:
        holdings: of each version that holds or names something.
        documents: ids of all documents that go, and all ids that are named: a source may have rejected the record.
        records: ids of their records at their sources.
        images: hashes of all images that go.
        shared: hashes of images of documents that go, which others show: they stay.
        addresses: of their pages, as they were asked for, and of the images that go.
        inputs: addresses of captured files that the versions were read from.
        text_keys: of the features of the documents' sentences.
        not_covered: versions of whose builds there is no ledger.
    """

    holdings: tuple[Holding, ...]
    documents: frozenset[str]
    records: frozenset[str]
    images: frozenset[str]
    shared: frozenset[str]
    addresses: frozenset[str]
    inputs: frozenset[str]
    text_keys: frozenset[str]
    not_covered: tuple[str, ...]


@dataclass(slots=True)
class _Version:
    manifest: Manifest
    folder: Folder
    documents: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # that are named
    shown: defaultdict[str, set[str | None]] = field(default_factory=lambda: defaultdict(set))  # see `_find_shown`
    others: defaultdict[str, set[str | None]] = field(default_factory=lambda: defaultdict(set))
    images: frozenset[str] = frozenset()  # that go


def find_holdings(lake: Lake, takedowns: Takedowns) -> NamedContent:
    """Return what is named in a lake; every row of every version and of the ledger is looked at."""
    read = find_named(lake, takedowns)
    versions = [_Version(*read_manifest(lake, name)) for name in lake.references()]
    named = {key for version in versions for key in _named(version, takedowns)} | read.images
    named |= {entry.removeprefix("sha256:") for entry in takedowns.entries if entry.startswith("sha256:")}
    hashes = {image["hash"] for version in versions for row in version.documents.values() for image in row["images"]}
    hashes |= read.shown.keys()
    for version in versions:
        _find_shown(version, hashes | named)
    kept = {key for version in versions for key in version.others} | read.kept
    gone = frozenset(named | (hashes - kept))
    ids = {entry.removeprefix("id:") for entry in takedowns.entries if entry.startswith("id:")}
    documents = frozenset(read.documents.union(ids, *(version.documents for version in versions)))
    addresses = read.pages | {address for key, found in read.shown.items() if key in gone for address in found}
    for version in versions:
        version.images = gone & version.shown.keys()
        addresses.update(filter(None, (source for key in version.images for source in version.shown[key])))
    rows = [row for version in versions for row in version.documents.values()]
    addresses.update(filter(None, (row["provenance"]["url"] for row in rows)))
    holding = [version for version in versions if _holds(version, documents, gone)]
    pages, inputs = _retrieved(lake, holding)
    return NamedContent(
        holdings=tuple(_holding(lake, version) for version in holding),
        documents=documents,
        records=frozenset(read.records.union(row["provenance"]["record_id"] for row in rows)),
        images=gone,
        shared=frozenset((hashes & kept) - named),
        addresses=frozenset(addresses | pages),
        inputs=frozenset(inputs),
        text_keys=frozenset(read.texts.union(texts_key(each["text"] for each in row["sentences"]) for row in rows)),
        not_covered=tuple(versions_without_ledger(lake)),
    )


def _holds(version: _Version, documents: frozenset[str], images: frozenset[str]) -> bool:
    """Return whether a version holds what goes, or names it in one of its tables."""
    if version.documents or version.images:
        return True
    gone = pa.array(sorted(documents | images), pa.string())
    for entry in version.manifest.files:
        if entry.path.endswith(".parquet") and not entry.path.startswith(("documents/", "images/")):
            table = read_part(version.folder, entry, None)
            for column in (each for each in table.columns if each.type == pa.string()):
                if pc.any(pc.is_in(column, gone)).as_py():
                    return True
    return False


def _named(version: _Version, takedowns: Takedowns) -> Iterator[str]:
    """Yield the images of a version that are named themselves; its documents that are get into it."""
    for entry in version.manifest.parts("images"):
        for row in read_part(version.folder, entry, _IMAGE).to_pylist():
            if takedowns.matches_image(row["hash"], row["source"] or ""):
                yield row["hash"]
    for entry in version.manifest.parts("documents"):
        for row in read_part(version.folder, entry, _DOCUMENT).to_pylist():
            read = row["provenance"]
            if takedowns.matches_record((row["id"], read["record_id"]), (read["url"] or "",)):
                version.documents[row["id"]] = row
            yield from (i["hash"] for i in row["images"] if takedowns.matches_address(i["source"] or ""))


def _find_shown(version: _Version, hashes: set[str]) -> None:
    """Note of which addresses a version's documents have some images, and of which those that are not named."""
    for entry in version.manifest.parts("documents") if hashes else ():
        for row in read_part(version.folder, entry, ("id", "images")).to_pylist():
            for image in row["images"]:
                if image["hash"] in hashes:
                    version.shown[image["hash"]].add(image["source"])
                    if row["id"] not in version.documents:
                        version.others[image["hash"]].add(image["source"])


def _retrieved(lake: Lake, versions: list[_Version]) -> tuple[set[str], set[str]]:
    """Return the addresses at which pages of documents were asked for, and those of captured input files."""
    pages, inputs = set[str](), set[str]()
    for version in versions:
        for table in retrieval_tables(lake.retrievals(version.manifest.dataset, version.manifest.version)):
            for row in table.to_pylist():
                if row["kind"] == Retrieved.INPUT:
                    inputs.add(row["url"])
                elif row["kind"] == Retrieved.DOCUMENT and row["key"] in version.documents:
                    pages.update(filter(None, [row.get("captured"), row["url"]]))
    return pages, inputs


def _holding(lake: Lake, version: _Version) -> Holding:
    name = (version.manifest.dataset, version.manifest.version)
    return Holding(
        dataset=name[0],
        version=name[1],
        documents=tuple(sorted(version.documents)),
        images=tuple(sorted(version.images)),
        links=tuple(made_of(lake, "links", *name)),
        indexes=tuple(made_of(lake, "indexes", *name)),
        addresses={key: frozenset(sources) for key, sources in version.others.items()},
    )


def made_of(lake: Lake, kind: str, name: str, version: str) -> list[str]:
    """Return the folders of whole `links` or `indexes` of a version, relative to the lake."""
    folder = lake.root.child(kind, name, version)
    return [f"{kind}/{name}/{version}/{each}" for each in folder.names() if folder.child(each).exists(MANIFEST)]


def made_by_models(lake: Lake, names: Collection[str]) -> Iterator[str]:
    """Yield the folders of links and indexes, relative to the lake, that models made: `<model>-<version>`."""
    for kind in ("links", "indexes"):
        top = lake.root.child(kind)
        for dataset in top.names():
            for version in top.child(dataset).names():
                made = top.child(dataset, version).names()
                yield from (f"{kind}/{dataset}/{version}/{name}" for name in made if name in names)


def remove_made_by_models(lake: Lake, names: Collection[str]) -> list[str]:
    """Remove what models made, for good, and return the folders, relative to the lake."""
    folders = list(made_by_models(lake, names))
    for path in folders:
        folder = lake.root.child(*path.split("/"))
        if folder.exists(MANIFEST):
            folder.delete(MANIFEST)  # so that a reader does not find half of it
        folder.remove()
    return folders
