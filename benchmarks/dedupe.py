"""The memory of near-duplicate search as `multilink build` runs it (`FindDuplicates`), over millions of images.

    python -m benchmarks.dedupe [--large 3000000] [--kinds real-like placeholders] [--json]

Each kind of codes is searched once, in a process of its own with one worker, whose peak memory is told: that of the
runner and of what makes the documents, too. Target: 3 million images take under 3 GB.

Kinds of codes: uniform; real-like, where 1% of codes are near-copies and bits repeat from a few layouts; correlated,
where each bit is the sign of a mixture of 24 hidden factors and noise, and 1% are near-copies; crowded, where half of
the codes lie in balls of 5 flipped bits a word, about 1,500 to a ball; and placeholders, where a third of all
occurrences are one and the same picture.

Found for 3,000,000 images on two cores that others used too: 805 MB (real-like), 1,031 MB (crowded) and 1,531 MB
(placeholders), 0.03 ms of the processor an image.
"""

from __future__ import annotations

import hashlib
import json
import resource
import subprocess
import sys
from argparse import SUPPRESS
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import apache_beam as beam
import numpy as np

from benchmarks.command import cpu_seconds, parser_of, print_figures
from pipelines.dedupe.transforms import FindDuplicates, by_hash
from pipelines.documents.rules import SettledDocument
from pipelines.images.inspect import PackedImage
from pipelines.launch import run_pipeline
from pipelines.packs import PackRef
from pipelines.partitions.columns import to_hex
from pipelines.settings import Policy, Runner
from schemas.documents import Document, Image, ImageRef, Provenance

Random = np.random.Generator
Chunk = tuple[int, np.ndarray]  # number of the first occurrence; fingerprints

BALL = 1_500  # codes of a crowded data set in one ball
FACTORS = 24
AT_ONCE = 100_000  # codes made in one go
SHOWN = 5  # pictures of a document
DOCUMENTS_AT_ONCE = 2_000
RADIUS, LARGE_MB = 3, 3_000


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


def assemble(root: beam.Pipeline, *, kind: str, count: int) -> None:
    settled = root | beam.Create(chunks(kind, count)) | beam.Reshuffle() | beam.FlatMap(documents)
    found = settled | FindDuplicates(by_hash(RADIUS), Policy.DROP_DOCUMENTS)
    _ = found.dropped | "count dropped" >> beam.combiners.Count.Globally()
    _ = found.duplicates | "count duplicates" >> beam.combiners.Count.Globally()


def compare_large(kinds: Sequence[str], count: int) -> dict[str, float]:
    """Print and return the peak memory of the stage over many images, in MB."""
    print(f"\n{count:,} images in a process of its own, one worker (target: {LARGE_MB:,} MB)")
    print(f"{'kind':<13}{'processor s':>12}{'peak MB':>9}")
    figures: dict[str, float] = {}
    for kind in kinds:
        command = [sys.executable, "-m", "benchmarks.dedupe", "--measure", kind, "--large", str(count)]
        told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        found: dict[str, float] = json.loads(told.splitlines()[-1])
        print(f"{kind:<13}{found['seconds']:>12.1f}{found['peak_mb']:>9,.0f}", flush=True)
        figures[f"large-mb-{kind}"] = round(found["peak_mb"])
    return figures


def measure_large(kind: str, count: int) -> dict[str, float]:
    begin = cpu_seconds()
    run_pipeline(partial(assemble, kind=kind, count=count), runner=Runner.LOCAL, workers=1)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": cpu_seconds() - begin, "peak_mb": peak_mb}


def main() -> None:
    parser = parser_of(__doc__)
    kinds = [*KINDS, PLACEHOLDERS]
    parser.add_argument("--large", type=int, default=3_000_000, metavar="IMAGES")
    parser.add_argument("--kinds", nargs="+", choices=kinds, default=kinds, help="of codes")
    parser.add_argument("--measure", choices=kinds, help=SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure_large(options.measure, options.large)))
        return
    print_figures(options, compare_large(options.kinds, options.large))


if __name__ == "__main__":
    main()
