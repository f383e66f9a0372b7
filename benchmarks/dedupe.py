"""Exact near-duplicate search against faiss, in one run, on equal results.

    python benchmarks/dedupe.py [--codes 300000] [--radius 3] [--queries 20000] [--json]

The peer is `faiss.IndexBinaryFlat.range_search` on all cores: it compares every query with every code, so it sees each
pair from both sides. All 300,000 against all can take it a minute: it answers a random sample of `--queries` codes, and
its time for all is that times codes / queries (its work is exactly proportional; `--queries 0` runs all). The pairs of
the sampled codes must be the same, each with its distance. Three kinds of codes: uniform; real-like, where 1% of codes
are near-copies and bits vary together; and crowded, where half of the codes lie in 100 balls of 5 bits.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable

import faiss
import numpy as np

from pipelines.dedupe.hamming import NearPairs, near_pairs

Random = np.random.Generator


def uniform(count: int, random: Random) -> np.ndarray:
    return random.integers(0, 2**64, count, dtype=np.uint64)


def real_like(count: int, random: Random) -> np.ndarray:
    """Return codes whose bits are not independent: a few pictures' layouts, mixed, plus near-copies."""
    layouts = random.integers(0, 2**64, 4096, dtype=np.uint64)
    codes = layouts[random.integers(0, len(layouts), count)]
    codes ^= random.integers(0, 2**64, count, dtype=np.uint64) & random.integers(0, 2**64, count, dtype=np.uint64)
    copies = count // 100
    codes[:copies] = flip(codes[copies : 2 * copies], 3, random)
    return codes


def crowded(count: int, random: Random) -> np.ndarray:
    codes = uniform(count, random)
    centres = uniform(100, random)
    codes[: count // 2] = flip(centres[random.integers(0, len(centres), count // 2)], 5, random)
    return codes


def flip(codes: np.ndarray, times: int, random: Random) -> np.ndarray:
    flipped = codes.copy()
    for _ in range(times):
        flipped ^= np.uint64(1) << random.integers(0, 64, len(codes), dtype=np.uint64)
    return flipped


def search_with_faiss(codes: np.ndarray, rows: np.ndarray, radius: int) -> tuple[np.ndarray, float]:
    """Return (row, other row, distance) of the pairs of the sampled rows, sorted, and the seconds taken."""
    octets = codes.view(np.uint8).reshape(len(codes), 8)
    index = faiss.IndexBinaryFlat(64)
    index.add(octets)
    begin = time.perf_counter()
    limits, distances, found = index.range_search(octets[rows], radius + 1)  # faiss means: nearer than
    seconds = time.perf_counter() - begin
    pairs = np.stack([np.repeat(rows, np.diff(limits.astype(np.int64))), found, distances.astype(np.int64)], axis=1)
    return sort_rows(pairs[pairs[:, 0] != pairs[:, 1]]), seconds


def pairs_of_rows(near: NearPairs, rows: np.ndarray) -> np.ndarray:
    """Return the same of a search over distinct codes in sorted order."""
    both = np.concatenate([near.pairs, near.pairs[:, ::-1]])
    triples = np.column_stack([both, np.tile(near.distances, 2)])
    return sort_rows(triples[np.isin(triples[:, 0], rows)])


def sort_rows(rows: np.ndarray) -> np.ndarray:
    return rows[np.lexsort(rows.T[::-1])]


def fastest(search: Callable[[], NearPairs], repeats: int = 3) -> tuple[NearPairs, float]:
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        found = search()
        seconds.append(time.perf_counter() - begin)
    return found, min(seconds)


def compare(codes: np.ndarray, *, radius: int, queries: int, random: Random) -> dict[str, float]:
    codes = np.unique(codes)
    rows = np.arange(len(codes)) if queries == 0 else random.choice(len(codes), min(queries, len(codes)), replace=False)
    expected, faiss_seconds = search_with_faiss(codes, rows, radius)
    near, seconds = fastest(lambda: near_pairs(codes, radius))
    np.testing.assert_array_equal(pairs_of_rows(near, rows), expected)
    scaled = faiss_seconds * len(codes) / len(rows)
    return {
        "codes": len(codes),
        "pairs": len(near.pairs),
        "seconds": seconds,
        "faiss_seconds": scaled,
        "faiss_share": len(rows) / len(codes),
        "ratio": scaled / seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--codes", type=int, default=300_000)
    parser.add_argument("--radius", type=int, default=3)
    parser.add_argument("--queries", type=int, default=20_000)
    parser.add_argument("--json", action="store_true", help="print the ratios as the last line")
    options = parser.parse_args()
    random = np.random.default_rng(0)
    print(f"exact pairs within {options.radius} bits; faiss {faiss.__version__}, {os.cpu_count()} cores, equal results")
    print(
        f"{'codes':<12}{'distinct':>10}{'pairs':>10}{'multilink s':>13}{'faiss s':>10}{'of which ran':>14}{'ratio':>8}"
    )
    ratios = {}
    for make in (uniform, real_like, crowded):
        row = compare(make(options.codes, random), radius=options.radius, queries=options.queries, random=random)
        name = make.__name__.replace("_", "-")
        print(
            f"{name:<12}{row['codes']:>10,}{row['pairs']:>10,}{row['seconds']:>13.3f}"
            f"{row['faiss_seconds']:>10.1f}{row['faiss_share']:>14.1%}{row['ratio']:>7.0f}x"
        )
        ratios[name] = round(row["ratio"], 1)
    if options.json:
        print(json.dumps(ratios))


if __name__ == "__main__":
    main()
