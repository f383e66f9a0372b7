"""Exact near-duplicate search against faiss, in one run, on equal results; and how time and memory grow.

    python benchmarks/dedupe.py [--codes 300000] [--growth 10] [--queries 10000] [--json]
    python benchmarks/dedupe.py --parts growth --kinds correlated crowded

Targets: 64-bit codes at distance 3 at least 100 times as fast as faiss, 256-bit codes at distance 10 at least 30 times;
ten times the codes in at most 20 times the time and under 3 GB.

The peer is `faiss.IndexBinaryFlat.range_search` on all cores: it compares every query with every code, so it sees each
pair from both sides. All 300,000 against all can take it minutes: it answers a random sample of `--queries` codes, and
its time for all is that times codes / queries (its work is exactly proportional; `--queries 0` runs all). The pairs of
the sampled codes must be the same, each with its distance. Ours takes all codes, the fastest of three runs; beyond a
million codes it uses up to four threads.

Four kinds of codes: uniform; real-like, where 1% of codes are near-copies and bits repeat from a few layouts;
correlated, where each bit is the sign of a mixture of 24 hidden factors and noise, and 1% are near-copies; and crowded,
where half of the codes lie in balls of 5 flipped bits a word, about 1,500 to a ball. Growth is measured in processes of
their own, whose peak memory is that of the search and of what makes the codes.

Found on two quiet cores, times as fast as faiss (with two threads, then used at every size; one takes a sixth longer
on 256 bits, no longer on 64):

    bits   uniform  real-like  correlated  crowded
      64       477        476         476      194
     256       313        319         315      156

Ten times the 64-bit codes took 11.6-15.7, 12.4-13.1, 17.5-21.2 and 11.0-11.3 times the time (3 million: 0.7, 0.7, 0.9
and 1.1 s, under 500 MB): the correlated set is at its target, give or take what the 0.05 s of its 300,000 vary. What it
spends beyond the uniform one is pairs with equal keys: 3.9 times as many as independent bits have with bits in a fixed
order, 2.2 times with those that vary together in different bands. Searching a crowded bucket by further keys gained
nothing: on 200,000 codes in one ball the estimate already picks 66 keys in place of 11.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import faiss
import numpy as np

from pipelines.dedupe.hamming import NearPairs, near_pairs

Random = np.random.Generator

BALL = 1_500  # codes of a crowded data set in one ball
FACTORS = 24
AT_ONCE = 100_000  # codes made in one go


@dataclass(frozen=True)
class Task:
    bits: int
    radius: int
    target: int  # times as fast as faiss

    @property
    def words(self) -> int:
        return self.bits // 64


TASKS = (Task(64, 3, 100), Task(256, 10, 30))
GROWTH_TARGET, GROWTH_MB = 20, 3_000
PARTS = ["faiss", "growth"]


def uniform(count: int, words: int, random: Random) -> np.ndarray:
    return random.integers(0, 2**64, (count, words), dtype=np.uint64)


def real_like(count: int, words: int, random: Random) -> np.ndarray:
    """Return codes whose bits are not independent: a few pictures' layouts, a quarter of the bits changed."""
    layouts = uniform(4096, words, random)
    codes = layouts[random.integers(0, len(layouts), count)]
    codes ^= uniform(count, words, random) & uniform(count, words, random)
    return with_copies(codes, random)


def correlated(count: int, words: int, random: Random) -> np.ndarray:
    mixture = random.standard_normal((FACTORS, words * 64)).astype(np.float32)
    codes = np.empty((count, words), np.uint64)
    for begin in range(0, count, AT_ONCE):
        some = codes[begin : begin + AT_ONCE]
        factors = random.standard_normal((len(some), FACTORS), dtype=np.float32)
        noise = random.standard_normal((len(some), words * 64), dtype=np.float32)
        some[:] = np.packbits(factors @ mixture + 2 * noise > 0, axis=1).view(np.uint64)
    return with_copies(codes, random)


def crowded(count: int, words: int, random: Random) -> np.ndarray:
    codes = uniform(count, words, random)
    centres = uniform(max(1, count // 2 // BALL), words, random)
    codes[: count // 2] = flip(centres[random.integers(0, len(centres), count // 2)], 5 * words, random)
    return codes


def with_copies(codes: np.ndarray, random: Random) -> np.ndarray:
    copies = len(codes) // 100
    codes[:copies] = flip(codes[copies : 2 * copies], 3, random)
    return codes


def flip(codes: np.ndarray, times: int, random: Random) -> np.ndarray:
    flipped = codes.copy()
    for _ in range(times):
        bits = random.integers(0, 64 * codes.shape[1], len(codes))
        flipped[np.arange(len(codes)), bits // 64] ^= np.uint64(1) << (bits % 64).astype(np.uint64)
    return flipped


KINDS: dict[str, Callable[[int, int, Random], np.ndarray]] = {
    "uniform": uniform,
    "real-like": real_like,
    "correlated": correlated,
    "crowded": crowded,
}


def search_with_faiss(codes: np.ndarray, rows: np.ndarray, radius: int) -> tuple[np.ndarray, float]:
    """Return (row, other row, distance) of the pairs of the sampled rows, sorted, and the seconds taken."""
    octets = codes.view(np.uint8).reshape(len(codes), -1)
    index = faiss.IndexBinaryFlat(octets.shape[1] * 8)
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


def fastest(codes: np.ndarray, radius: int, repeats: int = 3) -> tuple[NearPairs, float]:
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        found = near_pairs(codes, radius)
        seconds.append(time.perf_counter() - begin)
    return found, min(seconds)


def compare(codes: np.ndarray, *, radius: int, queries: int, random: Random) -> dict[str, float]:
    codes = np.unique(codes, axis=0)
    rows = np.arange(len(codes)) if queries == 0 else random.choice(len(codes), min(queries, len(codes)), replace=False)
    expected, faiss_seconds = search_with_faiss(codes, rows, radius)
    near, seconds = fastest(codes, radius)
    np.testing.assert_array_equal(near.codes, codes)
    np.testing.assert_array_equal(pairs_of_rows(near, rows), expected)
    scaled = faiss_seconds * len(codes) / len(rows)
    return {"pairs": len(near.pairs), "seconds": seconds, "faiss_seconds": scaled, "ratio": scaled / seconds}


def compare_all(kinds: Sequence[str], *, count: int, queries: int) -> dict[str, float]:
    """Print and return how many times as fast as faiss each kind of codes is searched."""
    print(f"{count:,} codes; faiss {faiss.__version__}, {os.cpu_count()} cores, {queries or count:,} queries")
    print(
        f"{'bits':>5}{'radius':>7}  {'codes':<12}{'pairs':>12}{'multilink s':>13}"
        f"{'faiss s':>10}{'ratio':>8}{'target':>8}"
    )
    ratios: dict[str, float] = {}
    for task in TASKS:
        for name in kinds:
            random = np.random.default_rng(0)
            row = compare(KINDS[name](count, task.words, random), radius=task.radius, queries=queries, random=random)
            print(
                f"{task.bits:>5}{task.radius:>7}  {name:<12}{row['pairs']:>12,}{row['seconds']:>13.3f}"
                f"{row['faiss_seconds']:>10.1f}{row['ratio']:>7.0f}x{task.target:>7}x",
                flush=True,
            )
            ratios[f"{name}-{task.bits}"] = round(row["ratio"], 1)
    return ratios


def grow(kinds: Sequence[str], *, count: int, factor: int) -> dict[str, float]:
    """Print and return how much longer `factor` times the codes take, and the peak memory in MB."""
    print(f"\n{factor} times as many 64-bit codes, radius 3 (targets: {GROWTH_TARGET}x the time, {GROWTH_MB:,} MB)")
    print(f"{'codes':<12}{'seconds':>10}{f'{factor}x: seconds':>14}{'growth':>9}{'peak MB':>9}")
    figures: dict[str, float] = {}
    for name in kinds:
        small, large = measure_apart(name, count), measure_apart(name, count * factor)
        growth = large["seconds"] / small["seconds"]
        print(
            f"{name:<12}{small['seconds']:>10.3f}{large['seconds']:>14.3f}{growth:>8.1f}x{large['peak_mb']:>9,.0f}",
            flush=True,
        )
        figures |= {f"growth-{name}": round(growth, 1), f"peak-mb-{name}": round(large["peak_mb"])}
    return figures


def measure_apart(kind: str, count: int) -> dict[str, float]:
    """Return `seconds` and `peak_mb` of a search in a process of its own."""
    command = [sys.executable, __file__, "--measure", kind, "--codes", str(count)]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def measure(kind: str, count: int) -> dict[str, float]:
    codes = KINDS[kind](count, 1, np.random.default_rng(0))
    _, seconds = fastest(codes, 3)
    return {"seconds": seconds, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--codes", type=int, default=300_000)
    parser.add_argument("--growth", type=int, default=10, help="times as many codes")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="of codes")
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--measure", choices=KINDS, help="only time one kind, and print it as JSON")
    parser.add_argument("--json", action="store_true", help="print the figures as the last line")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.codes)))
        return
    figures: dict[str, float] = {}
    if "faiss" in options.parts:
        figures |= compare_all(options.kinds, count=options.codes, queries=options.queries)
    if "growth" in options.parts:
        figures |= grow(options.kinds, count=options.codes, factor=options.growth)
    if options.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
