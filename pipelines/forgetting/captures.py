"""Captures of what is forgotten: found in the raw store, and taken out of it, a source's segments at a time.

A capture goes where its address or its digest is named, or where it is a page or an API's answer that holds nearly all
of the text of a document: pages are not always known by their addresses. Runs of words are compared, sentence by
sentence; a document with few of them is not recognised so, since another author's page may hold them as well.

A segment is written anew without its records, byte for byte else, under a name of as early a time, and so is every
index that points into it; then the old ones go. Done again after a kill the names are the same.

    segment     | info | record a | record b | record c |         b goes
    becomes     | info | record a | record c |                    c is found at another offset
"""

import hashlib
import html
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow.parquet as pq

from pipelines.raw import SUFFIX, index_of, read_body, segment_entries, write_index
from pipelines.sources.takedowns import Takedowns, url_key
from schemas.errors import BuildError
from schemas.lake import Folder
from schemas.raw import RawEntry

FILES = "files"  # of captured files, which are no segments
_OF_ORIGINS = ("robots", "well-known")
_TEXTS = ("page", "api")
_RUN = 5  # words of a sentence that follow one another
_LEAST_RUNS = 16  # of a document that is known by its text
_SHARE = 0.9  # of its runs that a capture of it holds
_ESCAPE = re.compile(r"\\+u([0-9a-fA-F]{4})")
_MARKUP = re.compile(r"\\+[\"'/bfnrt]|<[^<>]{0,2000}>|\\")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Marks:
    """What captures are recognised by.

    Attributes:
        takedowns: entries whose addresses are named.
        digests: SHA-256 of bodies.
        addresses: of pages and images.
        texts: sentences of documents.
    """

    takedowns: Takedowns
    digests: frozenset[str]
    addresses: frozenset[str]
    texts: Sequence[Sequence[str]]
    _runs: list[set[tuple[str, ...]]] = field(init=False, repr=False)
    _keys: frozenset[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        runs = [set[tuple[str, ...]]().union(*(_runs_of(_words(each)) for each in text)) for text in self.texts]
        object.__setattr__(self, "_runs", [found for found in runs if len(found) >= _LEAST_RUNS])
        object.__setattr__(self, "_keys", frozenset(filter(None, map(url_key, self.addresses))))

    def name(self, entry: RawEntry) -> bool:
        """Return whether an entry is named by its digest or its addresses; files of whole hosts never are."""
        if entry.kind in _OF_ORIGINS:
            return False
        places = (entry.url, entry.final_url or "")
        is_ours = any(url_key(place) in self._keys for place in places if place)
        return entry.digest in self.digests or is_ours or self.takedowns.matches_address(*places) is not None

    def hold(self, entry: RawEntry, record: bytes) -> bool:
        """Return whether the record of an entry is to go."""
        if self.name(entry):
            return True
        if entry.kind not in _TEXTS or not self._runs:
            return False
        there = _runs_of(_words(_plain(read_body(record))))
        return any(len(runs & there) >= _SHARE * len(runs) for runs in self._runs)

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
    for source in raw.names():
        folder = raw.child(source)
        if source == FILES:
            continue
        if not dry_run:
            _check_closed(folder)
        removal, affected = _find(source, folder, marks)
        if removal.records or removal.rows:
            if not dry_run:
                _rewrite(folder, marks, affected)
            yield removal


def named_digests(raw: Folder, takedowns: Takedowns) -> set[str]:
    """Return the digests of captured images whose address is named, wherever they are."""
    found = set[str]()
    for source in raw.names():
        index = index_of(raw.child(source)).folder
        for name in index.names():
            with index.open(name) as stream:
                rows = pq.read_table(stream, columns=["kind", "url", "final_url", "digest"]).to_pylist()
            for row in rows:
                if row["kind"] == "image" and takedowns.matches_address(row["url"], row["final_url"] or ""):
                    found.update(filter(None, [row["digest"]]))
    return found


def _check_closed(folder: Folder) -> None:
    """Raise a `BuildError` where a process writes a segment: its content is not known yet."""
    indexed = set(_indexed(folder))
    for name in folder.names():
        if name.endswith(SUFFIX) and name.removesuffix(SUFFIX) not in indexed:
            raise BuildError(f"{folder.uri}/{name}: another program is writing it; wait until it has ended")


def _find(source: str, folder: Folder, marks: Marks) -> tuple[Removal, set[str]]:
    """Return what goes, and the segments that are to be written anew with their indexes.

    An answer that was found unchanged has a row in a later index: that index changes with the segment it points into.
    """
    points, affected, records, rows = dict[str, set[str]](), set[str](), 0, 0
    for segment in _indexed(folder):
        entries = _entries(folder, segment)
        points[segment] = {entry.segment for entry in entries if entry.segment}
        without = sum(marks.name(entry) and entry.segment != segment for entry in entries)
        is_text = any(entry.kind in _TEXTS for entry in entries)
        gone = 0
        if without or is_text or any(map(marks.name, entries)):
            gone = sum(marks.hold(*each) for each in _records(folder, segment))
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
    for segment in sorted(affected):  # an index first: a segment without one is found and read again
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
    if not folder.exists(f"{segment}{SUFFIX}"):
        return {}
    data = folder.read(f"{segment}{SUFFIX}")
    entries, end = segment_entries(data, segment)
    pieces, offsets = [data[: entries[0].offset if entries else end]], dict[int, int]()
    at = len(pieces[0])
    for entry in entries:
        record = data[entry.offset : entry.offset + entry.length]
        if not marks.hold(entry, record):
            offsets[entry.offset] = at
            pieces.append(record)
            at += len(record)
    if offsets:
        folder.write(f"{marks.new_name(segment)}{SUFFIX}", b"".join(pieces))
    return offsets


def _indexed(folder: Folder) -> list[str]:
    return [name.removesuffix(".parquet") for name in index_of(folder).folder.names() if name.endswith(".parquet")]


def _entries(folder: Folder, segment: str) -> list[RawEntry]:
    """Return the rows of a segment's index, which may lack a column that came later."""
    with index_of(folder).folder.open(f"{segment}.parquet") as stream:
        return [RawEntry(**row) for row in pq.read_table(stream).to_pylist()]


def _records(folder: Folder, segment: str) -> Iterator[tuple[RawEntry, bytes]]:
    """Yield each answer of a segment, those that a later one of the same address hides included."""
    if folder.exists(f"{segment}{SUFFIX}"):
        data = folder.read(f"{segment}{SUFFIX}")
        for entry in segment_entries(data, segment)[0]:
            yield entry, data[entry.offset : entry.offset + entry.length]


def _plain(body: bytes) -> str:
    """Return what can be read in HTML or JSON, or in JSON within HTML, without its markup."""
    text = html.unescape(body.decode("utf-8", "replace"))
    return html.unescape(_MARKUP.sub(" ", _ESCAPE.sub(lambda escape: chr(int(escape[1], 16)), text)))


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _runs_of(words: Sequence[str]) -> set[tuple[str, ...]]:
    return {tuple(words[start : start + _RUN]) for start in range(len(words) - _RUN + 1)}
