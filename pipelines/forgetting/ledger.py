"""What the ledger of a lake says of what is named: documents that no version holds among them.

    named documents -> their addresses -> hashes of their images -> addresses of these -> others that show them

A lake that was built in before there was a ledger has none: of its rejected documents nothing is known.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import compress
from typing import Any

import pyarrow.parquet as pq

from pipelines.shards.writing import write_rows
from pipelines.sources.takedowns import Takedowns
from schemas.lake import Folder, Lake
from schemas.ledger import LEDGER_SCHEMA, Read

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What is named, as the ledger knows it.

    Attributes:
        documents: ids.
        texts: keys of the features of their sentences.
        pages: addresses of their pages.
        shown: hashes of their images, by address.
        kept: those hashes that other documents show.
        images: hashes of images that are named themselves.
    """

    documents: frozenset[str]
    texts: frozenset[str]
    pages: frozenset[str]
    shown: dict[str, str]
    kept: frozenset[str]
    images: frozenset[str]


def find_named(lake: Lake, takedowns: Takedowns) -> Named:
    """Return what is named, by three readings of the ledger; what is held is what is named, and its addresses."""
    named = [row for row in _rows(lake, Read.DOCUMENT) if _is_named(row, takedowns)]
    wanted, images = {address for row in named for address in row["addresses"]}, set[str]()
    shown = dict[str, str]()
    for row in _rows(lake, Read.IMAGE):
        if row["url"] in wanted:
            shown[row["url"]] = row["key"]
        if takedowns.matches_address(row["url"]):
            images.add(row["key"])
    hashes = set(shown.values())
    ways = {row["url"]: row["key"] for row in _rows(lake, Read.IMAGE) if row["key"] in hashes} if hashes else {}
    kept = set[str]()
    for row in _rows(lake, Read.DOCUMENT):
        sources = zip(row["addresses"], row["sources"] or row["addresses"], strict=True)
        images.update(ways[way] for way, source in sources if way in ways and takedowns.matches_address(source))
        if ways and not _is_named(row, takedowns):
            kept.update(ways[way] for way in row["addresses"] if way in ways)
    return Named(
        documents=frozenset(row["key"] for row in named),
        texts=frozenset(row["text"] for row in named),
        pages=frozenset(url for row in named for url in (row["url"], row["captured"]) if url),
        shown=shown,
        kept=frozenset(kept),
        images=frozenset(images),
    )


def take_out(lake: Lake, documents: frozenset[str], images: frozenset[str]) -> None:
    """Write the ledger anew without the rows of what goes, and without the addresses of its images."""
    ways = {row["url"] for row in _rows(lake, Read.IMAGE) if row["key"] in images}
    for folder in _folders(lake):
        for name in folder.files():
            rows = pq.read_table(folder.open(name)).to_pylist()
            stay = [row for row in rows if row["key"] not in (documents if row["kind"] == Read.DOCUMENT else images)]
            left = [_without(row, ways) for row in stay]
            if left != rows:
                write_rows(folder, name, left, LEDGER_SCHEMA)


def _without(row: Row, ways: set[str]) -> Row:
    stays = [way not in ways for way in row["addresses"]]
    return row | {name: list(compress(row[name], stays)) for name in ("addresses", "sources")}


def _is_named(row: Row, takedowns: Takedowns) -> bool:
    pages = (row["url"] or "", row["captured"] or "")
    return takedowns.matches_record((row["key"], row["record"] or ""), pages) is not None


def _rows(lake: Lake, kind: Read) -> Iterator[Row]:
    for folder in _folders(lake):
        for name in folder.files():
            with folder.open(name) as stream:
                for batch in pq.ParquetFile(stream).iter_batches():
                    yield from (row for row in batch.to_pylist() if row["kind"] == kind)


def _folders(lake: Lake) -> Iterator[Folder]:
    for dataset in lake.root.child("ledger").names():
        for version in lake.root.child("ledger", dataset).names():
            yield lake.ledger(dataset, version)
