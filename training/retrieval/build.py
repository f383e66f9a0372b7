"""An index of the pictures of a data set version by one model: made part by part, written whole, its manifest last.

Pictures are read as training and linking read them, so a picture has one vector wherever it is embedded. Rows are in
order of content hash: how many parts a version has changes nothing. What was made of the same model, version and
libraries before is taken over.
"""

import hashlib
import shutil
import sqlite3
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from schemas.console import Say
from schemas.documents import Role, image_schema
from schemas.duplicates import DUPLICATE_SCHEMA
from schemas.errors import IntegrityError, UsageError
from schemas.indexes import CellsNote, IndexManifest
from schemas.lake import MANIFEST, Folder, Lake
from schemas.manifest import FileEntry, Manifest, read_manifest, table_parts
from schemas.metadata import Metadata
from schemas.parts import Shard, read_part, split_parts
from schemas.tables import check_schema
from schemas.versions import fingerprint
from training.data.documents import DocumentSet
from training.data.lake import Columns, read_split
from training.data.loading import columns_of, read_for_model
from training.data.ragged import Float32
from training.data.threads import one_thread
from training.model import LinkModel
from training.retrieval.confidence import CONFIDENCE, Confidence, fit_confidence
from training.retrieval.records import Picture, write_records
from training.retrieval.vectors import EXACT_BELOW, QUERIES, Vectors, faiss, make_cells
from training.retrieval.words import Words, bm25s
from training.shards import filled_splits, run_shards
from training.towers.inputs import image_input, text_input

VECTORS, CELLS, RECORDS, WORDS = "vectors.npy", "cells.faiss", "images.sqlite", "words"
MODEL, SCRATCH = "model", "scratch.f32"
MAX_SHOWN_WITH = 4_000  # characters of the captions of all articles that showed a picture
ROWS_AT_ONCE = 65_536
_COPIED = ("source", "format", "width", "height", "licence")
_COLUMNS = ("hash", *_COPIED, "metadata")


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
            f"known of them: {described}",
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the same for a machine."""
        names = ("model", "dataset", "images", "described")
        about = {"path": self.folder.uri, "reused": self.is_reused}
        size = sum(entry.bytes for entry in self.manifest.files)
        return about | {name: getattr(self.manifest, name) for name in names} | {"bytes": size}


def build_index(
    model: LinkModel,
    lake: Lake,
    reference: str,
    *,
    uri: str,
    name: str,
    exact_below: int = EXACT_BELOW,
    say: Say,
) -> BuiltIndex:
    """Make the pictures of `NAME[@VERSION]` searchable by a model, or find that they are.

    Args:
        model: whose vectors are compared.
        lake: holds the data set and gets the index.
        reference: data set and version.
        uri: address of the model, with its version.
        name: under which the index lies beside others of the version.
        exact_below: number of images from which the index is approximate.
        say: takes a line of progress.

    Raises:
        NotFoundError: the data set or version is not there.
        UsageError: it lacks the vectors the model reads, or has no picture.
    """
    manifest, source = read_manifest(lake, reference)
    target = lake.index(manifest.dataset, manifest.version, name)
    made_by = _made_by(model, source, exact_below)
    if (earlier := _earlier(target)) is not None and earlier.made_by == made_by:
        return BuiltIndex(manifest=earlier, folder=target, is_reused=True)
    target.delete(MANIFEST)  # the files are about to change
    with tempfile.TemporaryDirectory(prefix="multilink-index-") as scratch, one_thread():
        folder = Path(scratch)
        archive = _read(model, manifest, source, folder, say)
        count = len(archive.pictures)
        say(f"{count} images embedded; writing their index")
        vectors = _write_vectors(archive, folder)
        index = IndexManifest(
            model=uri,
            dataset=manifest.reference,
            made_by=made_by,
            images=count,
            dimensions=vectors.shape[1],
            cells=_write_cells(model, manifest, source, vectors, folder) if count >= exact_below else None,
            described=write_records(folder / RECORDS, archive.in_order()),
            files=(),
        )
        Words.of(picture.text for picture in archive.in_order()).save(folder / WORDS)
        model.save(folder / MODEL)
        cells = None if index.cells is None else folder / CELLS
        opened = Vectors.open(folder / VECTORS, cells, index.cells.probes if index.cells else 0)
        rows = {key: row for row, key in enumerate(sorted(archive.rows))}
        if (confidence := _confidence(model, manifest, source, opened, rows)) is not None:
            (folder / CONFIDENCE).write_text(confidence.to_json(), encoding="utf-8")
            say(confidence.lines()[0])
        names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        index = replace(index, files=tuple(_copy(folder / name, target, name) for name in names if name != SCRATCH))
    target.write(MANIFEST, index.to_json().encode())
    return BuiltIndex(manifest=index, folder=target, is_reused=False)


def _confidence(
    model: LinkModel, manifest: Manifest, source: Folder, vectors: Vectors, row_of: dict[str, int]
) -> Confidence | None:
    """Return the probabilities of results; None where the model cannot read the version's texts, or none is linked."""
    try:
        return fit_confidence(model, manifest, source, vectors, row_of)
    except UsageError:  # no vectors of sentences, no roles, no language: an archive has no texts
        return None


def _earlier(target: Folder) -> IndexManifest | None:
    """Return the manifest of an index that is there, in the format of today."""
    with suppress(IntegrityError, FileNotFoundError):
        return IndexManifest.from_json(target.read(MANIFEST).decode(), where=target.uri)
    return None


def _made_by(model: LinkModel, source: Folder, exact_below: int) -> str:
    libraries = {"sqlite": sqlite3.sqlite_version, "numpy": np.__version__, "bm25s": bm25s().__version__}
    return fingerprint(
        {
            "model": model.digest(),
            "data": hashlib.sha256(source.read(MANIFEST)).hexdigest(),
            "exact_below": exact_below,
            "libraries": libraries,
            "format": 2,
        }
    )


@dataclass(slots=True)
class _Archive:
    """The pictures of a version, by content hash.

    Attributes:
        scratch: file of N x d numbers, in the order in which pictures came.
        dimensions: d.
        pictures: each different one.
        rows: of its vector in that file.
        captions: those that articles have for it.
    """

    scratch: Path
    dimensions: int
    pictures: dict[str, Picture] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    captions: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def in_order(self) -> Iterator[Picture]:
        """Yield the pictures in order of content hash."""
        for key in sorted(self.pictures):
            shown_with = " ".join(sorted(self.captions.get(key, ())))[:MAX_SHOWN_WITH]
            yield replace(self.pictures[key], shown_with=shown_with or None)


def _read(model: LinkModel, manifest: Manifest, source: Folder, folder: Path, say: Say) -> _Archive:
    """Read all pictures, part by part; their vectors go to a scratch file in the order they come in."""
    clusters = _clusters(manifest, source)
    found = _Archive(folder / SCRATCH, model.card.config.dimensions)
    read = columns_of(model.card.config, model.card.data)
    columns = Columns(images=read.images, sentences=None, regions=read.regions, jpegs=read.jpegs)
    shards = [shard for split in filled_splits(manifest) for shard in split_parts(manifest, split)]
    task = partial(_embed_images, manifest, source, columns)
    with found.scratch.open("wb") as stream:
        for shard, embedded in zip(shards, run_shards(model, task, shards), strict=True):
            entry, vectors = shard.images, embedded.vectors
            for key, caption in embedded.captions:
                found.captions[key].add(caption)
            table = read_part(source, entry, _COLUMNS, image_schema(manifest.columns("images"))).to_pylist()
            known = {row["hash"]: (position, row) for position, row in enumerate(table)}
            for row, key in enumerate(embedded.images):
                if key not in found.rows:
                    found.rows[key] = len(found.rows)
                    position, stored = known[key]
                    found.pictures[key] = Picture(
                        image=key,
                        part=entry.path,
                        part_row=position,
                        cluster=clusters.get(key),
                        metadata=Metadata.of(stored.get("metadata")) or Metadata(),
                        **{name: stored[name] for name in _COPIED},
                    )
                    stream.write(vectors[row].tobytes())
            say(f"{shard.split}, {shard.name}: {len(found.rows)} images so far")
    if not found.rows:
        raise UsageError(f"{manifest.reference}: expected images to index, found none")
    return found


@dataclass(frozen=True, slots=True)
class _EmbeddedImages:
    """Content hashes and vectors of a shard's different images, and captions that its articles have for some."""

    images: tuple[str, ...]
    vectors: Float32
    captions: list[tuple[str, str]]


def _embed_images(
    manifest: Manifest, source: Folder, columns: Columns, model: LinkModel, shard: Shard
) -> _EmbeddedImages:
    documents = read_split(manifest, source, shard.split, columns, shards=[shard])
    vectors = model.encode_images(image_input(documents))
    if not np.isfinite(vectors).all():
        raise IntegrityError(f"{shard.images.path}: an image has a vector that is not finite")
    return _EmbeddedImages(tuple(documents.image_hashes), vectors, list(_captions(documents)))


def _captions(documents: DocumentSet) -> Iterator[tuple[str, str]]:
    """Yield the caption that an article of one picture has for it."""
    for number in range(len(documents)):
        rows, places = documents.sentences.rows(number), documents.images.rows(number)
        images = documents.image_rows[places]
        pairs = zip(documents.texts[rows], (documents.roles or ())[rows], strict=True)
        captions = [text for text, role in pairs if role == Role.CAPTION]
        if len(images) == 1 and captions:
            yield documents.image_hashes[int(images[0])], " ".join(captions)


def _clusters(manifest: Manifest, source: Folder) -> dict[str, str]:
    """Return the cluster of near-duplicates of each image that is in one."""
    found: dict[str, str] = {}
    for part in table_parts(manifest, source, "duplicates"):
        check_schema(part.schema, DUPLICATE_SCHEMA, where=source.uri)
        found |= dict(zip(part.column("image").to_pylist(), part.column("cluster").to_pylist(), strict=True))
    return found


def _write_vectors(found: _Archive, folder: Path) -> Float32:
    """Write the vectors in order of content hash; return them, mapped from the file."""
    shape = len(found.rows), found.dimensions
    unordered = np.memmap(found.scratch, np.float32, "r", shape=shape)
    order = np.array([found.rows[key] for key in sorted(found.rows)], np.int64)
    ordered = np.lib.format.open_memmap(folder / VECTORS, mode="w+", dtype=np.float32, shape=shape)
    for start in range(0, len(order), ROWS_AT_ONCE):
        ordered[start : start + ROWS_AT_ONCE] = unordered[order[start : start + ROWS_AT_ONCE]]
    ordered.flush()
    return ordered


def _write_cells(model: LinkModel, manifest: Manifest, source: Folder, vectors: Float32, folder: Path) -> CellsNote:
    queries, measured_with = _queries(model, manifest, source, vectors)
    made, note = make_cells(vectors, queries, measured_with)
    faiss().write_index(made, str(folder / CELLS))
    return note


def _queries(
    model: LinkModel, manifest: Manifest, source: Folder, vectors: Float32
) -> tuple[Float32, Literal["texts", "pictures"]]:
    """Return vectors to measure recall with: of texts of the version, or where the model can read none, of pictures."""
    found: list[Float32] = []
    try:
        for split in filled_splits(manifest):
            for shard in split_parts(manifest, split):
                if sum(map(len, found)) < QUERIES:
                    read = read_for_model(model.card.config, model.card.data, manifest, source, split, shards=[shard])
                    found.append(model.encode_sentences(text_input(read))[:QUERIES])
    except UsageError:  # no vectors of sentences, no roles, no language: an archive has no texts
        found = []
    texts = np.concatenate([np.zeros((0, vectors.shape[1]), np.float32), *found])[:QUERIES]
    if len(texts):
        return texts, "texts"
    return np.array(vectors[:: max(1, len(vectors) // QUERIES)][:QUERIES]), "pictures"


def _copy(path: Path, target: Folder, name: str) -> FileEntry:
    """Copy a file into the lake; return its entry."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        stream.seek(0)
        sink = target.create(name)
        shutil.copyfileobj(stream, sink.stream, 1 << 20)
        sink.commit()
    return FileEntry(path=name, bytes=path.stat().st_size, sha256=digest, rows=0)
