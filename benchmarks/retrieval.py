"""Search among a million image vectors: what `multilink search` does once its query is a vector, against faiss's flat
index of the same rows in the same run.

    python -m benchmarks.retrieval [--images 1000000] [--json]

No archive of a million pictures is at hand, so rows are drawn, with what makes search hard: groups of very different
sizes, a spectrum that falls slowly, and queries that stand apart from all rows, as texts do from pictures, and are
noisier. One core: times are of this thread's processor and, beside them, of the clock, which other work on the machine
lengthens. Making the index and searching it are processes of their own, so that each one's memory is known. Goals for a
million rows of 256 numbers: half of the queries within 10 ms, 95% within 30, with a filter that leaves 1% within 20,
recall of the first 50 at least 0.98, made within 3 minutes, 400 MB of memory while searching.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from schemas.metadata import Metadata
from training.retrieval.filters import parse_filters
from training.retrieval.records import Picture, Records, write_records
from training.retrieval.vectors import RECALL_OF, Vectors, faiss, make_cells

IMAGES, DIMENSIONS, GROUPS = 1_000_000, 256, 5_000
ROWS_AT_ONCE = 50_000
QUERIES, FLAT_QUERIES, MEASURED_WITH = 400, 40, 256
FILTERS = {"1%": "date=2001-01-08", "10%": "credit=agency 3"}
SPREAD = 0.7  # of rows around the centre of their group, in the centres' own spread
TEXT_NOISE, APART = 0.7, 1.0  # in lengths of a row
LAST = 64  # directions, of little variance, in which queries stand apart


@dataclass(frozen=True)
class World:
    """Where rows and queries are drawn from."""

    centres: np.ndarray
    shares: np.ndarray
    scales: np.ndarray
    apart: np.ndarray

    @classmethod
    def make(cls) -> World:
        rng = np.random.default_rng(0)
        scales = (1 / np.sqrt(1 + np.arange(DIMENSIONS))).astype(np.float32)
        sizes = 1 / np.arange(1, GROUPS + 1) ** 0.8
        centres = rng.standard_normal((GROUPS, DIMENSIONS), dtype=np.float32) * scales
        apart = np.zeros(DIMENSIONS, np.float32)
        apart[-LAST:] = 1.0
        return cls(centres, sizes / sizes.sum(), scales, apart)

    def rows(self, seed: int, count: int) -> np.ndarray:
        """Return `count` unit vectors around the groups' centres."""
        rng = np.random.default_rng([1, seed])
        noise = rng.standard_normal((count, DIMENSIONS), dtype=np.float32) * self.scales
        found = self.centres[rng.choice(GROUPS, size=count, p=self.shares)] + SPREAD * noise
        return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True), np.float32)

    def texts(self, seed: int, count: int) -> np.ndarray:
        """Return `count` queries: a text is like one picture, with noise of its own, and stands apart from all."""
        noise = np.random.default_rng([2, seed]).standard_normal((count, DIMENSIONS), dtype=np.float32) * self.scales
        noise *= TEXT_NOISE / np.linalg.norm(noise, axis=1, keepdims=True)
        found = self.rows(10**6 + seed, count) + noise + APART * self.apart / np.linalg.norm(self.apart)
        return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True), np.float32)


def write_rows(folder: Path, images: int) -> None:
    """Write the vectors, and the pictures: a hundred dates and ten agencies."""
    world = World.make()
    rows = np.lib.format.open_memmap(folder / "vectors.npy", mode="w+", dtype=np.float32, shape=(images, DIMENSIONS))
    for number, start in enumerate(range(0, images, ROWS_AT_ONCE)):
        count = min(ROWS_AT_ONCE, images - start)
        rows[start : start + count] = world.rows(number, count)
    rows.flush()
    pictures = (
        Picture(
            image=f"{row:064x}",
            metadata=Metadata(
                credit=f"agency {row % 10}", date=f"2001-{1 + row % 100 // 10:02d}-{1 + row * 7 % 10:02d}"
            ),
        )
        for row in range(images)
    )
    write_records(folder / "images.sqlite", pictures)


def make_index(folder: Path) -> dict[str, Any]:
    """Make the approximate index as `multilink index` does."""
    rows = np.load(folder / "vectors.npy", mmap_mode="r")
    clock, processor = time.perf_counter(), time.process_time()
    made, note = make_cells(rows, World.make().texts(0, MEASURED_WITH), "texts")
    faiss().write_index(made, str(folder / "cells.faiss"))
    return {
        "seconds": time.perf_counter() - clock,
        "processor_s": time.process_time() - processor,
        "cells": note.cells,
        "probes": note.probes,
        "recall_when_made": note.recall,
    }


def search_index(folder: Path, probes: int) -> dict[str, Any]:
    """Search as `multilink search` does, without and with filters; memory is of the whole process."""
    faiss().omp_set_num_threads(1)
    found: dict[str, Any] = {"memory_before_mb": memory_mb()["memory_own_mb"]}  # Python, numpy, torch, faiss
    vectors = Vectors.open(folder / "vectors.npy", folder / "cells.faiss", probes)
    records = Records(folder / "images.sqlite")
    queries = World.make().texts(1, QUERIES)
    truth = np.load(folder / "truth.npy")
    answers: list[np.ndarray] = []
    found["no filter"] = timed(queries, lambda query: answers.append(vectors.nearest(query, RECALL_OF).rows))
    shares = [np.isin(want, have).mean() for want, have in zip(truth, answers[-QUERIES:], strict=False)]
    found["recall"] = float(np.mean(shares))
    for name, where in FILTERS.items():
        filters = parse_filters([where])
        left = records.select(filters)
        assert left is not None
        found[f"filter that leaves {name}"] = timed(
            queries, lambda query, filters=filters: vectors.nearest(query, RECALL_OF, records.select(filters))
        ) | {"left": len(left)}
    return found | memory_mb()


def search_flat(folder: Path) -> dict[str, Any]:
    """Search with faiss's flat index; what it finds is the truth of the first queries."""
    library = faiss()
    library.omp_set_num_threads(1)
    flat = library.IndexFlatIP(DIMENSIONS)
    rows = np.load(folder / "vectors.npy", mmap_mode="r")
    for start in range(0, len(rows), ROWS_AT_ONCE):
        flat.add(np.ascontiguousarray(rows[start : start + ROWS_AT_ONCE]))
    queries = World.make().texts(1, QUERIES)
    found = timed(queries[:FLAT_QUERIES], lambda query: flat.search(query[None], RECALL_OF))
    np.save(folder / "truth.npy", flat.search(queries, RECALL_OF)[1])
    return found | memory_mb()


def timed(queries: np.ndarray, search: Callable[[np.ndarray], object]) -> dict[str, float]:
    """Return the median and the 95th percentile of a query's processor and clock time, in ms, after a warm-up."""
    for query in queries[: max(1, len(queries) // 4)]:
        search(query)
    clock, processor = [], []
    for query in queries:
        before, used = time.perf_counter(), time.thread_time()
        search(query)
        clock.append(1000 * (time.perf_counter() - before))
        processor.append(1000 * (time.thread_time() - used))
    times = {"processor": processor, "clock": clock}
    return {f"{name}_p{share}_ms": float(np.percentile(of, share)) for name, of in times.items() for share in (50, 95)}


def memory_mb() -> dict[str, float]:
    """Return this process's own memory, and its largest with what it had mapped of files."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    names = {"RssAnon": "memory_own_mb", "RssFile": "memory_mapped_mb", "VmHWM": "memory_peak_mb"}
    return {told: int(lines[name].split()[0]) / 1024 for name, told in names.items()}


def alone(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function gives in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=IMAGES)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON in the last line")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="multilink-bench-") as scratch:
        folder = Path(scratch)
        alone(write_rows, folder, options.images)
        made = alone(make_index, folder)
        print(f"made: {told(made)}", flush=True)
        flat = alone(search_flat, folder)
        print(f"faiss flat: {told(flat)}", flush=True)
        ours = alone(search_index, folder, made["probes"])
        for name, figures in ours.items():
            print(f"{name}: {told(figures) if isinstance(figures, dict) else f'{figures:.4g}'}", flush=True)
    if options.json:
        print(json.dumps({"made": made, "flat": flat, "search": ours}))


def told(figures: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in figures.items())


if __name__ == "__main__":
    main()
