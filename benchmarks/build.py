"""A whole build of generated documents, small and large: how its memory and its time grow, and where the time goes.

    python benchmarks/build.py [--documents 1000 20000] [--images 10] [--vectors] [--placeholder] [--workers 1] [--json]

Targets: the peak memory of 20,000 documents at most 1.25 times that of 1,000; the processor time that one more document
takes (start-up is not of a document) at most 1.15 times.

Each size is built in a process of its own, by the `documents` recipe from files on disk (JSON Lines, JPEGs), with no
vectors unless `--vectors` asks for the default ones. Peak memory is that of all processes of the build together
(resident pages, read from /proc every tenth of a second: pages that processes share count once for each). Processor
time is that of the run, loading libraries apart, less that of a run of ten documents: what a build takes to begin.
Seconds on the clock mean something on a quiet machine alone; the load average is told.

Every picture has content of its own (random blocks of colour); one document in a hundred shows one of its neighbour's
too, so that near-duplicate search has something to find. `--placeholder` puts one and the same picture into all.

The table of stages tells how long the steps of each were at work on the clock, as Beam samples it, added up over worker
processes. What is in none of them is `(between)`: decoding, sorting and keeping what passes between steps, and putting
the pipeline together.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

MEMORY_TARGET, TIME_TARGET = 1.25, 1.15
FEW = 10  # documents of the run that shows what beginning takes
POLL_S = 0.1
BLOCKS = 8  # of colour along each side of a picture: about what a perceptual hash looks at
WORDS = (
    "align", "bench", "cut", "drill", "edge", "file", "glue", "hammer", "join",
    "level", "mark", "nail", "oak", "plane", "router", "sand", "table", "wood",
)  # fmt: skip


Found = dict[str, Any]  # documents, seconds, cpu_s, peak_mb; steps: seconds by name


def generate(folder: Path, *, documents: int, images: int, pixels: int, has_placeholder: bool) -> Path:
    """Write that many documents and their pictures; returns the JSON Lines file."""
    random = np.random.default_rng(0)
    if has_placeholder:
        picture(random, pixels).save(folder / "placeholder.jpg", quality=85)
    path = folder / "documents.jsonl"
    with path.open("w", encoding="utf-8") as stream:
        for number in range(documents):
            paths = write_pictures(folder / f"{number // 1000:04d}", number, images, pixels, random)
            if has_placeholder:
                paths.append(folder / "placeholder.jpg")
            if number % 100 == 99:
                paths.append(folder / f"{(number - 1) // 1000:04d}" / f"{number - 1}-0.jpg")
            sentences = [sentence(number, random) for _ in range(4)]
            pictures = [{"path": str(each.relative_to(folder))} for each in paths]
            stream.write(json.dumps({"id": f"d{number}", "sentences": sentences, "images": pictures}) + "\n")
    return path


def write_pictures(folder: Path, number: int, images: int, pixels: int, random: np.random.Generator) -> list[Path]:
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{number}-{image}.jpg" for image in range(images)]
    for path in paths:
        picture(random, pixels).save(path, quality=85)
    return paths


def picture(random: np.random.Generator, pixels: int) -> Image.Image:
    blocks = random.integers(0, 256, (BLOCKS, BLOCKS, 3), dtype=np.uint8)
    return Image.fromarray(blocks).resize((pixels, pixels), Image.Resampling.BILINEAR)


def sentence(number: int, random: np.random.Generator) -> str:
    words = " ".join(WORDS[word] for word in random.integers(0, len(WORDS), 12))
    return f"{words.capitalize()}, as in project {number}."


def build(path: Path, *, workers: int, has_vectors: bool) -> Found:
    """Build the documents of a file; returns all but the peak of memory."""
    from pipelines import recipes
    from pipelines.build import chain_stages
    from pipelines.features.plan import plan_features
    from pipelines.launch import Runner, run_pipeline
    from pipelines.run import plan_build
    from pipelines.sources.credentials import Credentials
    from schemas.configs import override
    from schemas.lake import Lake
    from schemas.manifest import Manifest

    settings = [f"source.documents={path}", "dedupe.policy=keep-all"]
    settings += [] if has_vectors else ["features.images=", "features.sentences="]
    config = override(recipes.recipe("documents"), settings)
    lake = Lake.at(str(path.parent / "lake"))
    features = plan_features(config, lake=lake, workers=workers)
    plan = plan_build(config, features, lake=lake, credentials=Credentials())
    begin, cpu_begin = time.perf_counter(), cpu_seconds()
    steps = run_pipeline(partial(chain_stages, plan=plan), runner=Runner.LOCAL, workers=workers)
    seconds, cpu_s = time.perf_counter() - begin, cpu_seconds() - cpu_begin
    manifest = Manifest.from_json(lake.stages.read(plan.result).decode())
    documents = sum(split.documents for split in manifest.splits.values())
    return {"documents": documents, "seconds": seconds, "cpu_s": cpu_s, "steps": steps, "version": manifest.version}


def cpu_seconds() -> float:
    """Return the processor time of this process and of its children that have ended."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def measure_apart(path: Path, options: argparse.Namespace) -> Found:
    """Return what `build` does of a process of its own, and the `peak_mb` of it and its children."""
    command = [sys.executable, __file__, "--measure", str(path), "--workers", str(options.workers)]
    with subprocess.Popen(
        [*command, *(["--vectors"] if options.vectors else [])], stdout=subprocess.PIPE, text=True
    ) as process:
        peak = Peak(process.pid)
        output, _ = process.communicate()
        peak.stop()
    if process.returncode:
        raise SystemExit(f"the build of {path} ended with status {process.returncode}")
    found: Found = json.loads(output.splitlines()[-1])
    return found | {"peak_mb": peak.mb}


class Peak:
    """The most memory a process and its descendants held together, watched from a thread."""

    def __init__(self, pid: int) -> None:
        self.mb = 0.0
        self._pid = pid
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def stop(self) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(POLL_S):
            self.mb = max(self.mb, sum(resident_mb(pid) for pid in family(self._pid)))


def family(pid: int) -> Iterator[int]:
    """Yield a process and its descendants."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text()
        except OSError:  # the thread ended meanwhile
            continue
        for child in children.split():
            yield from family(int(child))


def resident_mb(pid: int) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:  # the process ended meanwhile
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def by_stage(steps: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds of work by the first part of steps' names, most first."""
    seconds: dict[str, float] = defaultdict(float)
    for step, spent in steps.items():
        seconds[step.partition("/")[0]] += spent
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))


def measure_sizes(options: argparse.Namespace) -> list[Found]:
    """Generate and build each number of documents, the fewest first."""
    results = []
    for documents in (FEW, *options.documents):
        with tempfile.TemporaryDirectory(prefix="multilink-benchmark-") as folder:
            path = generate(
                Path(folder),
                documents=documents,
                images=options.images,
                pixels=options.pixels,
                has_placeholder=options.placeholder,
            )
            results.append(measure_apart(path, options))
        if documents != FEW:
            show(results[-1])
    return results


def show(found: Found) -> None:
    documents, seconds = found["documents"], found["seconds"]
    print(f"\n{documents:,} documents: {seconds:.1f} s, {documents / seconds:.0f} documents/s on the clock")
    stages = by_stage(found["steps"])
    stages["(between)"] = seconds - sum(stages.values())
    print(f"  {'stage':<28}{'seconds':>9}{'share':>8}{'documents/s':>13}")
    for stage, spent in stages.items():
        if spent >= 0.01 * seconds:
            print(f"  {stage:<28}{spent:>9.1f}{spent / seconds:>8.0%}{documents / spent:>13,.0f}")
    print(flush=True)


def compare(few: Found, *others: Found) -> dict[str, float]:
    """Print and return how memory, and time per document, of the largest build relate to those of the smallest."""
    print(f"  {'documents':>9}{'peak MB':>9}{'processor s':>13}{'ms a document':>15}")
    costs = []
    for each in others:
        costs.append(1000 * (each["cpu_s"] - few["cpu_s"]) / (each["documents"] - few["documents"]))
        print(f"  {each['documents']:>9,}{each['peak_mb']:>9.0f}{each['cpu_s']:>13.1f}{costs[-1]:>15.2f}")
    memory, time_ratio = others[-1]["peak_mb"] / others[0]["peak_mb"], costs[-1] / costs[0]
    print(
        f"  memory {memory:.2f}x (target {MEMORY_TARGET}), time of a document {time_ratio:.2f}x (target {TIME_TARGET})"
    )
    figures = {f"peak-mb-{each['documents']}": round(each["peak_mb"]) for each in others}
    costs_ms = {f"ms-{each['documents']}": round(cost, 2) for each, cost in zip(others, costs, strict=True)}
    return {**figures, **costs_ms, "memory-ratio": round(memory, 3), "time-ratio": round(time_ratio, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, nargs="+", default=[1_000, 20_000])
    parser.add_argument("--images", type=int, default=10, help="of a document")
    parser.add_argument("--pixels", type=int, default=96, help="of a side of a picture")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--vectors", action="store_true", help="extract the recipe's vectors")
    parser.add_argument("--placeholder", action="store_true", help="one picture that all documents show")
    parser.add_argument("--measure", type=Path, help="only build this file, and print the figures as JSON")
    parser.add_argument("--json", action="store_true", help="print the figures as the last line")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(build(options.measure, workers=options.workers, has_vectors=options.vectors)))
        return
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}")
    figures = compare(*measure_sizes(options))
    if options.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
