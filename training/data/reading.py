"""Parquet parts to ragged arrays: only the needed columns, and the links only where a caller asks for them.

Which parts there are is the manifest's to say; a part is opened through its folder, so a lake on an object store reads
like a local one. Which worker reads which part is decided in `loading.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from schemas.documents import Split, document_schema, image_schema
from schemas.errors import ConfigError, IntegrityError, NotFoundError, UsageError
from schemas.features import FeatureColumn, FeatureKind, column_to_vectors
from schemas.lake import Folder
from schemas.manifest import FileEntry, Manifest
from schemas.tables import FEATURE_PREFIX, check_schema
from training.data.banks import class_bank, region_bank
from training.data.documents import DocumentSet, Int64, SplitIndex, Vectors, image_set_key, offsets_of
from training.data.roles import ALL_SENTENCES, TextView, viewed

AUTO = "auto"
_HASHES = "images.list.element.hash"
_TEXTS = "sentences.list.element.text"
_ROLES = "sentences.list.element.role"
_RELATIONS = ("links.list.element.relations.list.element.name", "links.list.element.relations.list.element.value")
_LINKS = ("links.list.element.sentence", "links.list.element.image")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A document that its shard contradicts, and how."""

    id: str
    problem: str


def choose_extractor(extractors: Mapping[str, int], wanted: str, *, field: str) -> str:
    """Return the extractor a setting names; `auto` is the only one there is.

    Raises:
        ConfigError: there is none of that name, none at all, or `auto` has several to choose from.
    """
    known = ", ".join(sorted(extractors)) or "none"
    if wanted == AUTO and len(extractors) != 1:
        advice = f"set {field} to one of them" if extractors else "build the data set with an extractor"
        raise ConfigError(f"{field} = 'auto': expected one extractor in the data set, found {known}; {advice}")
    if wanted != AUTO and wanted not in extractors:
        raise ConfigError(f"{field} = {wanted!r}: the data set has no such feature column; it has {known}")
    return next(iter(extractors)) if wanted == AUTO else wanted


def split_parts(manifest: Manifest, split: Split | str) -> list[tuple[FileEntry, FileEntry]]:
    """Return a split's shards: its (documents, images) parts of equal number, in order.

    Raises:
        NotFoundError: the data set version has no part in that split.
        IntegrityError: a documents part has no images part beside it.
    """
    documents, images = manifest.parts("documents", split), manifest.parts("images", split)
    if not documents:
        there = ", ".join(sorted(manifest.splits)) or "none"
        raise NotFoundError(f"{manifest.dataset}@{manifest.version} has no split '{split}'; splits: {there}")
    if [_name(entry) for entry in documents] != [_name(entry) for entry in images]:
        raise IntegrityError(f"{manifest.dataset}@{manifest.version}, {split}: documents and images parts do not pair")
    return list(zip(documents, images, strict=True))


def read_index(manifest: Manifest, folder: Folder, split: Split | str, *, view: TextView = ALL_SENTENCES) -> SplitIndex:
    """Return what every worker knows of a split: ids, image sets and sizes in a view, from a few narrow columns."""
    tables = [_read(folder, parts[0], ["id", _HASHES, _ROLES]) for parts in split_parts(manifest, split)]
    table = pa.concat_tables(tables)
    hashes = _hash_lists(table)
    return SplitIndex(
        ids=tuple(table.column("id").to_pylist()),
        image_sets=tuple(map(image_set_key, hashes)),
        shards=np.repeat(np.arange(len(tables)), [part.num_rows for part in tables]).astype(np.int64),
        sentence_counts=np.array(list(map(view.rows, _role_lists(table))), dtype=np.int64),
        image_counts=np.array([len(row) for row in hashes], dtype=np.int64),
    )


def read_links(manifest: Manifest, folder: Folder, split: Split | str) -> tuple[Int64 | None, ...]:
    """Return the L x 2 (sentence, image) links of every document of a split, None where unknown: labels to learn from.

    Only a supervised objective asks for them.
    """
    tables = [_read(folder, parts[0], list(_LINKS)) for parts in split_parts(manifest, split)]
    return _links(pa.concat_tables(tables))


def read_split(
    manifest: Manifest,
    folder: Folder,
    split: Split | str,
    *,
    image_features: str | None = AUTO,
    sentence_features: str | None = None,
    region_features: str | None = None,
    class_features: str | None = None,
    with_links: bool = False,
    with_jpegs: bool = False,
    view: TextView = ALL_SENTENCES,
    with_relations: bool = False,
    shards: Sequence[int] | None = None,
    unreadable: list[Unreadable] | None = None,
) -> DocumentSet:
    """Return the documents of a split, or of some of its shards, in part and row order.

    Args:
        manifest: of the data set version, as `schemas.manifest.read_manifest` gives it.
        folder: of the data set version.
        split: train, val or test.
        image_features: extractor of the image vectors; None: none are read.
        sentence_features: extractor of the sentence vectors; None: none are read.
        region_features: extractor of the images' regions; None: none are read.
        class_features: extractor of the images' likeliest classes; None: none are read.
        with_links: whether ground truth is read. Training never asks for it.
        with_jpegs: whether the pictures themselves are read.
        view: which sentences are read.
        with_relations: whether the relations of links are read (without the links themselves).
        shards: numbers of the shards to read; None: all.
        unreadable: takes the documents that cannot be read, and values that are not finite are the caller's to find;
            None: the first such document ends the reading.

    Raises:
        ConfigError: a named extractor is not there.
        NotFoundError: the split is not there.
        IntegrityError: a document cannot be read: an image or a vector is missing.
        UsageError: an image has no picture, where pictures are read.
    """
    image_name = None
    if image_features is not None:
        image_name = choose_extractor(manifest.extractors("images"), image_features, field="data.image_features")
    sentence_name = None
    if sentence_features is not None:
        known = manifest.extractors("documents")
        sentence_name = choose_extractor(known, sentence_features, field="data.sentence_features")
    wanted = (*(_LINKS if with_links else ()), *(_RELATIONS if with_relations else ()))
    parts = split_parts(manifest, split)
    chosen = [parts[number] for number in (range(len(parts)) if shards is None else shards)]
    documents = _read_documents(manifest, folder, [part[0] for part in chosen], sentence_name, wanted)
    bank = _read_bank(
        manifest, folder, [part[1] for part in chosen], image_name, with_jpegs, is_strict=unreadable is None
    )
    documents = _readable(documents, bank, sentence_name, unreadable)
    found = _document_set(documents, bank, sentence_name, with_links, is_strict=unreadable is None)
    if with_relations:
        found = replace(found, relations=_relations(documents))
    images = [part[1] for part in chosen]
    if region_features is not None:
        name = choose_extractor(
            manifest.extractors("images", FeatureKind.REGIONS), region_features, field="data.region_features"
        )
        tables, column = _column_tables(manifest, folder, images, name)
        found = replace(found, regions=region_bank(tables, column, must_be_finite=unreadable is None))
    if class_features is not None:
        name = choose_extractor(
            manifest.extractors("images", FeatureKind.CLASSES), class_features, field="data.class_features"
        )
        found = replace(found, classes=class_bank(*_column_tables(manifest, folder, images, name)))
    return viewed(found, view)


def _column_tables(
    manifest: Manifest, folder: Folder, entries: Sequence[FileEntry], name: str
) -> tuple[Iterator[pa.Table], FeatureColumn]:
    """Return the hashes with one extractor's column of some images parts, a table a part, and what the column is."""
    columns = manifest.columns("images")
    wanted = next(column for column in columns if column.name == name)
    schema = image_schema(columns)
    return (_read(folder, entry, ["hash", wanted.column], schema) for entry in entries), wanted


def _read_documents(
    manifest: Manifest, folder: Folder, entries: Sequence[FileEntry], features: str | None, wanted: Sequence[str]
) -> pa.Table:
    columns = ["id", "language", _TEXTS, _ROLES, _HASHES, *wanted]
    columns += [FEATURE_PREFIX + features] if features else []
    schema = document_schema(manifest.columns("documents"))
    tables = [_read(folder, entry, columns, schema) for entry in entries]
    return pa.concat_tables(tables) if tables else schema.empty_table()


@dataclass(frozen=True, slots=True)
class _Bank:
    """Every different image of some parts, once: the row of each hash, U x v vectors, U pictures where asked for.

    `without_picture` are the hashes of those that have none, where pictures are asked for; their row holds no byte.
    """

    rows: Mapping[str, int]
    vectors: Vectors
    jpegs: tuple[bytes, ...] | None
    without_picture: frozenset[str] = frozenset()


def _read_bank(
    manifest: Manifest,
    folder: Folder,
    entries: Sequence[FileEntry],
    features: str | None,
    with_jpegs: bool,
    *,
    is_strict: bool,
) -> _Bank:
    schema = image_schema(manifest.columns("images"))
    rows: dict[str, int] = {}
    vectors: list[Vectors] = []
    jpegs: list[bytes] = []
    columns = ["hash"] + ([FEATURE_PREFIX + features] if features else []) + (["jpeg"] if with_jpegs else [])
    for entry in entries:
        table = _read(folder, entry, columns, schema)
        fresh = [place for place, key in enumerate(table.column("hash").to_pylist()) if _is_new(key, rows)]
        if features:
            name = FEATURE_PREFIX + features
            vectors.append(_vectors(table.column(name), where=f"{entry.path}, {name}", is_strict=is_strict)[fresh])
        else:
            vectors.append(np.zeros((len(fresh), 0), np.float16))
        if with_jpegs:
            jpegs += _pictures(table.column("jpeg"), fresh, entry, may_lack=not is_strict)
    if not vectors:
        vectors.append(np.zeros((0, manifest.extractors("images")[features] if features else 0), np.float16))
    joined = cast(Vectors, np.concatenate(vectors))
    if not with_jpegs:
        return _Bank(rows, joined, None)
    return _Bank(rows, joined, tuple(jpegs), frozenset(key for key, row in rows.items() if not jpegs[row]))


def _is_new(key: str, rows: dict[str, int]) -> bool:
    """Return whether a hash has no row yet, and give it the next."""
    count = len(rows)
    rows.setdefault(key, count)
    return len(rows) > count


def _pictures(column: pa.ChunkedArray, chosen: Sequence[int], entry: FileEntry, *, may_lack: bool) -> list[bytes]:
    """Return the pictures of some rows; a row without one has no byte, where that may be."""
    found: list[bytes | None] = column.take(pa.array(chosen, pa.int64())).to_pylist()
    pictures = [jpeg or b"" for jpeg in found]
    missing = pictures.count(b"")
    if missing and not may_lack:
        raise UsageError(
            f"{entry.path}: {missing} of {len(found)} images have no picture, only vectors; "
            "train with another image tower than 'fine-tuned' (--set encoder.image=linear)"
        )
    return pictures


def _document_set(
    table: pa.Table, bank: _Bank, features: str | None, with_links: bool, *, is_strict: bool
) -> DocumentSet:
    ids = table.column("id").to_pylist()
    hashes = _hash_lists(table)
    sentences = [[sentence["text"] for sentence in row] for row in table.column("sentences").to_pylist()]
    name = FEATURE_PREFIX + (features or "")
    vectors = _vectors(table.column(name), where=name, is_strict=is_strict) if features else None
    return DocumentSet(
        ids=tuple(ids),
        texts=tuple(text for row in sentences for text in row),
        sentence_offsets=offsets_of([len(row) for row in sentences]),
        sentence_vectors=vectors,
        image_rows=np.array([bank.rows[image] for row in hashes for image in row], dtype=np.int64),
        image_offsets=offsets_of([len(row) for row in hashes]),
        image_hashes=tuple(bank.rows),
        image_bank=bank.vectors,
        image_sets=tuple(map(image_set_key, hashes)),
        links=_links(table) if with_links else None,
        roles=tuple(role for row in _role_lists(table) for role in row),
        languages=tuple(table.column("language").to_pylist()),
        image_jpegs=bank.jpegs,
    )


def _readable(table: pa.Table, bank: _Bank, features: str | None, unreadable: list[Unreadable] | None) -> pa.Table:
    """Return the documents that can be read; the others go to `unreadable`, or the first of them is raised."""
    problems = list(_problems(table, bank, features))
    if not any(problems):
        return table
    ids = table.column("id").to_pylist()
    found = [Unreadable(key, problem) for key, problem in zip(ids, problems, strict=True) if problem]
    if unreadable is None:
        raise IntegrityError(f"document {found[0].id}: {found[0].problem}")
    unreadable += found
    return table.filter(pa.array([not problem for problem in problems]))


def _problems(table: pa.Table, bank: _Bank, features: str | None) -> Iterator[str]:
    """Yield what is wrong with each document, nothing ("") where all is there."""
    sentences = _lengths(table.column("sentences"))
    vectors = _lengths(table.column(FEATURE_PREFIX + features)) if features else sentences
    for hashes, texts, count in zip(_hash_lists(table), sentences, vectors, strict=True):
        missing = [image for image in hashes if image not in bank.rows]
        unseen = [image for image in hashes if image in bank.without_picture]
        if texts != count:
            yield f"{texts} sentences but {count} {features} vectors"
        elif missing:
            yield f"image {missing[0][:16]} is not in the images part of its shard"
        else:
            yield f"image {unseen[0][:16]} has no picture" if unseen else ""


def _links(table: pa.Table) -> tuple[Int64 | None, ...]:
    """Return per document its L x 2 (sentence, image) links, or None where they are unknown."""
    return tuple(
        None if row is None else np.array([(x["sentence"], x["image"]) for x in row], np.int64).reshape(-1, 2)
        for row in table.column("links").to_pylist()
    )


def _relations(table: pa.Table) -> tuple[Mapping[str, bool | None], ...]:
    """Return per document the relations of its first link by name; empty where it has no link."""
    return tuple(
        {relation["name"]: relation["value"] for relation in row[0]["relations"]} if row else {}
        for row in table.column("links").to_pylist()
    )


def _hash_lists(table: pa.Table) -> list[list[str]]:
    return [[image["hash"] for image in row] for row in table.column("images").to_pylist()]


def _role_lists(table: pa.Table) -> list[list[str]]:
    return [[sentence["role"] for sentence in row] for row in table.column("sentences").to_pylist()]


def _lengths(column: pa.ChunkedArray) -> Int64:
    lengths: npt.NDArray[Any] = pc.list_value_length(column).to_numpy()
    return lengths.astype(np.int64)


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


def _read(folder: Folder, entry: FileEntry, columns: Sequence[str], schema: pa.Schema | None = None) -> pa.Table:
    """Return some columns of a part, after its schema and number of rows were checked."""
    with folder.open(entry.path) as stream:
        file = pq.ParquetFile(stream)
        if schema is not None:
            check_schema(file.schema_arrow, schema, where=entry.path)
        table = file.read(columns=list(columns))
    if table.num_rows != entry.rows:
        raise IntegrityError(f"{entry.path}: {table.num_rows} rows, the manifest says {entry.rows}")
    return table


def _name(entry: FileEntry) -> str:
    return entry.path.rsplit("/", 1)[-1]
