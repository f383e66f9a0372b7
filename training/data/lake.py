"""Parquet parts of a data set version to ragged arrays: only the columns asked for, and only bytes that are whole.

Which parts there are is the manifest's to say, and so is each part's SHA-256: a part is checked before it is read, once
a process. Which shards are read, and when, is decided in `split.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.document_rows import layout_problem
from schemas.documents import AFTER_SENTENCE, Split, document_schema, image_schema
from schemas.features import (
    NAMES,
    FeatureKind,
    RegionArrays,
    column_to_classes,
    column_to_regions,
    column_to_vectors,
    several,
)
from schemas.lake import Folder
from schemas.manifest import FileEntry, Manifest
from schemas.messages import ConfigError, IntegrityError, UsageError
from schemas.parts import Shard, read_part, split_parts
from schemas.plugins import SUM
from schemas.tables import FEATURE_PREFIX
from training.data.documents import (
    ALL_SENTENCES,
    UNKNOWN_PLACE,
    ClassBank,
    DocumentSet,
    RegionBank,
    TextView,
    Vectors,
    viewed,
)
from training.data.ragged import Floats, Int64, Ragged

AUTO, ALL = "auto", "all"
UNKNOWN_ROW = -1
HASHES, ROLES = "images.list.element.hash", "sentences.list.element.role"
_TEXTS = "sentences.list.element.text"
_RELATIONS = ("links.list.element.relations.list.element.name", "links.list.element.relations.list.element.value")
_LINKS = ("links.list.element.sentence", "links.list.element.image")


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """What is read of a split beside its sentences' texts and roles and its documents' languages.

    Attributes:
        images: extractor of the image vectors, several as `A+B`, whose vectors stand one after the other; `auto` for
            the only one there is, but for class names; `all`; None: none are read.
        sentences: extractor of the sentence vectors, likewise.
        regions: detector of the images' regions, likewise.
        classes: extractor of the images' likeliest classes, likewise.
        jpegs: whether the pictures are read.
        links: whether ground truth is read. Training never asks for it.
        places: whether it is read where images stand among the sentences, which in many data sets is nearly the ground
            truth: training asks for it where `link.order` does.
        relations: whether the relations of links are read (without the links themselves).
    """

    images: str | None = None
    sentences: str | None = None
    regions: str | None = None
    classes: str | None = None
    jpegs: bool = False
    links: bool = False
    places: bool = False
    relations: bool = False

    def resolved(self, manifest: Manifest) -> Columns:
        """Return the columns with the extractors that a data set version has.

        Raises:
            ConfigError: one that is named is not there, or `auto` does not find exactly one.
        """
        extractors: dict[str, Any] = {name: _extractor(manifest, name, getattr(self, name)) for name in _KINDS}
        return replace(self, **extractors)

    def names(self, field: str, manifest: Manifest) -> list[str]:
        """Return the names of the table columns that hold `images`, `sentences`, `regions` or `classes`."""
        _, table, kind, _ = _KINDS[field]
        columns = {each.name: each.column for each in manifest.columns(table) if each.kind is kind}
        return [columns[name] for name in several(getattr(self, field))]

    def of_documents(self, vectors: Sequence[str]) -> list[str]:
        """Return the columns of the documents table that are read; `vectors` are those of sentence vectors."""
        names = ["id", "language", _TEXTS, ROLES, HASHES, *vectors]
        names += [*(_LINKS if self.links else ()), *(_RELATIONS if self.relations else ())]
        return [*names, AFTER_SENTENCE] if self.places else names


_EXTRACTOR = "build the data set with an extractor"
_KINDS = {  # setting, table, kind of column, what to do where there is none
    "images": ("data.image_features", "images", FeatureKind.VECTOR, _EXTRACTOR),
    "sentences": ("data.sentence_features", "documents", FeatureKind.VECTOR, _EXTRACTOR),
    "regions": (
        "data.region_features",
        "images",
        FeatureKind.REGIONS,
        "build it with a detector, or use --set image.name=linear",
    ),
    "classes": ("class_features", "images", FeatureKind.CLASSES, "build it with an extractor of classes"),
}


def _extractor(manifest: Manifest, field: str, wanted: str | None) -> str | None:
    """Return the extractor that a setting names, or several; `auto` is the only one there is, `all` is every one."""
    if wanted is None:
        return None
    setting, table, kind, remedy = _KINDS[field]
    extractors = manifest.extractors(table, kind)
    if wanted == AUTO:
        extractors = {name: size for name, size in extractors.items() if not name.endswith(NAMES)} or extractors
    available = ", ".join(sorted(extractors)) or "none"
    if wanted == ALL and extractors:
        return SUM.join(sorted(extractors))
    if wanted in (AUTO, ALL) and len(extractors) != 1:
        advice = f"set {setting} to one of them" if extractors else remedy
        expected = "one extractor" if wanted == AUTO else "extractors"
        raise ConfigError(f"{setting} = {wanted!r}: expected {expected} in the data set, found {available}; {advice}")
    if len(several(wanted)) != len({*several(wanted)}):
        raise ConfigError(f"{setting} = {wanted!r}: expected different columns; name each once")
    if wanted != AUTO and not extractors.keys() >= set(several(wanted)):
        missing = ", ".join(name for name in several(wanted) if name not in extractors)
        rebuild = f"rebuild with features.{'sentences' if table == 'documents' else 'images'}={missing}"
        raise ConfigError(f"{setting} = {wanted!r}: {missing} is not in the data set; it has {available}; {rebuild}")
    return next(iter(extractors)) if wanted == AUTO else wanted


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A document that its shard contradicts, and how."""

    id: str
    problem: str


def read_split(
    manifest: Manifest,
    folder: Folder,
    split: Split | str,
    columns: Columns,
    *,
    view: TextView = ALL_SENTENCES,
    shards: Sequence[Shard] | None = None,
    unreadable: list[Unreadable] | None = None,
) -> DocumentSet:
    """Return the documents of a split, or of some of its shards, in part and row order.

    Args:
        manifest: of the data set version, as `schemas.manifest.read_manifest` gives it.
        folder: of the data set version.
        split: train, val or test.
        columns: what is read.
        view: which sentences are read.
        shards: of the split; None: all.
        unreadable: takes the documents that cannot be read, which are then left out; feature values that are not finite
            are let through. None: either is an error.

    Raises:
        ConfigError: a named extractor is not there.
        NotFoundError: the split is not there.
        IntegrityError: a part is damaged, or a document cannot be read: an image or a vector is missing.
        UsageError: an image has no picture, where pictures are read.
    """
    columns = columns.resolved(manifest)
    chosen = split_parts(manifest, split) if shards is None else shards
    is_strict = unreadable is None
    vectors, schema = columns.names("sentences", manifest), document_schema(manifest.columns("documents"))
    tables = [read_part(folder, part.documents, columns.of_documents(vectors), schema) for part in chosen]
    table = pa.concat_tables(tables) if tables else schema.empty_table()
    bank = read_bank(manifest, folder, [part.images for part in chosen], columns, is_strict=is_strict)
    table = _readable(table, bank, vectors, unreadable)
    sentences, images = (Ragged.of(_lengths(table.column(name))) for name in ("sentences", "images"))
    documents = DocumentSet(
        ids=tuple(table.column("id").to_pylist()),
        texts=tuple(_items(table, "sentences", "text").to_pylist()),
        sentences=sentences,
        sentence_numbers=sentences.numbers,
        sentence_vectors=_beside([_vectors(table.column(name), where=name, is_strict=is_strict) for name in vectors]),
        images=images,
        image_rows=_rows_of(table, bank),
        image_hashes=bank.hashes,
        image_bank=bank.vectors,
        links=_links(table) if columns.links else None,
        roles=tuple(_items(table, "sentences", "role").to_pylist()),
        languages=tuple(table.column("language").to_pylist()),
        after_sentence=_places(table) if columns.places else None,
        regions=bank.regions,
        classes=bank.classes,
        image_jpegs=bank.jpegs,
        relations=_relations(table) if columns.relations else None,
    )
    return viewed(documents, view)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bank:
    """Every different image of some parts, once: the hash of each row, and what was asked for of it.

    An image without a picture has one of no byte.
    """

    keys: pa.StringArray
    hashes: tuple[str, ...]
    vectors: Vectors
    regions: RegionBank | None
    classes: ClassBank | None
    jpegs: tuple[bytes, ...] | None


def read_bank(
    manifest: Manifest,
    folder: Folder,
    entries: Sequence[FileEntry],
    columns: Columns,
    *,
    is_strict: bool = True,
    rows: Sequence[int] | None = None,
) -> Bank:
    """Return the images of some parts; of one in several parts, the first row.

    Args:
        manifest: of the version.
        folder: of the version.
        entries: of the parts.
        columns: that are read.
        is_strict: whether a value that is not finite, and a picture that is missing, is an error.
        rows: of a single part, those that are wanted, in order; None: all.

    Raises:
        ConfigError: a named extractor is not there.
        IntegrityError: a part is damaged, or a value is not finite.
        UsageError: an image has no picture, where pictures are read.
    """
    columns = columns.resolved(manifest)
    schema = image_schema(manifest.columns("images"))
    names = {field: columns.names(field, manifest) for field in ("images", "regions", "classes")}
    wanted = ["hash", *chain.from_iterable(names.values()), *(["jpeg"] if columns.jpegs else [])]
    tables = [read_part(folder, entry, wanted, schema, rows) for entry in entries]
    table = pa.concat_tables(tables or [schema.empty_table().select(wanted)])
    seen = table.column("hash").combine_chunks().dictionary_encode()
    if len(seen.dictionary) < len(table):
        table = table.take(pa.array(np.unique(seen.indices, return_index=True)[1]))
    where = entries[0].path if entries else ""
    of = {field: table.column(name) for field, columns_of_field in names.items() for name in columns_of_field}
    vectors = _beside([_vectors(table.column(name), where=where, is_strict=is_strict) for name in names["images"]])
    jpegs = None
    if columns.jpegs:
        jpegs = tuple(jpeg or b"" for jpeg in table.column("jpeg").to_pylist())
        if is_strict and (missing := jpegs.count(b"")):
            raise UsageError(
                f"{where}: {missing} of {len(jpegs)} images have no picture, only vectors; "
                "train with another image tower than 'fine-tuned' (--set image.name=linear)"
            )
    hashes = tuple(seen.dictionary.to_pylist())
    return Bank(
        keys=seen.dictionary,
        hashes=hashes,
        vectors=np.zeros((len(hashes), 0), np.float16) if vectors is None else vectors,
        regions=_regions(of["regions"], where=where, is_strict=is_strict) if "regions" in of else None,
        classes=_classes(of["classes"]) if "classes" in of else None,
        jpegs=jpegs,
    )


def region_bank(regions: RegionArrays) -> RegionBank:
    """Return regions as they are stored as a bank."""
    return RegionBank(
        images=Ragged(regions.offsets),
        labels=tuple(regions.labels),
        vectors=regions.vectors,
        boxes=regions.boxes,
        scores=regions.scores,
    )


def _regions(column: pa.ChunkedArray, *, where: str, is_strict: bool) -> RegionBank:
    bank = region_bank(column_to_regions(column))
    if is_strict and not np.isfinite(bank.vectors).all():
        raise IntegrityError(f"{where}: a region's vector has values that are not finite")
    return RegionBank.joined([bank], dimensions=bank.vectors.shape[1])


def _classes(column: pa.ChunkedArray) -> ClassBank:
    """Return the classes of images; K is the longest list's length."""
    arrays = column_to_classes(column)
    lists = [(arrays.labels[rows], arrays.probabilities[rows].tolist()) for rows in Ragged(arrays.offsets)]
    widest = max((len(labels) for labels, _ in lists), default=0)
    probabilities = np.zeros((len(lists), widest), np.float32)
    for row, (labels, values) in enumerate(lists):
        probabilities[row, : len(labels)] = values
    padded = tuple((*labels, *[""] * (widest - len(labels))) for labels, _ in lists)
    return ClassBank(labels=padded, probabilities=probabilities)


def _readable(table: pa.Table, bank: Bank, vectors: Sequence[str], unreadable: list[Unreadable] | None) -> pa.Table:
    """Return the documents that can be read; the others go to `unreadable`, or the first of them is raised."""
    problems = _problems(table, bank, vectors)
    if not any(problems):
        return table
    ids = table.column("id").to_pylist()
    broken = [Unreadable(key, problem) for key, problem in zip(ids, problems, strict=True) if problem]
    if unreadable is None:
        raise IntegrityError(f"document {broken[0].id}: {broken[0].problem}")
    unreadable += broken
    return table.filter(pa.array([not problem for problem in problems]))


def _problems(table: pa.Table, bank: Bank, vectors: Sequence[str]) -> list[str]:
    """Return what is wrong with each document, nothing ("") where all is there."""
    sentences, images = _lengths(table.column("sentences")), Ragged.of(_lengths(table.column("images")))
    problems = [""] * table.num_rows
    for row, after in enumerate(_after(table)):
        if after is not None:
            problems[row] = layout_problem(after, sentences=int(sentences[row]), images=int(images.counts[row]))
    hashes, rows = _items(table, "images", "hash"), _rows_of(table, bank)
    empty = [row for row, jpeg in enumerate(bank.jpegs or ()) if not jpeg]
    lost = {"has no picture": np.isin(rows, empty), "is not in the images part of its shard": rows == UNKNOWN_ROW}
    for what, are_lost in lost.items():
        for position in np.flatnonzero(are_lost)[::-1]:
            problems[images.owners[position]] = f"image {hashes[position].as_py()[:16]} {what}"
    for column in vectors:
        counts, name = _lengths(table.column(column)), column.removeprefix(FEATURE_PREFIX)
        for document in np.flatnonzero(sentences != counts):
            problems[document] = f"{sentences[document]} sentences but {counts[document]} {name} vectors"
    return problems


def _rows_of(table: pa.Table, bank: Bank) -> Int64:
    """Return the row of the image at each place, `UNKNOWN_ROW` of one that is not there."""
    indexes = pc.index_in(_items(table, "images", "hash"), value_set=bank.keys)
    rows: Int64 = pc.fill_null(indexes, UNKNOWN_ROW).to_numpy().astype(np.int64)
    return rows


def _links(table: pa.Table) -> tuple[Int64 | None, ...]:
    """Return per document its L x 2 (sentence, image) links, or None where they are unknown."""
    return tuple(
        None if row is None else np.array([(x["sentence"], x["image"]) for x in row], np.int64).reshape(-1, 2)
        for row in table.column("links").to_pylist()
    )


def _places(table: pa.Table) -> Int64:
    """Return of the image at each place how many sentences stand before it, `UNKNOWN_PLACE` where that is not known."""
    parts = [
        [UNKNOWN_PLACE] * count
        if after is None
        else [UNKNOWN_PLACE if sentence is None else sentence for sentence in after]
        for after, count in zip(_after(table), _lengths(table.column("images")), strict=True)
    ]
    return np.array([sentence for part in parts for sentence in part], np.int64)


def _after(table: pa.Table) -> list[list[int | None] | None]:
    """Return per document where its images stand; None where unknown, not read, or not in an older part."""
    has_column = AFTER_SENTENCE in table.column_names
    return table.column(AFTER_SENTENCE).to_pylist() if has_column else [None] * table.num_rows


def _relations(table: pa.Table) -> tuple[Mapping[str, bool | None], ...]:
    """Return per document the relations of its first link by name; empty where it has no link."""
    return tuple(
        {relation["name"]: relation["value"] for relation in row[0]["relations"]} if row else {}
        for row in table.column("links").to_pylist()
    )


def _items(table: pa.Table, column: str, field: str) -> pa.Array:
    """Return a field of the items of all documents, one after the other."""
    return table.column(column).combine_chunks().flatten().field(field)


def _beside(columns: Sequence[Floats]) -> Vectors | None:
    """Return the vectors of several columns, one after the other in each row; None without a column."""
    return np.concatenate(columns, axis=1) if columns else None


def _lengths(column: pa.ChunkedArray) -> Int64:
    lengths: Int64 = pc.list_value_length(column).to_numpy().astype(np.int64)
    return lengths


def _vectors(column: pa.ChunkedArray, *, where: str, is_strict: bool) -> Vectors:
    """Return a column of vectors, or of lists of vectors, in any storage, as one array with a row per vector.

    Strictly, all values are finite.
    """
    array = column.combine_chunks()
    if pa.types.is_list(array.type):
        array = array.flatten()
    try:
        return column_to_vectors(array, must_be_finite=is_strict).copy()  # may be written to, and outlives the file
    except IntegrityError as problem:
        raise IntegrityError(f"{where}: {problem}") from problem
