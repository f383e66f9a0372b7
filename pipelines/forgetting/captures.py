"""What is forgotten, in the raw store and in the ledger: found there, and taken out.

A capture goes where its address or its digest is named, or where it is an API's answer about several records that names
one of them: it is asked for again. The ledger says at which addresses a record's pages were asked for. Of a listing of
Reddit the record goes.

A segment is written again without its records, byte for byte else, under a name of as early a time, and so is every
index that points into it; then the old ones go. Done again after a kill the names are the same.

    segment     | info | record a | record b | record c |         b goes
    becomes     | info | record a | record c |                    c is found at another offset

The ledger knows what is named beyond versions: documents that none holds among them.

    named documents -> their addresses -> hashes of their images -> others that show these

Within a build an address gave one image; another build may have had another one there, or another folder. What a build
that was killed had captured and not yet noted is known by the index of what was captured.
"""

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import compress, zip_longest
from typing import Any

import pyarrow.parquet as pq

from pipelines.ledger import VERSIONS, LedgerRow, Read, append
from pipelines.raw import (
    SUFFIX,
    closed_segments,
    index_of,
    index_rows,
    read_body,
    sources_of,
    write_index,
)
from pipelines.sources.takedowns import Takedowns, url_key
from schemas.lake import Folder, Lake
from schemas.raw import RawEntry
from schemas.tables import read_columns

LISTINGS = ("reddit", "listings")  # which are no segments
_OF_ORIGINS = ("robots", "well-known")
_API = "api"
_CONTINUED = re.compile(r"&\w*continue=[^&]*")  # what an address of MediaWiki's interface has where an answer goes on
_IDS = ("id", "pageid", "title")  # of a record in an answer


@dataclass(frozen=True)
class Marks:
    """What captures are recognised by.

    Attributes:
        takedowns: entries whose addresses are named.
        digests: SHA-256 of bodies.
        addresses: of pages and images.
        records: ids of documents and of their records.
    """

    takedowns: Takedowns
    digests: frozenset[str] = frozenset()
    addresses: frozenset[str] = frozenset()
    records: frozenset[str] = frozenset()

    @cached_property
    def _keys(self) -> frozenset[str]:
        return frozenset(filter(None, map(url_key, self.addresses)))

    def name(self, entry: RawEntry) -> bool:
        """Return whether an entry is named by its digest or its addresses; files of whole hosts never are."""
        if entry.kind in _OF_ORIGINS:
            return False
        places = (_CONTINUED.sub("", entry.url), entry.final_url or "")
        is_ours = any(url_key(place) in self._keys for place in places if place)
        return entry.digest in self.digests or is_ours or self.takedowns.matches_address(*places) is not None

    def hold(self, entry: RawEntry, record: bytes) -> bool:
        """Return whether the record of an entry is to go."""
        return self.name(entry) or (entry.kind == _API and self._is_in(_json(read_body(record))))

    def record(self, fields: Mapping[str, Any]) -> bool:
        """Return whether the fields of a record in an answer are those of one that is to go."""
        ids = [str(fields[name]) for name in _IDS if fields.get(name)]
        places = [str(fields.get("url") or ""), f"https://www.reddit.com{fields.get('permalink')}"]
        return not self.records.isdisjoint(ids) or self.takedowns.matches_record(ids, places) is not None

    def _is_in(self, found: Any) -> bool:
        if isinstance(found, list):
            return any(map(self._is_in, found))
        return isinstance(found, dict) and (self.record(found) or any(map(self._is_in, found.values())))

    def new_name(self, segment: str) -> str:
        """Return the name of what is left of a segment: of the same time, and of what is taken out."""
        parts = [segment, *sorted(self.digests), *sorted(self.addresses), *self.takedowns.entries]
        return f"{segment.partition('-')[0]}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:8]}"


@dataclass(frozen=True, slots=True)
class Removal:
    """What goes of a source: records, and rows of indexes that have none (failures, answers found unchanged)."""

    source: str
    records: int
    rows: int


def remove_captures(raw: Folder, marks: Marks, *, dry_run: bool) -> Iterator[Removal]:
    """Take captures out of the raw store, or only find them; yield what went of each source that had any."""
    for source in sources_of(raw):
        folder = raw.child(source)
        removal, affected = _find(source, folder, marks)
        if removal.records or removal.rows:
            if not dry_run:
                _rewrite(folder, marks, affected)
            yield removal
    yield from _remove_listed(raw.child(*LISTINGS), marks, dry_run=dry_run)


def _remove_listed(folder: Folder, marks: Marks, *, dry_run: bool) -> Iterator[Removal]:
    """Take records out of kept listings."""
    for name in folder.names():
        kept = json.loads(folder.read(name))
        left = [record for record in kept["submissions"] if not marks.record(record)]
        if gone := len(kept["submissions"]) - len(left):
            if not dry_run:
                folder.write(name, json.dumps({**kept, "submissions": left}, ensure_ascii=False, indent=1).encode())
            yield Removal("/".join((*LISTINGS, name)), gone, 0)


def captured_images(raw: Folder, wanted: Collection[str], takedowns: Takedowns) -> dict[str, set[str]]:
    """Return the digests of captured images by the keys of their addresses (`url_key`).

    Args:
        raw: the raw store.
        wanted: keys of addresses.
        takedowns: what is named; images whose address is, are under the key "".
    """
    found = defaultdict[str, set[str]](set)
    for _, row in index_rows(raw, ("kind", "url", "final_url", "digest")):
        if row["kind"] == "image" and row["digest"]:
            places = (row["url"], row["final_url"] or "")
            keys = {*(key for place in places if (key := url_key(place)) in wanted)}
            for key in keys | ({""} if takedowns.matches_address(*places) else set()):
                found[key].add(row["digest"])
    return found


def _find(source: str, folder: Folder, marks: Marks) -> tuple[Removal, set[str]]:
    """Return what goes, and the segments that are to be written again with their indexes.

    An answer that was found unchanged has a row in a later index: that index changes with the segment it points into.
    """
    points, affected, records, rows = dict[str, set[str]](), set[str](), 0, 0
    for segment in sorted(closed_segments(folder)):
        entries = _entries(folder, segment)
        points[segment] = {entry.segment for entry in entries if entry.segment}
        without = sum(marks.name(entry) and entry.segment != segment for entry in entries)
        is_read = bool(marks.records) and any(entry.kind == _API for entry in entries)
        gone = 0
        if without or is_read or any(map(marks.name, entries)):
            gone = sum(marks.hold(*each) for each in _records(*_segment(folder, segment)))
        if gone or without:
            affected.add(segment)
        records, rows = records + gone, rows + without
    while more := {name for name, ends in points.items() if name not in affected and ends & affected}:
        affected |= more
    return Removal(source, records, rows), affected


def _rewrite(folder: Folder, marks: Marks, affected: set[str]) -> None:
    moved = {segment: _write_segment(folder, marks, segment) for segment in sorted(affected)}
    for segment in sorted(affected):
        entries = [left for entry in _entries(folder, segment) if (left := _left(entry, marks, moved)) is not None]
        name = marks.new_name(segment)
        if (entries or moved[segment]) and not folder.exists(f"index/{name}.parquet"):  # of a call that was killed
            write_index(folder, name, entries)
    for segment in sorted(affected):  # an index first: a segment without one goes when this is done again
        folder.delete(f"index/{segment}.parquet")
    for segment in sorted(affected):
        folder.delete(f"{segment}{SUFFIX}")


def _left(entry: RawEntry, marks: Marks, moved: Mapping[str, Mapping[int, int]]) -> RawEntry | None:
    """Return an entry as it is from now on, None where it goes."""
    if marks.name(entry):
        return None
    offsets = moved.get(entry.segment or "")
    if offsets is None or entry.segment is None:
        return entry
    if entry.offset not in offsets:
        return None
    return replace(entry, segment=marks.new_name(entry.segment), offset=offsets[entry.offset])


def _write_segment(folder: Folder, marks: Marks, segment: str) -> dict[int, int]:
    """Write what is left of a segment; return where each record that stays is now, by where it was."""
    data, entries = _segment(folder, segment)
    at = entries[0].offset if entries else 0
    pieces, offsets = [data[:at]], dict[int, int]()
    for entry, record in _records(data, entries):
        if not marks.hold(entry, record):
            offsets[entry.offset] = at
            pieces.append(record)
            at += len(record)
    if offsets:
        folder.write(f"{marks.new_name(segment)}{SUFFIX}", b"".join(pieces))
    return offsets


def _entries(folder: Folder, segment: str) -> list[RawEntry]:
    """Return the rows of a segment's index, which may lack a column that came later."""
    return [RawEntry(**row) for row in read_columns(index_of(folder).folder, f"{segment}.parquet").to_pylist()]


def _segment(folder: Folder, segment: str) -> tuple[bytes, list[RawEntry]]:
    """Return a segment's bytes, and the row of each answer in it, in their order; nothing where it has no answer."""
    if not folder.exists(f"{segment}{SUFFIX}"):
        return b"", []
    rows = {entry.offset: entry for entry in _entries(folder, segment) if entry.segment == segment}
    return folder.read(f"{segment}{SUFFIX}"), [rows[offset] for offset in sorted(rows)]


def _records(data: bytes, entries: Iterable[RawEntry]) -> Iterator[tuple[RawEntry, bytes]]:
    for entry in entries:
        yield entry, data[entry.offset : entry.offset + entry.length]


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


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
        embedded.update(
            (*build, address)
            for address, source in pairs
            if takedowns.matches_image(source.removeprefix("sha256:"), source)
        )
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
            left = [
                _without(
                    row,
                    [
                        (*build, address) not in ways and source.removeprefix("sha256:") not in images
                        for address, source in zip_longest(row["addresses"], row["sources"], fillvalue="")
                    ],
                )
                for row in stay
            ]
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
