"""An index of the pictures of a data set version by one model: made part by part, written whole, its manifest last.

    shard by shard      what is known of pictures (`pictures.py`), their vectors by the tasks that linking runs, too
    PART_ROWS of them   a part: vectors.npy, fields.arrow, words/ (`index.py`)
    over all parts      places.arrow, cells.faiss, confidence.json, manifest.json

An index of another version of the data set by the same model saves most of the work. Pictures of which the same is
known keep their rows, and the new ones are one part more; pictures that are gone keep a row that is not searched.
Where many are gone, or parts are many, the index is made from nothing.
"""

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from newsroom.archive.index import (
    PART_ROWS,
    Confidence,
    Earlier,
    copy_file,
    find_earlier,
    fit_confidence,
    index_manifest,
    write_part,
)
from newsroom.archive.pictures import Pictures
from newsroom.archive.records import Records, write_table
from newsroom.archive.vectors import EXACT_BELOW, QUERIES, Stacked, Vectors, add_to_cells, all_rows, faiss, make_cells
from newsroom.archive.words import tantivy
from schemas.indexes import (
    CELLS,
    CONFIDENCE,
    MODEL,
    PARTS,
    PLACES,
    PLACES_SCHEMA,
    SIGNATURE,
    VECTORS,
    CellsNote,
    IndexManifest,
)
from schemas.lake import MANIFEST, Folder, Lake
from schemas.manifest import FileEntry, Manifest, read_manifest
from schemas.messages import IntegrityError, Say, UsageError
from schemas.parts import Shard, split_parts
from schemas.versions import digest_stream, fingerprint
from training.data.lake import read_bank
from training.data.loading import columns_of, read_for_model
from training.data.ragged import Float32, Int32, Int64
from training.data.threads import one_thread
from training.model import LinkModel
from training.shards import filled_splits, run_shards
from training.towers.inputs import ImageInput, text_input

MOST_MORE = 0.2  # images put into lists that were made without them, of those they were made for
KEPT_CONFIDENCE = 0.02  # change of the number of images up to which probabilities hold


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltIndex:
    """An index that is there now, and whether it was before."""

    manifest: IndexManifest
    folder: Folder
    is_reused: bool

    def lines(self) -> list[str]:
        """Return where it is, how it is searched, and what is known of its pictures."""
        manifest, cells = self.manifest, self.manifest.cells
        how = "searched exactly"
        if cells is not None:
            how = (
                f"searched in {cells.probes} of {cells.cells} lists, recall {cells.recall:.3f} of {cells.measured_with}"
            )
        described = ", ".join(f"{name} {count}" for name, count in manifest.described.items() if count) or "nothing"
        return [
            f"{'reused' if self.is_reused else 'made'}: {self.folder.uri}",
            f"{manifest.images} images of {manifest.dataset} by {manifest.model}, {how}",
            f"fields: {described}",
            f"ranked by: {manifest.rank_by}, unless a search chooses another order",
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the same for a machine."""
        manifest = self.manifest
        return {
            "path": self.folder.uri,
            "reused": self.is_reused,
            "model": manifest.model,
            "dataset": manifest.dataset,
            "images": manifest.images,
            "described": manifest.described,
            "rank_by": manifest.rank_by,
            "bytes": sum(entry.bytes for entry in manifest.files),
        }


def build_index(
    model: LinkModel,
    lake: Lake,
    reference: str,
    *,
    uri: str,
    name: str,
    save: Callable[[Path], None] | None = None,
    exact_below: int = EXACT_BELOW,
    sign: Callable[[bytes], bytes | None] = lambda _: None,
    accepts: Callable[[Folder], bool] = lambda _: True,
    say: Say,
) -> BuiltIndex:
    """Make the pictures of `NAME[@VERSION]` searchable by a model, or find that they are.

    Args:
        model: whose vectors are compared.
        lake: holds the data set and gets the index.
        reference: data set and version.
        uri: address of the model, with its version.
        name: under which the index lies beside others of the version.
        save: writes the model's files into a folder; None: the model does.
        exact_below: number of images from which the index is approximate.
        sign: returns the signature of a manifest, which is written beside it.
        accepts: whether an index that is there, or of another version, may be used.
        say: takes a line of progress.

    Raises:
        NotFoundError: the data set or version is not there.
        UsageError: it lacks the vectors the model reads, or has no picture.
    """
    manifest, source = read_manifest(lake, reference)
    target = lake.index(manifest.dataset, manifest.version, name)
    rows_by = _rows_by(model, manifest)
    data = hashlib.sha256(source.read(MANIFEST)).hexdigest()
    made_by = fingerprint({"rows": rows_by, "data": data, "exact_below": exact_below})
    if (there := index_manifest(target)) is not None and there.made_by == made_by and accepts(target):
        return BuiltIndex(manifest=there, folder=target, is_reused=True)
    target.remove()
    with tempfile.TemporaryDirectory(prefix="multilink-index-") as scratch, one_thread():
        shards = [shard for split in filled_splits(manifest) for shard in split_parts(manifest, split)]
        pictures = Pictures.of(manifest, source, shards)
        if not len(pictures.keys):
            raise UsageError(f"{manifest.reference}: expected images to index, found none")
        earlier = find_earlier(lake, manifest, name, rows_by, keys=pictures.keys, accepts=accepts)
        making = _Making(model, pictures, earlier, Path(scratch))
        making.write_parts(say)
        known = making.write_rest(exact_below, say)
        (save or model.save)(Path(scratch) / MODEL)
        files = tuple(making.put(target))
    index = IndexManifest(model=uri, dataset=manifest.reference, made_by=made_by, rows_by=rows_by, files=files, **known)
    text = index.to_json().encode()
    if (signature := sign(text)) is not None:
        target.write(SIGNATURE, signature)
    target.write(MANIFEST, text)
    return BuiltIndex(manifest=index, folder=target, is_reused=False)


def _rows_by(model: LinkModel, manifest: Manifest) -> str:
    """Return the fingerprint of what else than a picture decides its row in an index."""
    features = [column.fingerprint for column in manifest.columns("images")]
    libraries = {"numpy": np.__version__, "pyarrow": pa.__version__, "tantivy": tantivy().__version__}
    return fingerprint({"model": model.digest(), "features": features, "libraries": libraries, "format": 3})


@dataclass(slots=True)
class _Making:
    """An index that is being made.

    Attributes:
        model: whose vectors are compared.
        pictures: of the version.
        earlier: the index of another version.
        scratch: folder that gets the files that are new.
        rows: of each picture, its row in the index; -1: it has none yet.
        parts: names of all parts, those that are kept first.
        count: rows of all parts.
    """

    model: LinkModel
    pictures: Pictures
    earlier: Earlier | None
    scratch: Path
    rows: Int64 = field(init=False)
    parts: list[str] = field(default_factory=list)
    count: int = 0

    def __post_init__(self) -> None:
        self.rows = np.full(len(self.pictures.keys), -1, np.int64)
        if self.earlier is not None:
            self.parts, self.count = list(self.earlier.manifest.parts), self.earlier.manifest.rows

    def write_parts(self, say: Say) -> None:
        """Write the pictures that are in no kept part as parts."""
        tables, vectors = list[pa.Table](), list[Float32]()
        for table, embedded in self._new(say):
            tables.append(table)
            vectors.append(embedded)
            if sum(map(len, tables)) >= PART_ROWS:
                self._write_part(tables, vectors)
                tables, vectors = [], []
        if tables:
            self._write_part(tables, vectors)

    def _write_part(self, tables: list[pa.Table], vectors: list[Float32]) -> None:
        name, keys = write_part(tables, vectors, self.scratch / PARTS)
        self.rows[np.searchsorted(self.pictures.keys, keys)] = self.count + np.arange(len(keys))
        self.parts.append(name)
        self.count += len(keys)

    def _new(self, say: Say) -> Iterator[tuple[pa.Table, Float32]]:
        """Yield shard by shard what is known of the pictures that get a new row, and their vectors."""
        pictures, earlier = self.pictures, self.earlier
        known = np.full(len(pictures.keys), -1, np.int64)
        if earlier is not None:
            known = earlier.records.rows_with(pictures.keys)
        own = [pictures.of_shard(number) for number in range(len(pictures.shards))]
        wanted = {s: pictures.row[rows[known[rows] < 0]] for s, rows in zip(pictures.shards, own, strict=True)}
        card = self.model.card
        task = partial(_embed, (pictures.manifest, pictures.source), wanted)
        embedded = run_shards(self.model, task, [shard for shard in pictures.shards if len(wanted[shard])])
        for number, (shard, rows) in enumerate(zip(pictures.shards, own, strict=True)):
            table, before = pictures.fields(number), known[rows]
            there = np.flatnonzero(before >= 0)
            if earlier is not None:
                same = there[earlier.have(table.take(there), before[there])]
                self.rows[rows[same]] = before[same]
            is_new = self.rows[rows] < 0
            vectors = np.empty((len(rows), card.config.dimensions), np.float32)
            if len(wanted[shard]):
                vectors[before < 0] = next(embedded)
            if earlier is not None:
                vectors[there] = earlier.vectors[before[there]]
            say(f"{shard.split}, {shard.name}: {len(rows)} images, {int(is_new.sum())} of them new")
            if is_new.any():
                yield table.filter(pa.array(is_new)), vectors[is_new]

    def write_rest(self, exact_below: int, say: Say) -> dict[str, Any]:
        """Write what is over all parts; return what the manifest says of it."""
        kept, home = self.earlier, self.scratch
        folders = [(kept.here if kept and part in kept.manifest.parts else home) / PARTS / part for part in self.parts]
        write_table(self._places(), home / PLACES)
        records = Records.open(folders, home / PLACES)
        say(f"{records.count} images; writing how they are searched")
        paths = [folder / VECTORS for folder in folders]
        cells = None
        if records.count >= exact_below:
            cells = self._write_cells(records, Vectors.open(paths, None, None, 0).rows)
        cells_path, probes = (home / CELLS, cells.probes) if cells else (None, 0)
        vectors = Vectors.open(paths, records.live, cells_path, probes)
        confidence = self._confidence(records, vectors)
        if confidence is not None:
            (home / CONFIDENCE).write_text(confidence.to_json(), encoding="utf-8")
            for line in confidence.lines():
                say(line)
        return {
            "images": records.count,
            "rows": self.count,
            "dimensions": vectors.rows.dimensions,
            "parts": tuple(self.parts),
            "cells": cells,
            "rank_by": confidence.rank_by if confidence else "visual",
            "described": records.described(),
        }

    def _places(self) -> pa.Table:
        """Return of every row where its picture is in the version."""
        shard, row = np.full(self.count, -1, np.int32), np.zeros(self.count, np.int32)
        shard[self.rows], row[self.rows] = self.pictures.shard, self.pictures.row
        paths = pa.array([each.images.path for each in self.pictures.shards], pa.string())
        parts = pa.DictionaryArray.from_arrays(pa.array(shard, mask=shard < 0), paths)
        return pa.table([parts, pa.array(row, mask=shard < 0)], PLACES_SCHEMA)

    def _write_cells(self, records: Records, rows: Stacked) -> CellsNote:
        """Write lists of all pictures, or put the new ones into the lists that there are."""
        kept, path = self.earlier, str(self.scratch / CELLS)
        note = kept.manifest.cells if kept else None
        if kept is not None and note is not None and records.count <= (1 + MOST_MORE) * note.images:
            made = faiss().read_index(str(kept.here / CELLS))
            before = kept.manifest.rows
            made.remove_ids(np.flatnonzero(kept.records.is_live & ~records.is_live[:before]))
            add_to_cells(made, rows, np.arange(before, len(rows)))
        else:
            queries, measured_with = _queries(self.model, self.pictures, rows, records.live)
            made, note = make_cells(rows, records.live, queries, measured_with)
        faiss().write_index(made, path)
        return note

    def _confidence(self, records: Records, vectors: Vectors) -> Confidence | None:
        """Return the probabilities of results, those that are known while they hold; None where there are none."""
        if self.earlier is not None and (path := self.earlier.here / CONFIDENCE).is_file():
            known = Confidence.from_json(path.read_text(encoding="utf-8"), where=str(path))
            if abs(records.count - known.images) <= KEPT_CONFIDENCE * known.images:
                return known
        with suppress(UsageError):  # no vectors of sentences, no roles, no language: an archive has no texts
            return fit_confidence(self.model, self.pictures.manifest, self.pictures.source, records, vectors)
        return None

    def put(self, target: Folder) -> Iterator[FileEntry]:
        """Put all files into the lake; yield their entries, in order of their paths."""
        new = {path.relative_to(self.scratch).as_posix() for path in self.scratch.rglob("*") if path.is_file()}
        old = self.earlier.manifest.files if self.earlier else ()
        lent = {entry.path: entry for entry in old if entry.path.startswith(f"{PARTS}/")}
        for name in sorted(new | lent.keys()):
            if name in new:
                copy_file(name, Folder(str(self.scratch)), target)
                with (path := self.scratch / name).open("rb") as stream:
                    yield FileEntry(path=name, bytes=path.stat().st_size, sha256=digest_stream(stream), rows=0)
            elif self.earlier is not None:
                target.link(name, self.earlier.folder)
                yield lent[name]


def _embed(version: tuple[Manifest, Folder], wanted: Mapping[Shard, Int32], model: LinkModel, shard: Shard) -> Float32:
    """Return the vectors of some rows of a shard's images part."""
    columns = replace(columns_of(model.card.config.reading, model.card.data), sentences=None)
    bank = read_bank(*version, [shard.images], columns, rows=wanted[shard].tolist())
    given = ImageInput(vectors=bank.vectors, regions=bank.regions, jpegs=bank.jpegs)
    vectors = model.encode_images(given, np.arange(len(bank.hashes)))
    if not np.isfinite(vectors).all():
        raise IntegrityError(f"{shard.images.path}: an image has a vector that is not finite")
    return vectors


def _queries(
    model: LinkModel, pictures: Pictures, rows: Stacked, live: Int64 | None
) -> tuple[Float32, Literal["texts", "pictures"]]:
    """Return vectors to measure recall with: of texts of the version, or where the model can read none, of pictures."""
    found: list[Float32] = []
    with suppress(UsageError):  # no vectors of sentences, no roles, no language: an archive has no texts
        for shard in pictures.shards:
            if sum(map(len, found)) < QUERIES:
                card, of = model.card, (pictures.manifest, pictures.source, shard.split)
                read = read_for_model(card.config.reading, card.data, *of, shards=[shard])
                found.append(model.encode_sentences(text_input(read))[:QUERIES])
    if sum(map(len, found)):
        return np.concatenate(found)[:QUERIES], "texts"
    searched = all_rows(len(rows), live)
    return rows[searched[:: max(1, len(searched) // QUERIES)][:QUERIES]], "pictures"
