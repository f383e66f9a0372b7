"""The raw store: every answer a host gave and every failure worth remembering, so that a rerun asks for the rest.

Records go into the open segment of this process and source (`segments.py`); what closed segments hold is found through
their indexes, many keys at once. The newest entry of a key counts. Two processes that fetch into one store need not
know of each other: at worst both ask for the same thing.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pipelines.raw.records import make_record, read_body
from pipelines.raw.segments import SUFFIX, Segment, index_of
from schemas.errors import IntegrityError
from schemas.lake import Folder
from schemas.raw import RAW_SCHEMA, RawEntry


class RawStore:
    """The raw store of a lake, as one process knows it; thread-safe."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._segments: dict[str, Segment] = {}
        self._lock = threading.Lock()

    def find_many(self, source: str, keys: Sequence[str]) -> list[RawEntry | None]:
        """Return the newest entry of each key, None where there is none."""
        packs = index_of(self._folder.child(source))
        with self._lock:
            open_entries = dict(self._segments[source].entries) if source in self._segments else {}
            refs = packs.index().find(keys)
            table = packs.read([ref for ref in refs if ref is not None], RAW_SCHEMA.names)
        stored = {row["key"]: RawEntry(**row) for row in table.to_pylist()}
        return [open_entries.get(key) or stored.get(key) for key in keys]

    def add(self, source: str, entry: RawEntry, headers: Mapping[str, str], body: bytes) -> RawEntry:
        """Store an answer, and return its entry with its digest and position."""
        whole = replace(entry, digest=hashlib.sha256(body).hexdigest(), payload_bytes=len(body))
        record = make_record(whole, headers, body)
        with self._lock:
            placed = self._segment(source, entry).append(whole, record)
            self._close_if_due(source)
        return placed

    def note(self, source: str, entry: RawEntry) -> None:
        """Store an entry without a record of its own: a failure, or an answer that was found unchanged."""
        with self._lock:
            self._segment(source, entry).entries[entry.key] = entry
            self._close_if_due(source)

    def body(self, source: str, entry: RawEntry) -> bytes:
        """Return the body of an answer.

        Raises:
            IntegrityError: the stored bytes are not the ones that were received.
        """
        with self._lock:
            segment = self._segments.get(source)
            if segment is not None and segment.name == entry.segment:  # on an object store it is not there yet
                self._segments.pop(source).close()
        name = f"{entry.segment}{SUFFIX}"
        try:
            with self._folder.child(source).open(name) as stream:
                stream.seek(entry.offset)
                record = stream.read(entry.length)
            body = read_body(record)
        except (FileNotFoundError, ValueError) as problem:
            raise IntegrityError(f"{self._folder.uri}/{source}/{name}: no record at {entry.offset}") from problem
        if hashlib.sha256(body).hexdigest() != entry.digest:
            found = f"{self._folder.uri}/{source}/{name}: the body at {entry.offset} is not the one received"
            raise IntegrityError(f"{found}; delete the file and its index, and rerun")
        return body

    def close(self) -> None:
        """Close every open segment: what is in them can then be found by other processes."""
        with self._lock:
            for source in list(self._segments):
                self._segments.pop(source).close()

    def _segment(self, source: str, entry: RawEntry) -> Segment:
        """Return the open segment of a source, a new one if need be; its first record has the date of the entry."""
        if source not in self._segments:
            self._segments[source] = Segment(self._folder.child(source), entry.fetched_at)
        return self._segments[source]

    def _close_if_due(self, source: str) -> None:
        if self._segments[source].is_due:
            self._segments.pop(source).close()
