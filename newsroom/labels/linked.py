"""What is shown of a data set version: rows of its shards, and its links by each model, in an order.

What came of each document is one narrow table (`LINKED_SCHEMA`), which sorting and filtering read. Links, sentences
and the addresses of pictures are read of the documents that a page shows, and of no other.

Rows are drawn at random, or found by the part and the id of documents, by their numbers or titles.
"""

import logging
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, lru_cache
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from schemas.documents import AFTER_SENTENCE, IMAGE_NUMBERS, SENTENCE_NUMBERS, Split, indexes
from schemas.lake import MANIFEST, Folder, Lake
from schemas.manifest import FileEntry, Manifest
from schemas.messages import IntegrityError, NotFoundError, UsageError
from schemas.parts import read_part
from training.data.mapped import Arrays, content_of, mapped
from training.data.ragged import Bool, Int64
from training.linking.records import LINK_SCHEMA, LINKED_SCHEMA, LinksManifest, read_links
from training.linking.shards import DOCUMENTS, LINKS
from training.report.examples import ExampleDocument, sureness_of

IDS_KEPT = 256  # parts whose ids are held
Place = tuple[FileEntry, int]  # a documents part, and a row of it
T = TypeVar("T")
Read = TypeVar("Read")
log = logging.getLogger("multilink.pages")


def readable(things: Iterable[T], read: Callable[[T], Read], *, remedy: str) -> Iterator[Read]:
    """Yield what is read of each; what is damaged, or of another version of this program, is left out with a warning.

    Args:
        things: to read.
        read: raises an `IntegrityError` for what it cannot read.
        remedy: end of the warning: what makes such a thing again.
    """
    for thing in things:
        try:
            yield read(thing)
        except IntegrityError as problem:
            _warn_once(f"{problem}; {remedy}")


@cache
def _warn_once(line: str) -> None:
    log.warning(line)  # lists are read again and again


def sampled(manifest: Manifest, *, count: int, seed: int, split: str = "") -> list[Place]:
    """Return documents at random as their part and row: the same ones for the same seed.

    Args:
        manifest: of the version.
        count: at most so many.
        seed: of the draw.
        split: of which they are; empty: of every split.
    """
    parts = [entry for each in Split if split in ("", each) for entry in manifest.parts("documents", each)]
    total = sum(entry.rows for entry in parts)
    return [row_of(parts, number) for number in random.Random(seed).sample(range(total), min(count, total))]


def row_of(parts: Sequence[FileEntry], number: int) -> Place:
    """Return the part and the row of a document by its number in parts that follow one another."""
    ends = list(accumulate(entry.rows for entry in parts))
    place = int(np.searchsorted(ends, number, side="right"))
    return parts[place], number - (ends[place] - parts[place].rows)


def place_of(folder: Folder, parts: Iterable[FileEntry], path: str, document: str) -> Place | None:
    """Return the part and the row of a document in the part of a path; None: it is not there."""
    part = next((entry for entry in parts if entry.path == path), None)
    row = -1 if part is None else int(pc.index(_ids(folder, path), document).as_py())
    return (part, row) if part is not None and row >= 0 else None


@lru_cache(IDS_KEPT)
def _ids(folder: Folder, path: str) -> pa.ChunkedArray:
    with folder.open(path) as stream:
        return pq.read_table(stream, columns=["id"]).column(0)


def rows_at(folder: Folder, places: Sequence[Place], columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return some columns of rows of parts, in the given order; of a part, the row groups of those rows alone."""
    wanted: defaultdict[FileEntry, list[int]] = defaultdict(list)
    for entry, number in places:
        wanted[entry].append(number)
    found: dict[Place, dict[str, Any]] = {}
    for entry, rows in wanted.items():
        with folder.open(entry.path) as stream:
            file = pq.ParquetFile(stream)
            ends = list(accumulate(file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)))
            groups = np.searchsorted(ends, rows, side="right")
            for group in np.unique(groups).tolist():
                table, start = file.read_row_group(group, columns=list(columns)), ends[group - 1] if group else 0
                own = [row for row, of in zip(rows, groups, strict=True) if of == group]
                values = table.take([row - start for row in own]).to_pylist()
                found |= {(entry, row): value for row, value in zip(own, values, strict=True)}
    return [found[place] for place in places]


def titled(
    manifest: Manifest, folder: Folder, *, containing: str = "", by_title: bool = False
) -> tuple[Sequence[FileEntry], Int64]:
    """Return parts, and the numbers in these (`row_of`) of the documents whose first text contains a text.

    The case of letters makes no difference.

    Args:
        manifest: of the version.
        folder: of it.
        containing: "": every document.
        by_title: whether they are sorted by their first texts; else as they are stored.
    """
    parts = [entry for split in Split for entry in manifest.parts("documents", split)]
    if not parts:
        return parts, np.zeros(0, np.int64)
    titles = mapped(f"{content_of(parts)}-titles", lambda: _titles(folder, parts))["title"]
    rows = np.arange(len(titles))
    if containing:
        rows = np.flatnonzero(pc.match_substring(titles, containing, ignore_case=True).to_numpy(zero_copy_only=False))
    if by_title:
        rows = rows[pc.array_sort_indices(pc.utf8_lower(titles.take(pa.array(rows)))).to_numpy()]
    return parts, rows


def _titles(folder: Folder, parts: Sequence[FileEntry]) -> Arrays:
    """Return the first text of each document, part after part."""
    titles = list[pa.Array]()
    for entry in parts:
        with folder.open(entry.path) as stream:
            texts = pq.ParquetFile(stream).read(columns=["sentences.list.element.text"]).column(0)
        for chunk in texts.chunks:
            is_empty = pc.equal(pc.list_value_length(chunk), 0).to_numpy(zero_copy_only=False)
            first = pa.array(chunk.offsets.to_numpy()[:-1], mask=is_empty)
            titles.append(pc.struct_field(chunk.values, "text").take(first).fill_null("").cast(pa.large_string()))
    return {"title": pa.concat_arrays(titles)}


TABLES_HELD, PARTS_HELD, ORDERS_KEPT = 8, 16, 32  # what came of documents by a model; its links; orders of documents


class Order(StrEnum):
    """How documents are sorted."""

    WORST = "worst"  # by AUC; those without one last
    BEST = "best"
    LEAST_SURE = "least-sure"  # by the confidence of their links
    SUREST = "surest"
    RIGHT = "right"  # the surest without a wrong link first; where links are unknown, the surest
    NAME = "name"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSet:
    """The links of a data set version by one model; two with the same files are equal.

    Attributes:
        name: of its folder: the model's name and version.
        folder: where they are.
        files: of them.
        manifest: of them.
    """

    name: str
    folder: Folder
    files: tuple[FileEntry, ...]
    manifest: LinksManifest = field(compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnDocument:
    """A document as it is drawn, the content hashes of its images, and the path of the images part that holds them.

    It goes by the indexes of its row; `sentence_numbers` are what tables of links and decisions go by. `after` has the
    number of sentences before each image; None: a source does not say it.
    """

    drawn: ExampleDocument
    images: tuple[str, ...]
    part: str
    sentence_numbers: Sequence[int]
    after: Sequence[int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentFilter:
    """Which documents are shown.

    Attributes:
        split: empty: of every split.
        language: empty: of every language.
        relation: that some of their links have by the model; empty: whatever they have.
        has_error: those alone of which a link is wrong or missed.
    """

    split: str = ""
    language: str = ""
    relation: str = ""
    has_error: bool = False


def link_sets(lake: Lake, manifest: Manifest) -> tuple[LinkSet, ...]:
    """Return the links that there are of a data set version in its lake, by name."""
    home = lake.root.child("links", manifest.dataset, manifest.version)
    folders = {name: home.child(name) for name in home.names()}
    there = (name for name, folder in folders.items() if folder.exists(MANIFEST))

    def read(name: str) -> LinkSet:
        manifest = read_links(folders[name])
        return LinkSet(name=name, folder=folders[name], files=manifest.files, manifest=manifest)

    return tuple(readable(there, read, remedy=f"remove {home.uri}/NAME, and link again"))


def find_links(sets: Iterable[LinkSet], name: str) -> LinkSet:
    """Return the links of a name.

    Raises:
        NotFoundError: there are none; the message says which there are.
    """
    known = {each.name: each for each in sets}
    if name not in known:
        raise NotFoundError(f"no links by {name!r}; links of this version: {', '.join(known) or 'none'}")
    return known[name]


@lru_cache(TABLES_HELD)
def outcomes(links: LinkSet) -> pa.Table:
    """Return what came of every document: LINKED_SCHEMA, its `split` and `part`, and where its links `start` in that.

    Raises:
        UsageError: they were linked by a version of this program that did not write it.
    """
    parts, folder = [], links.folder
    for entry in links.files:
        if entry.path.startswith(f"{DOCUMENTS}/"):
            table = read_part(folder, entry, LINKED_SCHEMA.names, LINKED_SCHEMA)
            split, name = entry.path.split("/")[1:]
            for column, value in (("split", split), ("part", name)):
                table = table.append_column(column, pa.repeat(value, table.num_rows).dictionary_encode())
            counts = table.column("links").to_numpy().astype(np.int64)
            table = table.append_column("start", pa.array(np.cumsum(counts) - counts))  # links are in this order, too
            parts.append(table)
    if not parts:
        raise UsageError(f"{folder.uri}: links are in an older format; run `multilink link` again")
    return pa.concat_tables(parts).unify_dictionaries().combine_chunks()  # rows of one piece are taken faster


@lru_cache(TABLES_HELD)
def choices(links: LinkSet) -> dict[str, list[str]]:
    """Return which splits, languages and relations documents have, each sorted."""
    table = outcomes(links)
    relations = pc.list_flatten(table.column("relations"))
    return {
        "split": sorted(pc.unique(table.column("split")).to_pylist()),
        "language": sorted(pc.unique(table.column("language")).to_pylist()),
        "relation": sorted(pc.unique(relations).to_pylist()),
    }


@lru_cache(ORDERS_KEPT)
def chosen(links: LinkSet, which: DocumentFilter, order: Order) -> Int64:
    """Return the rows of `outcomes` that are shown, in order; equal ones as they stand there."""
    return ordered(outcomes(links), which, order)


def ordered(table: pa.Table, which: DocumentFilter, order: Order) -> Int64:
    """Return the rows of a table of outcomes that are shown, in order; equal ones as they stand there."""
    rows = np.flatnonzero(_fits(table, which))
    if order is Order.NAME:
        return np.asarray(rows[pc.sort_indices(table.column("document").take(pa.array(rows))).to_numpy()], np.int64)
    column = "auc" if order in (Order.WORST, Order.BEST) else "confidence"
    keys = table.column(column).to_numpy(zero_copy_only=False).astype(np.float64)[rows]
    keys = keys if order in (Order.WORST, Order.LEAST_SURE) else -keys
    if order is Order.RIGHT:
        is_right = pc.fill_null(pc.equal(table.column("wrong"), 0), False).to_numpy()[rows]
        has_links = table.column("links").to_numpy()[rows] > 0
        return np.asarray(rows[np.lexsort((keys, ~(is_right & has_links)))], np.int64)
    return np.asarray(rows[np.argsort(keys, kind="stable")], np.int64)  # NaN, which null has become, is put last


def _fits(table: pa.Table, which: DocumentFilter) -> Bool:
    mask = np.ones(table.num_rows, dtype=bool)
    for column in ("split", "language"):
        if value := getattr(which, column):
            mask &= pc.equal(table.column(column).cast(pa.string()), value).to_numpy()
    if which.relation:
        lists = table.column("relations").combine_chunks()
        has = np.zeros(table.num_rows, dtype=bool)
        is_it = pc.equal(pc.list_flatten(lists), which.relation).to_numpy(zero_copy_only=False)
        has[pc.list_parent_indices(lists).to_numpy()[is_it]] = True
        mask &= has
    if which.has_error:
        for_sure = [pc.fill_null(pc.greater(table.column(name), 0), False) for name in ("wrong", "missed")]
        mask &= pc.or_(*for_sure).to_numpy()
    return mask


def linked_documents(links: LinkSet, manifest: Manifest, folder: Folder, rows: Sequence[int]) -> list[DrawnDocument]:
    """Return some documents, in the order of their rows in `outcomes`.

    Args:
        links: of the version by a model.
        manifest: of the version.
        folder: of it.
        rows: of `outcomes(links)`.
    """
    reference = f"{manifest.dataset}@{manifest.version}"
    known = outcomes(links).take(pa.array(rows, pa.int64())).to_pylist()
    parts = [entry for split in manifest.splits for entry in manifest.parts("documents", split)]
    paths = (f"documents/{row['split']}/{row['part']}" for row in known)
    places = [place_of(folder, parts, path, row["document"]) for path, row in zip(paths, known, strict=True)]
    if None in places:
        raise IntegrityError(f"{reference}: a document that was linked is not in it; link it again")
    texts = rows_at(folder, [each for each in places if each], ["sentences", "images", AFTER_SENTENCE])
    files, found = {entry.path: entry for entry in links.files}, []
    for row, text in zip(known, texts, strict=True):
        part = f"{row['split']}/{row['part']}"
        own = _links(links.folder, files[f"{LINKS}/{part}"]).slice(row["start"], row["links"]).to_pylist()
        images = tuple(image["hash"] for image in text["images"])
        found.append(
            DrawnDocument(
                drawn=_example(row, text, own, images),
                images=images,
                part=f"images/{part}",
                sentence_numbers=row[SENTENCE_NUMBERS] or range(len(text["sentences"])),
                after=text[AFTER_SENTENCE] or [None] * len(text["images"]),
            )
        )
    return found


@lru_cache(PARTS_HELD)
def _links(folder: Folder, entry: FileEntry) -> pa.Table:
    return read_part(folder, entry, ["sentence", "image", "similarity", "probability", "word"], LINK_SCHEMA)


def _example(
    outcome: Mapping[str, Any], text: Mapping[str, Any], links: Sequence[Mapping[str, Any]], pictures: Sequence[str]
) -> ExampleDocument:
    truth = outcome["truth"]
    sentences = indexes(outcome[SENTENCE_NUMBERS] or range(len(text["sentences"])))
    images = indexes(outcome[IMAGE_NUMBERS] or range(len(pictures)))
    return ExampleDocument(
        id=outcome["document"],
        auc=outcome["auc"],
        sentences=tuple(sentence["text"] for sentence in text["sentences"]),
        images=tuple(pictures),
        predicted=tuple((sentences[link["sentence"]], images[link["image"]], link["similarity"]) for link in links),
        sureness=sureness_of((link["probability"], link["word"]) for link in links),
        links=None if truth is None else tuple((sentences[link["sentence"]], images[link["image"]]) for link in truth),
    )


def row_of_document(table: pa.Table, document: str) -> int | None:
    """Return the row of a document in `outcomes`, or None: it was not linked."""
    found = pc.index(table.column("document"), document).as_py()
    return None if found < 0 else int(found)
