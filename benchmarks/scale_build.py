"""What a build of a hundred million images takes on a thousand workers, by builds of some sizes on this machine.

    python -m benchmarks.scale_build [--documents 1000 10000 50000] [--images 1] [--json]

Each build runs through `multilink build`'s own function in a process of its own, without features, with small pictures
read from disk: what is measured is what the build adds to its parts, and what could grow faster than the documents.

fit         Processor time is fitted as `begin + n x per document` to all sizes. The exponent of what is left between
            the two largest sizes says whether it is a line (1.00). Peak memory is fitted alike, a worker's.
growing     Steps that take more than GROWING times as long a document in the largest build as in the one before.
one worker  Steps that one worker makes for the whole corpus: the ends of combinations to one value, and the manifest.
            Their times are fitted alike and extended to all documents: no number of workers makes them shorter.
extended    `begin + documents x per document / workers + one worker`. What the parts of a build take (fetching,
            decoding, features: `benchmarks.build parts`) comes to it, divided by the workers, too.

Not seen on one machine, and bounded by reading the code:

    the driver          holds the manifest: an entry of some 300 bytes a part of 1,000 documents
    a key               a share of hosts (1 in 16,384), a bucket of near-duplicates (65,536 codes), an image's or a
                        document's own; hashes of a split are counted under 256 keys
    a process           knows where every copy and every feature of the lake is: 24 bytes an image a column
    a listing           of each folder of packs: once a worker
    a shard             reads its copies from as many packs as it has images, in blocks of 8 MB on an object store

Found on 2026-11-25 on two busy cores (load 8 to 12), for 1,000, 10,000 and 50,000 documents: 4.5, 2.5, 2.3 ms of the
processor a document, exponent 1.00; 396, 536, 593 MB. That is 45 s a worker for 100 million images on 1,000 workers,
and 30 s on one. Two steps take longer a document at 50,000 than at 10,000: what reads the JSON Lines (1.41 times) and
what looks at the pictures that are there (1.29 times). Why was not looked at: the processes share caches.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.build import build_apart, generate, settings_of

SIZES = (1_000, 10_000, 50_000)
IMAGES, IMAGES_A_DOCUMENT, WORKERS = 100_000_000, 5, 1_000
GROWING, LEAST_SHARE = 1.25, 0.01
ONE_WORKER, OF_ALL = ("CombineGlobally", "ToList", "gather/", "manifest"), ("Precombine", "KeyWithVoid")
Found = dict[str, Any]


def line(sizes: Sequence[int], values: Sequence[float]) -> tuple[float, float]:
    """Return what a line takes to begin, at least 0, and for each document, by least squares."""
    slope, start = np.polyfit(sizes, values, 1)
    if start < 0:
        start, slope = 0.0, float(np.dot(sizes, values) / np.dot(sizes, sizes))
    return float(start), float(slope)


def exponent(sizes: Sequence[int], values: Sequence[float], start: float) -> float:
    """Return how what is beyond the start grows between the two largest sizes: 1 in proportion to the documents."""
    (less, more), (low, high) = sizes[-2:], values[-2:]
    return math.log(max(high - start, 1e-9) / max(low - start, 1e-9)) / math.log(more / less)


def of_one_worker(steps: Mapping[str, float]) -> dict[str, float]:
    return {
        name: seconds
        for name, seconds in steps.items()
        if any(part in name for part in ONE_WORKER) and not any(part in name for part in OF_ALL)
    }


def growing(sizes: Sequence[int], results: Sequence[Found]) -> dict[str, float]:
    """Return the steps of weight that take longer a document as documents come, and how many times."""
    first, last = results[-2]["steps"], results[-1]["steps"]
    least = LEAST_SHARE * sum(last.values())
    times = {name: (last[name] / sizes[-1]) / max(first.get(name, 0.0) / sizes[-2], 1e-9) for name in last}
    return {name: ratio for name, ratio in times.items() if last[name] >= least and ratio > GROWING}


def report(sizes: Sequence[int], results: Sequence[Found]) -> dict[str, float]:
    spent, peaks = [each["cpu_s"] for each in results], [each["peak_mb"] for each in results]
    serial = [sum(of_one_worker(each["steps"]).values()) for each in results]
    (start, slope), (base, growth), (_, alone) = (line(sizes, values) for values in (spent, peaks, serial))
    bend = exponent(sizes, spent, start)
    documents = IMAGES // IMAGES_A_DOCUMENT
    print(f"fit: {start:.1f} s to begin, {1000 * slope:.2f} ms a document, exponent {bend:.2f}")
    print(f"memory: {base:.0f} MB, {1000 * growth:.1f} MB more for 1,000 documents")
    for name, ratio in sorted(growing(sizes, results).items(), key=lambda item: -item[1]):
        print(f"  growing: {name}: {ratio:.2f} times as long a document")
    for name, seconds in sorted(of_one_worker(results[-1]["steps"]).items(), key=lambda item: -item[1])[:8]:
        print(f"  one worker: {name}: {seconds:.2f} s of {sizes[-1]:,} documents")
    shared_s, alone_s = documents * slope / WORKERS, documents * max(0.0, alone)
    print(
        f"{IMAGES:,} images in {documents:,} documents on {WORKERS:,} workers: {start:.0f} s to begin, "
        f"{shared_s:.0f} s a worker, {alone_s:.0f} s on one"
    )
    found = {"ms-a-document": 1000 * slope, "exponent": bend, "mb-for-1000": 1000 * growth}
    return {name: round(value, 3) for name, value in (found | {"s-a-worker": shared_s, "s-on-one": alone_s}).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, nargs="+", default=SIZES, help="two sizes or more")
    parser.add_argument("--images", type=int, default=1, help="of a document")
    parser.add_argument("--pixels", type=int, default=32, help="of a side of a picture")
    parser.add_argument("--json", action="store_true", help="print the figures as the last line")
    options = parser.parse_args()
    sizes, results = sorted(options.documents), list[Found]()
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="multilink-benchmark-") as name:
            path = generate(Path(name), range(size), images=options.images, pixels=options.pixels, url=None)
            results.append(build_apart(settings_of(path, url=None, plain=True), Path(name) / "lake", 1))
        each = 1000 * results[-1]["cpu_s"] / size
        print(f"{size:,} documents: {results[-1]['cpu_s']:.1f} s of the processor, {each:.1f} ms a document, "
              f"peak {results[-1]['peak_mb']:.0f} MB", flush=True)  # fmt: skip
    figures = report(sizes, results)
    if options.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
