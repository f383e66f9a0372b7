"""Indexes of a drawn archive (`archive_data.py`) by a model that reads texts, for `benchmarks.pages`.

What is known of pictures is the archive's own, written by what `multilink index` writes parts with. Vectors are those
of a small index, with noise; its model reads the queries. A second index has the same files and another model, whose
texts lie a little elsewhere: the two are compared blind.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.archive_data import DATASET
from newsroom.archive.index import Index, open_index
from newsroom.archive.parts import PART_ROWS, write_part
from newsroom.archive.pictures import Pictures
from newsroom.archive.records import Records, write_table
from newsroom.archive.vectors import EXACT_BELOW, QUERIES, Stacked, faiss, make_cells
from schemas.indexes import CELLS, CONFIDENCE, MODEL, PARTS, PLACES, PLACES_SCHEMA, VECTORS, CellsNote
from schemas.lake import MANIFEST, Lake
from schemas.manifest import read_manifest
from schemas.parts import split_parts
from training.model import LinkModel
from training.shards import filled_splits

VERSION, NAMES = "v2", ("editor-1", "editor-2")
NOISE = 0.6  # of a picture's vector, in its own length
ELSEWHERE = 0.3  # noise of the second model's texts, in the spread of its weights


def make_indexes(small: Path, archive: Lake) -> tuple[Path, Path]:
    """Return the folders of both indexes of the archive, made where they are not there."""
    folders = tuple(Path(str(archive.index(DATASET, VERSION, name).local)) for name in NAMES)
    if not (folders[0] / MANIFEST).is_file():
        shutil.rmtree(folders[0], ignore_errors=True)
        _make(open_index(str(small)), small, archive, folders[0])
    if not (folders[1] / MANIFEST).is_file():
        shutil.rmtree(folders[1], ignore_errors=True)
        _second(folders[0], folders[1])
    return folders[0], folders[1]


def _make(small: Index, folder: Path, archive: Lake, target: Path) -> None:
    manifest, source = read_manifest(archive, f"{DATASET}@{VERSION}")
    shards = [shard for split in filled_splits(manifest) for shard in split_parts(manifest, split)]
    pictures = Pictures.of(manifest, source, shards)
    own = small.vectors.rows[np.flatnonzero(small.records.is_live)]
    rng, rows = np.random.default_rng(0), np.zeros(len(pictures.keys), np.int64)
    names, tables, vectors, start = list[str](), list[pa.Table](), list[np.ndarray](), 0
    for number in range(len(shards)):
        tables.append(pictures.fields(number))
        vectors.append(_noisy(own, len(tables[-1]), rng))
        if sum(map(len, tables)) >= PART_ROWS or number == len(shards) - 1:
            name, keys = write_part(tables, vectors, target / PARTS)
            rows[start : start + len(keys)] = np.searchsorted(pictures.keys, keys)
            names, tables, vectors, start = [*names, name], [], [], start + len(keys)
    paths = pa.array([shard.images.path for shard in shards], pa.string())
    places = [pa.DictionaryArray.from_arrays(pa.array(pictures.shard[rows]), paths), pa.array(pictures.row[rows])]
    write_table(pa.table(places, PLACES_SCHEMA), target / PLACES)
    note = _write_cells(Stacked([np.load(target / PARTS / name / VECTORS, mmap_mode="r") for name in names]), target)
    for name in (MODEL, CONFIDENCE):
        if (folder / name).exists():
            (target / name).symlink_to((folder / name).resolve())
    records = Records.open([target / PARTS / name for name in names], target / PLACES)
    known: dict[str, Any] = {"model": "models:/editor/1", "dataset": manifest.reference, "made_by": NAMES[0]}
    known |= {"images": len(rows), "rows": len(rows), "parts": tuple(names), "cells": note, "files": ()}
    made = replace(small.manifest, **known, described=records.described())
    (target / MANIFEST).write_text(made.to_json(), encoding="utf-8")


def _noisy(own: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return unit vectors, each near one of some."""
    noise = rng.standard_normal((count, own.shape[1]), dtype=np.float32)
    noisy = own[rng.integers(len(own), size=count)] + NOISE * noise / np.linalg.norm(noise, axis=1, keepdims=True)
    return np.asarray(noisy / np.linalg.norm(noisy, axis=1, keepdims=True), np.float32)


def _write_cells(rows: Stacked, target: Path) -> CellsNote | None:
    if len(rows) < EXACT_BELOW:
        return None
    made, note = make_cells(rows, None, rows[np.arange(QUERIES) * (len(rows) // QUERIES)], "pictures")
    faiss().write_index(made, str(target / CELLS))
    return note


def _second(first: Path, target: Path) -> None:
    """Write the index of a model that reads texts a little otherwise."""
    import torch

    opened = open_index(str(first))
    target.mkdir(parents=True)
    for path in first.iterdir():
        if path.name not in (MODEL, MANIFEST):
            (target / path.name).symlink_to(path)
    model: LinkModel = opened.model
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        for weights in model.text.parameters():
            weights.add_(torch.randn_like(weights) * weights.std().nan_to_num(0.1) * ELSEWHERE)
    model.save(target / MODEL)
    made = replace(opened.manifest, model="models:/editor/2", made_by=NAMES[1])
    (target / MANIFEST).write_text(made.to_json(), encoding="utf-8")
