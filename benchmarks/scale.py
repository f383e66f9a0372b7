"""What grows with a corpus and with workers, measured; and what that gives for 100 million documents and 64 workers.

    python -m benchmarks.scale [--documents 10000 100000 1000000] [--json]

The first table: training and linking of synthetic versions, each in a process of its own with an empty cache of the
host. `index` is bytes of the index a document; `memory` what the process holds beyond its imports after 300 steps, and
how much of that is not mapped from files; `first step` from the call to the end of the first step, without imports;
`step` the median; `validation` seconds for 1,000 documents; `link` documents a second of one worker; `manifest` bytes
and seconds of parsing for 1,000 parts. Growth is the slope of a line through the logarithms: 0 is flat, 1 is linear.

The second: the same for 100 million documents of 5,000 a shard on 1, 8 and 64 hosts of one worker, by those lines.

The third: how much faster W workers are than one, by a simulation of 2,000 steps. What a batch costs is drawn from
batches measured here (`hessel-2019`, 11 documents of 10 sentences and 10 images, one thread); a step waits for the
slowest worker. The gradient's bytes are summed by a ring (2 (W - 1) / W of them each way, at `NETWORK`), beside the
backward pass as far as that goes. With K = W a batch lives on one worker; with K = 1 all W share one: each encodes its
share, all gather the rows, and each computes the whole loss, which is measured apart. Noise of the machine would count
as differences between batches: their cost is that of a line through their words.

Found on two shared cores of an AMD EPYC, 2026-11-23:

                                10,000       100,000     1,000,000      growth
    index bytes a document        32.2            32            32       -0.00
    memory MB                      293           409           516        0.12
    memory not mapped MB           181           191           179       -0.00
    first step s                  1.69          3.19           6.2        0.28
    step ms                       4.22          5.39          5.18        0.04
    validation s a 1,000         0.595         0.566          0.55       -0.02
    link documents/s              3260          3720          3970        0.04

    a manifest has 178 bytes a part, and is parsed in 15 ms a 1,000 parts
    64 workers: 59.6 times the batches of one with K = 64, 6.4 times with K = 1
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.scale_data import IN_SHARD, make_version

DATASET, STEPS = "scale", 300
DOCUMENTS = 11  # of a batch
NETWORK_BYTES_S, LATENCY_S = 25e9 / 8, 50e-6  # 25 Gbit/s a worker
BACKWARD = 0.6  # of a batch's time, beside which gradients are summed
CORPUS, HOSTS = 100_000_000, (1, 8, 64)
WORKERS = (1, 2, 4, 8, 16, 32, 64)
MEASURES = {
    "index bytes a document": 1,
    "memory MB": 1e6,
    "memory not mapped MB": 1e6,
    "first step s": 1,
    "step ms": 1e-3,
    "validation s a 1,000": 1,
    "link documents/s": 1,
}


def measure(home: str, documents: int) -> dict[str, float]:
    """Measure a version in this process, whose cache is empty."""
    import torch

    from schemas.lake import Folder, Lake
    from schemas.overrides import override
    from training.data.loading import load_training_data
    from training.linking.links import Linker
    from training.linking.versions import link_version, prepare_linking
    from training.loop.context import Context
    from training.loop.epoch import _ahead, _steps
    from training.loop.setup import new_model
    from training.loop.state import start
    from training.loop.step import Stepper
    from training.loop.validation import validate
    from training.recipes import recipe

    torch.set_num_threads(1)
    before, began = resident(), time.perf_counter()
    lake, context = Lake.at(home), Context()
    config = override(recipe("tiny"), ["training.epochs=1"])
    data = load_training_data(lake, DATASET, config)
    run = start(new_model(config, data, context))
    division = context.division(1)
    stepper, times, first = Stepper(run.model, run.optimiser, context, division), [], 0.0
    for number, step in enumerate(_ahead(_steps(run.model, data.training, 1, division))):
        started = time.perf_counter()
        stepper.step(step.own, count=step.batches)
        times.append(time.perf_counter() - started)
        first = first or time.perf_counter() - began
        if number == STEPS:
            break
    after = resident()
    assert data.validation is not None
    started = time.perf_counter()
    validate(run.model, data.validation, context, epoch=1)
    validation = 1000 * (time.perf_counter() - started) / len(data.validation.index)
    with tempfile.TemporaryDirectory() as folder:
        linker = Linker(model=run.model.eval(), uri="models:/scale/1")
        linking = prepare_linking(linker, lake, DATASET, output=Folder(folder))
        linked = link_version(run.model, linking, splits=["val"], say=lambda line: None)
    cached = Path(os.environ["MULTILINK_CACHE"]).rglob("train-index-*.arrow")
    return {
        "index bytes a document": sum(path.stat().st_size for path in cached) / documents,
        "memory MB": after[0] - before[0],
        "memory not mapped MB": after[1] - before[1],
        "first step s": first,
        "step ms": float(np.median(times)),
        "validation s a 1,000": validation,
        "link documents/s": linked.documents / linked.seconds,
    }


def resident() -> tuple[float, float]:
    """Return the bytes that this process holds, and those of them that no file is behind."""
    _, held, shared, *_ = (4096 * float(pages) for pages in Path("/proc/self/statm").read_text().split())
    return held, held - shared


def manifest_cost(shards: int) -> tuple[float, float]:
    """Return bytes and seconds of parsing of the manifest of so many shards."""
    from benchmarks.scale_data import manifest_of
    from schemas.documents import Split
    from schemas.manifest import FileEntry, Manifest

    files = [
        FileEntry(path=f"{table}/train/part-{n:05d}-of-{shards:05d}.parquet", bytes=1, sha256="0" * 64, rows=IN_SHARD)
        for table in ("documents", "images")
        for n in range(shards)
    ]
    text = manifest_of(files, {Split.TRAIN: shards * IN_SHARD}).to_json()
    began = time.perf_counter()
    Manifest.from_json(text)
    return len(text), time.perf_counter() - began


@dataclass(frozen=True)
class Cost:
    """Seconds of each measured batch, of its loss alone, and bytes of the gradient and of a batch's rows."""

    batches: np.ndarray
    loss: float
    gradient: float
    rows: float


def batch_cost() -> Cost:
    """Measure batches of `hessel-2019` in one thread."""
    import torch

    from benchmarks.linking import Shape
    from benchmarks.linking import make_version as make_words
    from schemas.documents import Split
    from schemas.lake import Lake
    from training.data.batches import training_batches
    from training.data.loading import load_training_data
    from training.loop.context import Context
    from training.loop.encoding import batch_losses, encode_batch, prepare_batch
    from training.loop.setup import new_model
    from training.loop.state import start
    from training.loop.step import Stepper
    from training.objectives.batch import DrawKey
    from training.recipes import recipe

    torch.set_num_threads(1)
    shape = Shape(sentences=(10, 10), words=(3, 14), images=(10, 10))
    with tempfile.TemporaryDirectory() as folder:
        lake: Lake = make_words(Path(folder), {Split.TRAIN: 4}, 110, shape)
        config, context = recipe("hessel-2019"), Context()
        data = load_training_data(lake, "benchmark", config)
        run = start(new_model(config, data, context))
        stepper = Stepper(run.model, run.optimiser, context, context.division(1))
        times, losses, words = [], [], []
        for number, positions in enumerate(
            training_batches(data.training.index, negative_documents=10, seed=0, epoch=1)
        ):
            draw_key = DrawKey(split="training", epoch=1, step=number)
            batch = prepare_batch(run.model, data.training, positions, draw_key, context)
            encoded = encode_batch(run.model, batch, context)
            words.append(sum(len(text.split()) for text in batch.documents.texts))
            times.append(best(lambda batch=batch: stepper.step([batch], count=1)))
            losses.append(best(lambda encoded=encoded: batch_losses(run.model, encoded, context).mean()))
    gradient = sum(4.0 * each.numel() for each in run.model.parameters() if each.requires_grad)
    rows = 4.0 * config.dimensions * (len(encoded.text_vectors) + len(encoded.image_vectors))
    line = np.polyfit(words[1:], times[1:], 1)  # what the machine does beside would count as differences of batches
    print(f"residual of a line through words: {np.std(times[1:] - np.polyval(line, words[1:])) / np.mean(times):.1%}")
    return Cost(np.polyval(line, words[1:]), 2 * float(np.median(losses)), gradient, rows)


def best(call: Callable[[], object], times: int = 3) -> float:
    """Return the least seconds of the processor of a few calls: what else the machine does is in the others."""
    found = []
    for _ in range(times):
        began = time.process_time()
        call()
        found.append(time.process_time() - began)
    return min(found)


def speed_up(cost: Cost, workers: int, batches: int, *, steps: int = 2000) -> float:
    """Return how many times as many batches a second `workers` compute with so many a step as one worker does."""
    rng = np.random.default_rng(0)
    ring = 2 * (workers - 1) / workers * cost.gradient / NETWORK_BYTES_S + 2 * (workers - 1) * LATENCY_S
    groups, share = min(workers, batches), min(DOCUMENTS, max(1, workers // batches))
    drawn = rng.choice(cost.batches, (steps, groups, max(1, batches // workers))).sum(axis=2)
    encoding = (drawn - cost.loss).clip(0) / share + cost.loss
    if share > 1:
        encoding += cost.rows / NETWORK_BYTES_S + share * LATENCY_S
    slowest = encoding.max(axis=1)
    exposed = np.clip(ring - BACKWARD * slowest, 0, None) if workers > 1 else 0.0
    return float(batches * cost.batches.mean() / (slowest + exposed).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON in the last line")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure[0], int(options.measure[1]))))
        return
    found = {count: measured(count) for count in options.documents}
    print(f"{'':26s}" + "".join(f"{count:>14,}" for count in found) + "      growth")
    slopes = {}
    for name, unit in MEASURES.items():
        values = [row[name] / unit for row in found.values()]
        slopes[name] = (
            np.polyfit(np.log(list(found)), np.log(np.maximum(values, 1e-9)), 1)
            if len(values) > 1
            else [0, np.log(values[0])]
        )
        print(f"{name:26s}" + "".join(f"{value:14.3g}" for value in values) + f"{slopes[name][0]:12.2f}")
    size, parse = manifest_cost(1000)
    print(f"manifest: {size / 2000:.0f} bytes a part, {parse / 2:.3f} s to parse 1,000 parts")
    extended(found[max(found)], slopes, size / 2000, parse / 2000)
    cost = batch_cost()
    mean, spread = cost.batches.mean(), cost.batches.std() / cost.batches.mean()
    print(f"batch {1000 * mean:.0f} ms of the processor (deviation {spread:.1%}), its loss {1000 * cost.loss:.1f} ms")
    print(f"gradient {cost.gradient / 1e6:.0f} MB, rows of a batch {cost.rows / 1e6:.1f} MB")
    table = {workers: (speed_up(cost, workers, workers), speed_up(cost, workers, 1)) for workers in WORKERS}
    for workers, (own, shared) in table.items():
        print(f"  {workers:3d} workers: K = W {own:6.1f} x one,  K = 1 {shared:6.1f} x one")
    if options.json:
        print(json.dumps({str(count): row for count, row in found.items()} | {"speed-up": table}))


def measured(documents: int) -> dict[str, float]:
    """Measure a version of so many documents in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="multilink-scale-") as home:
        make_version(Path(home) / "lake", documents)
        arguments = ["-m", "benchmarks.scale", "--measure", f"{home}/lake", str(documents)]
        environment = os.environ | {"MULTILINK_CACHE": f"{home}/cache", "OMP_NUM_THREADS": "1"}
        done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=True)
        row: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return row


def extended(largest: dict[str, float], slopes: dict[str, np.ndarray], part_bytes: float, part_s: float) -> None:
    """Print what the lines give for a corpus of 100 million documents on some hosts."""

    def at(name: str) -> float:
        return float(np.exp(np.polyval(slopes[name], np.log(CORPUS))))

    parts = 2 * CORPUS // IN_SHARD
    size, seconds = parts * part_bytes / 1e6, parts * part_s
    print(f"{CORPUS:,} documents, {parts:,} parts: manifest {size:.0f} MB, parsed in {seconds:.1f} s once a process")
    for hosts in HOSTS:
        linked = CORPUS / (at("link documents/s") * hosts) / 3600
        print(
            f"  {hosts:3d} hosts: index {largest['index bytes a document'] * CORPUS / 1e9:.1f} GB a host (mapped), "
            f"memory {at('memory not mapped MB'):.0f} MB a worker, first step {at('first step s'):.0f} s, "
            f"linked in {linked:.1f} h by a core each"
        )


if __name__ == "__main__":
    main()
