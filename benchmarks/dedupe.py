"""Near-duplicate search as `multilink build` runs it (`DropDuplicates`), beside the plain function and faiss.

    python benchmarks/dedupe.py [--sizes 40000 300000] [--workers 1 2] [--large 3000000] [--queries 10000] [--json]
    python benchmarks/dedupe.py --parts stage --kinds real-like placeholders

Targets: the stage takes at most 0.15 ms of processor time an image beyond the plain function; 3 million images take
under 3 GB; the search is at least 100 times as fast as faiss on 64-bit codes at distance 3, and 30 times on 256-bit
codes at distance 10.

**stage**: `FindDuplicates` on the local runner that builds use, over documents of five pictures, with one worker
process and with two, less the same pipeline without the stage. The plain function is the same steps in one process and
one partition. The rows of both must be the same. Seconds are of processor time, of all processes.

**large**: the stage once, in a process of its own with one worker, whose peak memory is told: that of the runner and of
what makes the documents, too.

**faiss**: `near_pairs`, which the asset check of an orchestrated build calls on a whole version and the search for
leaks on clusters, beside `faiss.IndexBinaryFlat.range_search` on all cores. faiss compares every query with every code,
so it sees each pair from both sides. It answers a random sample of `--queries` codes, and its time for all is that
times codes / queries (its work is exactly proportional; `--queries 0` runs all). The pairs of the sampled codes must be
the same, each with its distance. Ours takes all codes on one core, the fastest of three runs.

Five kinds of codes: uniform; real-like, where 1% of codes are near-copies and bits repeat from a few layouts;
correlated, where each bit is the sign of a mixture of 24 hidden factors and noise, and 1% are near-copies; crowded,
where half of the codes lie in balls of 5 flipped bits a word, about 1,500 to a ball; and (of the stage alone)
placeholders, where a third of all occurrences are one and the same picture.

Found on two cores that others used too:

    images                        uniform  real-like  correlated  crowded  placeholders
    40,000, one worker              0.047      0.030       0.031    0.039         0.042   ms an image more
    40,000, two workers             0.056      0.036       0.027    0.077         0.051
    300,000, one worker             0.017      0.019       0.019    0.021         0.023
    300,000, two workers            0.016      0.021       0.026    0.028         0.027
    3,000,000, one worker, in all               0.031                0.034         0.030   ms an image, with making them
    3,000,000, one worker, peak               805 MB             1,031 MB      1,531 MB

Times as fast as faiss: 64 bits 248 to 812, crowded 143 to 356; 256 bits 100 to 284, crowded 80. A cut into bands
that fits the codes, keys sorted by radix, threads and a ring of buckets side by side, which were here before, made the
search of 300,000 codes 1.1 to 2 times as fast, by 0.02 to 0.3 s, and took some 200 statements more.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import apache_beam as beam
import faiss
import numpy as np

from pipelines.dedupe.duplicates import (
    Neighbours,
    Occurrences,
    duplicate_rows,
    find_duplicates,
    find_neighbours,
    keyed_codes,
    mark_dropped,
    merge_clusters,
    near_codes,
    pack_images,
)
from pipelines.dedupe.hamming import near_pairs
from pipelines.dedupe.transforms import FindDuplicates, by_hash
from pipelines.images.packed import PackedImage
from pipelines.launch import run_pipeline
from pipelines.packs import PackRef
from pipelines.partitions.columns import to_hex
from pipelines.settings import Policy, Runner
from pipelines.settled import SettledDocument
from schemas.documents import Document, Image, ImageRef, Provenance
from schemas.duplicates import Duplicate

Random = np.random.Generator
Chunk = tuple[int, np.ndarray]  # number of the first occurrence; fingerprints

BALL = 1_500  # codes of a crowded data set in one ball
FACTORS = 24
AT_ONCE = 100_000  # codes made in one go
SHOWN = 5  # pictures of a document
DOCUMENTS_AT_ONCE = 2_000
RADIUS, POLICY = 3, Policy.DROP_DOCUMENTS


@dataclass(frozen=True)
class Task:
    bits: int
    radius: int
    target: int  # times as fast as faiss

    @property
    def words(self) -> int:
        return self.bits // 64


TASKS = (Task(64, 3, 100), Task(256, 10, 30))
STAGE_MS, LARGE_MB = 0.15, 3_000
PARTS = ["stage", "large", "faiss"]


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


PLACEHOLDERS = "placeholders"


def chunks(kind: str, count: int) -> list[Chunk]:
    """Return the fingerprints of `count` occurrences, in chunks of some documents."""
    random = np.random.default_rng(0)
    codes = KINDS.get(kind, uniform)(count, 1, random)
    if kind == PLACEHOLDERS:
        codes[: count // 3] = 7
    mixed = random.permutation(codes)[:, 0].byteswap().view("S8")
    size = DOCUMENTS_AT_ONCE * SHOWN
    return [(start, mixed[start : start + size]) for start in range(0, count, size)]


def documents(chunk: Chunk) -> Iterator[SettledDocument]:
    """Yield the documents of a chunk: equal fingerprints are equal pictures."""
    first, codes = chunk
    texts = to_hex(codes)
    for start in range(0, len(codes), SHOWN):
        name = f"document-{first + start:09}"
        shown = [packed(code) for code in texts[start : start + SHOWN]]
        refs = tuple(ImageRef(found.image.hash, found.image.source) for found in shown)
        yield SettledDocument(Document(name, "made-up", (), refs, None, Provenance("made-up", name)), tuple(shown))


def packed(fingerprint: str) -> PackedImage:
    content_hash = hashlib.sha256(fingerprint.encode()).hexdigest()
    source = f"https://pictures.example.org/{content_hash[:12]}.jpg"
    image = Image(content_hash, source, "jpeg", 800, 600, 90_000, fingerprint)
    return PackedImage(image, PackRef(content_hash[:32], 1))


def plain(settled: Sequence[SettledDocument]) -> list[Duplicate]:
    """Return the duplicates by the steps of the stage, in one partition."""
    occurrences = Occurrences.concatenate(pack_images(settled))
    codes = keyed_codes(occurrences, radius=RADIUS, count=len(occurrences))
    near = [find_neighbours(some, partial(near_codes, radius=RADIUS)) for some in codes]
    clusters = merge_clusters(clusters for _, clusters in near)
    found = find_duplicates(occurrences, Neighbours.concatenate(neighbours for neighbours, _ in near), clusters)
    return list(duplicate_rows(found, mark_dropped(found, POLICY)))


def digest_of(duplicate: Duplicate) -> int:
    return int.from_bytes(hashlib.sha256(repr(duplicate).encode()).digest()[:8]) % (1 << 32)


def assemble(root: beam.Pipeline, *, kind: str, count: int, has_stage: bool, expected: int) -> None:
    """Add documents, and either the stage with a check of its rows, or a count."""
    settled = root | beam.Create(chunks(kind, count)) | beam.Reshuffle() | beam.FlatMap(documents)
    if not has_stage:
        _ = settled | beam.combiners.Count.Globally()
        return
    found = settled | FindDuplicates(by_hash(RADIUS), POLICY)
    _ = found.dropped | "count dropped" >> beam.combiners.Count.Globally()
    _ = found.duplicates | beam.Map(digest_of) | beam.CombineGlobally(sum) | beam.Map(check_digest, expected)


def check_digest(found: int, expected: int) -> None:
    if expected and found != expected:
        raise ValueError(f"the stage gives other rows than the plain function: {found}, expected {expected}")


def measure_pipeline(*, workers: int, **options: object) -> float:
    """Return the processor seconds of a run, of all its processes."""
    begin = cpu_seconds()
    run_pipeline(partial(assemble, **options), runner=Runner.LOCAL, workers=workers)
    return cpu_seconds() - begin


def cpu_seconds() -> float:
    usages = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def compare_stage(kinds: Sequence[str], sizes: Sequence[int], workers: Sequence[int]) -> dict[str, float]:
    """Print and return the milliseconds an image that the stage takes beyond the plain function."""
    print(f"stage beside the plain function (target: {STAGE_MS} ms an image beyond it); 64 bits, radius {RADIUS}")
    print(f"{'images':>9} {'kind':<13}{'rows':>9}{'plain s':>9}{'workers':>9}{'stage s':>9}{'beyond, ms/image':>18}")
    measure_pipeline(workers=1, kind="uniform", count=1000, has_stage=True, expected=0)  # loads libraries
    figures: dict[str, float] = {}
    for count in sizes:
        for kind in kinds:
            settled = [each for chunk in chunks(kind, count) for each in documents(chunk)]
            begin = cpu_seconds()
            rows = plain(settled)
            plain_s, expected = cpu_seconds() - begin, sum(map(digest_of, rows))
            del settled
            for each in workers:
                run = partial(measure_pipeline, workers=each, kind=kind, count=count, expected=expected)
                stage_s = run(has_stage=True) - run(has_stage=False)
                beyond = 1000 * (stage_s - plain_s) / count
                print(
                    f"{count:>9,} {kind:<13}{len(rows):>9,}{plain_s:>9.2f}{each:>9}{stage_s:>9.2f}{beyond:>18.3f}",
                    flush=True,
                )
                figures[f"stage-ms-{kind}-{count}-{each}"] = round(beyond, 4)
    return figures


def compare_large(kinds: Sequence[str], count: int) -> dict[str, float]:
    """Print and return the peak memory of the stage over many images, in MB."""
    print(f"\n{count:,} images in a process of its own, one worker (target: {LARGE_MB:,} MB)")
    print(f"{'kind':<13}{'processor s':>12}{'peak MB':>9}")
    figures: dict[str, float] = {}
    for kind in kinds:
        command = [sys.executable, __file__, "--measure", kind, "--large", str(count)]
        told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        found: dict[str, float] = json.loads(told.splitlines()[-1])
        print(f"{kind:<13}{found['seconds']:>12.1f}{found['peak_mb']:>9,.0f}", flush=True)
        figures[f"large-mb-{kind}"] = round(found["peak_mb"])
    return figures


def measure_large(kind: str, count: int) -> dict[str, float]:
    seconds = measure_pipeline(workers=1, kind=kind, count=count, has_stage=True, expected=0)
    return {"seconds": seconds, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


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


def pairs_of_rows(pairs: np.ndarray, distances: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the same of a search over all codes."""
    both = np.concatenate([pairs, pairs[::-1]], axis=1)
    triples = np.stack([*both, np.tile(distances, 2)], axis=1)
    return sort_rows(triples[np.isin(triples[:, 0], rows)])


def sort_rows(rows: np.ndarray) -> np.ndarray:
    return rows[np.lexsort(rows.T[::-1])]


def compare_with_faiss(codes: np.ndarray, *, radius: int, queries: int, random: Random) -> dict[str, float]:
    codes = np.unique(codes, axis=0)
    rows = np.arange(len(codes)) if queries == 0 else random.choice(len(codes), min(queries, len(codes)), replace=False)
    expected, faiss_seconds = search_with_faiss(codes, rows, radius)
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        pairs, distances = near_pairs(codes, radius)
        seconds.append(time.perf_counter() - begin)
    np.testing.assert_array_equal(pairs_of_rows(pairs, distances, rows), expected)
    scaled = faiss_seconds * len(codes) / len(rows)
    return {"pairs": pairs.shape[1], "seconds": min(seconds), "faiss_s": scaled, "ratio": scaled / min(seconds)}


def compare_kinds_with_faiss(kinds: Sequence[str], *, count: int, queries: int) -> dict[str, float]:
    """Print and return how many times as fast as faiss each kind of codes is searched."""
    print(f"\n{count:,} codes; faiss {faiss.__version__}, {os.cpu_count()} cores, {queries or count:,} queries")
    print(f"{'bits':>5}{'radius':>7}  {'codes':<12}{'pairs':>12}{'ours s':>9}{'faiss s':>10}{'ratio':>8}{'target':>8}")
    ratios: dict[str, float] = {}
    for task in TASKS:
        for name in kinds:
            random = np.random.default_rng(0)
            codes = KINDS[name](count, task.words, random)
            row = compare_with_faiss(codes, radius=task.radius, queries=queries, random=random)
            print(
                f"{task.bits:>5}{task.radius:>7}  {name:<12}{row['pairs']:>12,}{row['seconds']:>9.3f}"
                f"{row['faiss_s']:>10.1f}{row['ratio']:>7.0f}x{task.target:>7}x",
                flush=True,
            )
            ratios[f"{name}-{task.bits}"] = round(row["ratio"], 1)
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = [*KINDS, PLACEHOLDERS]
    parser.add_argument("--sizes", type=int, nargs="+", default=[40_000, 300_000], help="images of the stage")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--large", type=int, default=3_000_000, help="images whose memory is measured")
    parser.add_argument("--codes", type=int, default=300_000, help="codes searched beside faiss")
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--kinds", nargs="+", choices=kinds, default=kinds, help="of codes")
    parser.add_argument("--measure", choices=kinds, help="only run one kind of `--large` images, and print it as JSON")
    parser.add_argument("--json", action="store_true", help="print the figures as the last line")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure_large(options.measure, options.large)))
        return
    figures: dict[str, float] = {}
    if "stage" in options.parts:
        figures |= compare_stage(options.kinds, options.sizes, options.workers)
    if "large" in options.parts:
        figures |= compare_large(options.kinds, options.large)
    if "faiss" in options.parts:
        some = [kind for kind in options.kinds if kind in KINDS]
        figures |= compare_kinds_with_faiss(some, count=options.codes, queries=options.queries)
    if options.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
