"""A whole build of generated documents, small and large: how its memory and its time grow, and where the time goes.

    python benchmarks/build.py [--documents 1000 20000] [--images 10] [--vectors] [--placeholder] [--workers 1] [--json]

Targets: the peak memory of 20,000 documents is at most 1.25 times that of 1,000, and so is the time of one document.

Each size is built in a process of its own, by the `documents` recipe from files on disk (JSON Lines, JPEGs), with no
vectors unless `--vectors` asks for the default ones. Peak memory is that of all processes of the build together
(resident pages, read from /proc every tenth of a second: pages that processes share count once for each). The time of
a document is that of the pipeline from its first element to its last, divided by the documents: what starting Python
and loading the libraries takes is told apart.

Every picture has content of its own (random blocks of colour); one document in a hundred shows one of its neighbour's
too, so that near-duplicate search has something to find. `--placeholder` puts one and the same picture into all.

The table of stages tells how long the steps of each were at work, as Beam samples it, added up over processes; a stage
of twice the documents a second costs half. Reading, sorting and writing what passes between steps is `shuffle`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

MEMORY_TARGET, TIME_TARGET = 1.25, 1.25
POLL_S = 0.1
BLOCKS = 8  # of colour along each side of a picture: about what a perceptual hash looks at
WORDS = "align bench cut drill edge file glue hammer join level mark nail oak plane router sand table wood".split()


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


def build(path: Path, *, workers: int, has_vectors: bool) -> dict[str, object]:
    """Build the documents of a file; returns `documents`, `seconds` and the seconds of work by step."""
    from pipelines import recipes
    from pipelines.build import chain_stages
    from pipelines.datasets import plan_build
    from pipelines.launch import Runner, run_pipeline
    from pipelines.sources.credentials import Credentials
    from schemas.configs import override
    from schemas.lake import Lake
    from schemas.manifest import Manifest

    settings = [f"source.documents={path}", "dedupe.policy=keep-all"]
    settings += [] if has_vectors else ["features.images=", "features.sentences="]
    config = override(recipes.recipe("documents"), settings)
    lake = Lake.at(str(path.parent / "lake"))
    plan = plan_build(config, lake=lake, credentials=Credentials(), workers=workers)
    begin = time.perf_counter()
    steps = run_pipeline(partial(chain_stages, plan=plan), runner=Runner.LOCAL, workers=workers)
    seconds = time.perf_counter() - begin
    manifest = Manifest.from_json(lake.stages.read(plan.result).decode())
    documents = sum(split.documents for split in manifest.splits.values())
    return {"documents": documents, "seconds": seconds, "steps": steps, "version": manifest.version}


def measure_apart(path: Path, options: argparse.Namespace) -> dict[str, object]:
    """Return what `build` does of a process of its own, and the `peak_mb` of it and its children."""
    command = [sys.executable, __file__, "--measure", str(path), "--workers", str(options.workers)]
    begin = time.perf_counter()
    with subprocess.Popen(
        [*command, *(["--vectors"] if options.vectors else [])], stdout=subprocess.PIPE, text=True
    ) as process:
        peak = Peak(process.pid)
        output, _ = process.communicate()
        peak.stop()
    if process.returncode:
        raise SystemExit(f"the build of {path} ended with status {process.returncode}")
    found: dict[str, object] = json.loads(output.splitlines()[-1])
    return found | {"peak_mb": peak.mb, "wall_s": time.perf_counter() - begin}


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


def show(found: Mapping[str, object]) -> None:
    documents, seconds = int(found["documents"]), float(found["seconds"])  # type: ignore[call-overload]
    print(f"\n{documents:,} documents: {seconds:.1f} s, {documents / seconds:.0f} documents/s, peak {found['peak_mb']:.0f} MB")
    stages = by_stage(found["steps"])  # type: ignore[arg-type]
    stages["(between)"] = seconds - sum(stages.values())
    print(f"  {'stage':<28}{'seconds':>9}{'share':>8}{'documents/s':>13}")
    for stage, spent in stages.items():
        if spent >= 0.01 * seconds:
            print(f"  {stage:<28}{spent:>9.1f}{spent / seconds:>8.0%}{documents / spent:>13,.0f}")


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
    results = []
    for documents in options.documents:
        with tempfile.TemporaryDirectory(prefix="multilink-benchmark-") as folder:
            path = generate(
                Path(folder),
                documents=documents,
                images=options.images,
                pixels=options.pixels,
                has_placeholder=options.placeholder,
            )
            results.append(measure_apart(path, options))
        show(results[-1])
    if options.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
