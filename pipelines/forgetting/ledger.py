"""What the ledger of a lake says of what is named: documents that no version holds among them.

    named documents -> their addresses -> hashes of their images -> others that show these

Within a build an address gave one image; another build may have had another one there, or another folder. What a build
that was killed had captured and not yet noted is known by the index of what was captured.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import pyarrow.parquet as pq

from pipelines.forgetting.captures import captured_images
from pipelines.ledger import VERSIONS, LedgerRow, Read, append
from pipelines.sources.takedowns import Takedowns, url_key
from schemas.lake import Folder, Lake
from schemas.tables import read_columns

Row = dict[str, Any]
Place = tuple[str, str, str]  # data set, build, address


@dataclass(frozen=True, slots=True)
class Named:
    """What is named, as the ledger knows it.

    Attributes:
        documents: ids.
        records: ids of their records.
        texts: keys of the features of their sentences.
        pages: addresses of their pages.
        shown: addresses of their images, by hash.
        kept: those hashes that other documents show.
        images: hashes of images that are named themselves.
    """

    documents: set[str] = field(default_factory=set)
    records: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)
    pages: set[str] = field(default_factory=set)
    shown: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    kept: set[str] = field(default_factory=set)
    images: set[str] = field(default_factory=set)


def find_named(lake: Lake, takedowns: Takedowns) -> Named:
    """Return what is named, by five readings of the ledger; what is held is what is named, and its addresses."""
    named = Named()
    wanted, embedded = _find_documents(lake, takedowns, named)
    captured = captured_images(lake.raw, {url_key(address) for *_, address in wanted}, takedowns)
    named.images.update(captured.pop("", ()))
    for *_, address in wanted:
        for digest in captured.get(url_key(address), ()):
            named.shown[digest].add(address)
    for build, row in _rows(lake, Read.IMAGE):
        if (*build, row["url"]) in wanted:
            named.shown[row["key"]].add(row["url"])
        if takedowns.matches_address(row["url"]) or (*build, row["url"]) in embedded:
            named.images.add(row["key"])
    if named.shown:
        _find_kept(lake, takedowns, named, captured)
    return named


def _find_documents(lake: Lake, takedowns: Takedowns, named: Named) -> tuple[set[Place], set[Place]]:
    """Find the documents that are named; return where their images are, and those that are named in files."""
    wanted, embedded = set[Place](), set[Place]()
    for build, row in _rows(lake, Read.DOCUMENT):
        if _is_named(row, takedowns):
            named.documents.add(row["key"])
            named.records.update(filter(None, [row["record"]]))
            named.texts.update(filter(None, [row["text"]]))
            named.pages.update(filter(None, (row["url"], row["captured"])))
            wanted.update((*build, address) for address in row["addresses"])
        pairs = zip(row["addresses"], row["sources"], strict=False)
        embedded.update((*build, address) for address, source in pairs if takedowns.matches_address(source))
    for _, row in _rows(lake, Read.DOCUMENT) if named.records else ():
        if row["text"] is None and row["key"] in named.records:  # of a record whose document has another id
            named.documents.add(row["key"])
            named.pages.add(row["captured"])
    return wanted, embedded


def _find_kept(lake: Lake, takedowns: Takedowns, named: Named, captured: Mapping[str, set[str]]) -> None:
    """Find which of the images that are shown other documents show."""
    ways = defaultdict[Place, set[str]](set)
    for build, row in _rows(lake, Read.IMAGE):
        if row["key"] in named.shown:
            ways[*build, row["url"]].add(row["key"])
    for build, row in _rows(lake, Read.DOCUMENT):
        for address in row["addresses"] if not _is_named(row, takedowns) else ():
            there = ways.get((*build, address)) or captured.get(url_key(address), set())
            named.kept.update(there & named.shown.keys())


def take_out(lake: Lake, documents: frozenset[str], images: frozenset[str], *, dry_run: bool) -> int:
    """Rewrite the ledger without the removed rows and the addresses of their images; return their number."""
    count = 0
    ways = {(*build, row["url"]) for build, row in _rows(lake, Read.IMAGE) if row["key"] in images}
    for build, folder in _folders(lake):
        for name in list(folder.files()):
            rows = read_columns(folder, name).to_pylist()
            stay = [row for row in rows if row["key"] not in (documents if row["kind"] == Read.DOCUMENT else images)]
            left = [_without(row, [(*build, address) not in ways for address in row["addresses"]]) for row in stay]
            count += len(rows) - len(stay)
            if left != rows and not dry_run:
                append(folder, (LedgerRow(**row) for row in left))  # under a name of its content
                folder.delete(name)
    return count


def versions_without_ledger(lake: Lake) -> list[str]:
    """Return the versions that a build made of which there is no ledger: what it rejected is not known."""
    found = list[str]()
    for name in lake.dataset_names():
        known = {*lake.root.child("ledger", name).names(), *lake.ledger(name, VERSIONS).names()}
        found += [f"{name}@{version}" for version in lake.versions(name) if version not in known]
    return found


def _without(row: Row, stays: list[bool]) -> Row:
    return row | {name: list(compress(row[name], stays)) for name in ("addresses", "sources")}


def _is_named(row: Row, takedowns: Takedowns) -> bool:
    pages = (row["url"] or "", row["captured"] or "")
    return takedowns.matches_record((row["key"], row["record"] or ""), pages) is not None


def _rows(lake: Lake, kind: Read) -> Iterator[tuple[tuple[str, str], Row]]:
    """Yield the rows of one kind, each with its data set and build."""
    for build, folder in _folders(lake):
        for name in folder.files():
            with folder.open(name) as stream:
                for batch in pq.ParquetFile(stream).iter_batches():
                    yield from ((build, row) for row in batch.to_pylist() if row["kind"] == kind)


def _folders(lake: Lake) -> Iterator[tuple[tuple[str, str], Folder]]:
    for dataset in lake.root.child("ledger").names():
        for build in lake.root.child("ledger", dataset).names():
            if build != VERSIONS:
                yield (dataset, build), lake.ledger(dataset, build)
