"""What grows with a corpus and with workers, measured; and what that gives for 100 million documents and 64 workers.

    python -m benchmarks.scale [--documents 10000 100000 1000000] [--workers 1 2 4] [--json]
    python -m benchmarks.scale --first-step 10000000

The first table: training, validation and linking of synthetic versions of shards of 256 documents, as builds make them,
with a validation split of a tenth of the documents. Each is measured in a process of its own with an empty cache.

    index, mapped, read   bytes a document: of the index, of the columns that a host maps, and of what it reads for them
    peak                  resident memory beyond the imports, at its highest (VmHWM), pages of files among it
    own                   memory that no file is behind, at the end of training, beyond the imports
    index, first step s   from the call until the index is made; to the end of the first step, for which moments of up
                          to 200,000 documents are read; with torch imported
    step                  median by the clock, less its waiting for batches
    with waiting          mean by the clock of the steps of a window of 65,536 documents and a quarter of the next (of
                          an epoch where it is shorter), reading of shards included; and in processor time
    validation, link      seconds of the processor for 1,000 documents; documents for a second of it
    W processes           median of a step of as many batches as processes, over gloo; they share the machine's cores

`--first-step` measures only that, of a version of so many documents in as many shards as a build makes of them; ten
million take 15 GB of disk and a quarter of an hour to make.

Growth is a line, a + b x documents, by least squares of the relative errors; the last column is the largest figure by
the smallest. Then the same for 100 million documents on 1, 8 and 64 hosts of one worker, of 16,384 shards a split: more
than these are not made (`pipelines.splits.assign`), since each process holds the list of parts.

The second table: how much faster W workers are than one with K batches a step, by a simulation of 2,000 steps. What a
batch costs is drawn from batches measured here (`hessel-2019`, 11 documents of 10 sentences and 10 images, one thread);
a step waits for the slowest worker. The gradient's bytes are summed by a ring (2 (W - 1) / W of them each way, at
`NETWORK`), beside the backward pass as far as that goes. A batch lives on one worker, so W is at most K. Noise of the
machine would count as differences between batches: their cost is that of a line through their words.

Found on two shared cores of an AMD EPYC, 2026-11-24, load 2 to 6, which the figures by the clock show (in brackets a
commit's of the day before, with shards of 5,000 documents and 300 steps):

                                10,000       100,000     1,000,000    most/least
    index bytes a document        32.2          32.0          32.0    1.00
    mapped bytes a document       1500          1500          1507    1.00
    read bytes a document         4537          3575          4412    1.27 (of all documents, the index)
    peak of training MB            125           280           403    (293, 409, 516: files mapped; a window has an end)
    own MB                          77            92            94    1.22 (10,000 are less than a window)
    index s                       0.38          0.78          7.42    6.1 s a million and 0.3 s
    first step s                  0.83          5.96          20.3    (1.69, 3.19, 6.2)
    step ms                        8.8          19.7          11.8    (4.2, 5.4, 5.2)
    step with waiting ms           9.1          24.9          14.4
    step, processor ms             9.0           9.1           8.3    1.09
    validation s a 1,000          0.76          0.86          0.70    1.22 (0.60, 0.57, 0.55)
    link documents/s              4316          5766          6575    1.52, faster with size (3260, 3720, 3970)
    1, 2, 4 processes ms       9.5, 19, 56   17, 25, 57    7.6, 12, 29

    a manifest has 177 bytes a part, and is parsed in 19 ms a 1,000 parts
    100 million documents: index 3.2 GB a host, first step after 624 s, nearly all of them for the index

    times one worker         1       2       4       8      16      32      64
    K = W                  1.0     2.0     3.8     7.5    14.8    29.1    57.2
    K = 16                 1.0     2.0     3.9     7.7    14.8
    K = 64                 1.0     2.0     4.0     7.8    15.4    30.0    57.2    (64: 59.6)

Goals: bytes and times a document flat within 10%: met by index, mapped bytes and a step's processor time, missed by
bytes read, own memory, validation and linking, of which the last two were measured once, at changing load. 55 times
with 64 workers and K = 64: met. `--first-step 10000000`, on the same cores at load 7: 53 s by the clock and 40 s of the
processor, of which 45 and 33 until the index was there, in 900 MB at most, files mapped among them. 60 s: met.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.scale_data import make_version

DATASET, IN_SHARD, SHARE_JUDGED = "scale", 256, 10
DOCUMENTS = 11  # of a batch
NETWORK_BYTES_S, LATENCY_S = 25e9 / 8, 50e-6  # 25 Gbit/s a worker
BACKWARD = 0.6  # of a batch's time, beside which gradients are summed
CORPUS, HOSTS, MOST_SHARDS = 100_000_000, (1, 8, 64), 16_384
WORKERS, BATCHES = (1, 2, 4, 8, 16, 32, 64), (16, 64)
STEPS_TOGETHER = 200
UNITS = {"MB": 1e6, "ms": 1e-3}
FIRST = "first-step"


def measure(home: str) -> dict[str, float]:
    """Measure a version in this process, whose cache is empty."""
    import torch
    import torch._dynamo  # as the first optimiser does: 40 MB of files read

    from schemas.lake import Folder, Lake
    from training.data.batches import WINDOW
    from training.linking.links import Linker
    from training.linking.versions import link_version, prepare_linking
    from training.loop.context import Context
    from training.loop.validation import validate

    torch.set_num_threads(1)
    before, owned, read, began = resident(), own(), bytes_read(), time.perf_counter()
    config, data = load(home)
    loaded = time.perf_counter()
    run, ended, waited = train_steps(config, data, Context(), (WINDOW + WINDOW // 4) // DOCUMENTS)
    times, spent = ended.T
    files = {path: path.stat().st_size for path in Path(os.environ["MULTILINK_CACHE"]).rglob("*.arrow")}
    index = sorted(files.values())[-1] if len(files) < 3 else index_bytes(files, len(data.training.index))
    mapped = sum(files.values()) - index
    touched = min(len(data.training.index), IN_SHARD * (len(files) - 2))
    found = {
        "index bytes a document": index / len(data.training.index),
        "mapped bytes a document": mapped / touched,
        "read bytes a document": (bytes_read() - read) / touched,
        "peak of training MB": peak() - before,
        "own MB": own() - owned,
        "index s": loaded - began,
        "first step s": times[0] - began,
        "step ms": float(np.median(np.diff(times) - waited[1:])),
        "step with waiting ms": (times[-1] - times[0]) / (len(times) - 1),
        "step, processor ms": (spent[-1] - spent[0]) / (len(spent) - 1),
    }
    reset_peak()
    started, judged = time.process_time(), data.validation
    assert judged is not None
    validate(run.model, judged, Context(), epoch=1)
    found["validation s a 1,000"] = 1000 * (time.process_time() - started) / len(judged.index)
    found["peak of validation MB"] = peak() - before
    reset_peak()
    with tempfile.TemporaryDirectory() as folder:
        linker = Linker(model=run.model.eval(), uri="models:/scale/1")
        linking = prepare_linking(linker, Lake.at(home), DATASET, output=Folder(folder))
        started = time.process_time()
        linked = link_version(run.model, linking, splits=["val"], say=lambda line: None)
    found["link documents/s"] = linked.documents / (time.process_time() - started)
    found["peak of linking MB"] = peak() - before
    return found


def measure_first_step(home: str) -> dict[str, float]:
    """Measure how long a run takes to its first step in this process, whose cache is empty."""
    from training.loop.context import Context

    before, began = resident(), time.perf_counter()
    config, data = load(home)
    loaded, spent = time.perf_counter(), time.process_time()
    _, ended, _ = train_steps(config, data, Context(), 1)
    return {
        "index s": loaded - began,
        "first step s": ended[0, 0] - began,
        "first step, processor s": ended[0, 1],
        "of it after the index": ended[0, 1] - spent,
        "peak MB": (peak() - before) / UNITS["MB"],
    }


def load(home: str, batches: int = 1) -> tuple[Any, Any]:
    """Return the configuration and the data of a run of so many batches a step."""
    from schemas.lake import Lake
    from schemas.overrides import override
    from training.data.loading import load_training_data
    from training.recipes import recipe

    config = override(recipe("tiny"), ["training.epochs=1", f"training.batches_per_step={batches}"])
    return config, load_training_data(Lake.at(home), DATASET, config.reading)


def train_steps(config: Any, data: Any, context: Any, most: int) -> tuple[Any, np.ndarray, np.ndarray]:
    """Train as an epoch does; return the run, clock and processor time at the end of each step, and its waiting."""
    from itertools import groupby, islice
    from operator import itemgetter

    from training.loop.epoch import _ahead, _batches
    from training.loop.setup import new_model
    from training.loop.state import start
    from training.loop.step import Stepper

    run = start(new_model(config, data, context))
    stepper, ended, waited = Stepper(run.model, run.optimiser, context), [], []
    coming = timed(_ahead(_batches(run.model, data.training, 1, context)), waited)
    for step, own in islice(groupby(coming, itemgetter(0)), most):
        stepper.step((batch for _, batch in own if batch is not None), count=step.batches)
        ended.append((time.perf_counter(), time.process_time()))
    per_step = np.add.reduceat(waited, np.arange(0, len(ended) * max(1, step.computed), max(1, step.computed)))
    return run, np.array(ended), per_step[: len(ended)]


def timed(items: Iterator[Any], waited: list[float]) -> Iterator[Any]:
    """Yield items, and note how long each was waited for."""
    while True:
        began = time.perf_counter()
        item = next(items, None)
        waited.append(time.perf_counter() - began)
        if item is None:
            return
        yield item


def index_bytes(files: dict[Path, int], documents: int) -> int:
    """Return the size of the training split's index: of 32 bytes a document."""
    return min(files.values(), key=lambda size: abs(size - 32 * documents))


def status(name: str) -> float:
    """Return a size of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024.0 * float(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def resident() -> float:
    reset_peak()
    return status("VmRSS")


def peak() -> float:
    return status("VmHWM")


def own() -> float:
    return status("RssAnon")


def reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def bytes_read() -> float:
    return float(Path("/proc/self/io").read_text().split()[1])


def together(home: str, rank: int, workers: int) -> float:
    """Return the median of a step of as many batches as workers, as one of them."""
    import torch
    import torch.distributed as dist

    from training.loop.context import Context, TorchDistributed

    torch.set_num_threads(1)
    if workers > 1:
        dist.init_process_group("gloo", init_method=f"file://{home}.meeting", rank=rank, world_size=workers)
    context = TorchDistributed() if workers > 1 else Context()
    _, ended, _ = train_steps(*load(home, workers), context, STEPS_TOGETHER)
    return float(np.median(np.diff(ended[:, 0])))


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
    """Seconds of each measured batch, and bytes of the gradient."""

    batches: np.ndarray
    gradient: float


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
    from training.loop.encoding import prepare_batch
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
        data = load_training_data(lake, "benchmark", config.reading)
        run = start(new_model(config, data, context))
        stepper = Stepper(run.model, run.optimiser, context)
        times, words = [], []
        for number, positions in enumerate(
            training_batches(data.training.index, negative_documents=10, seed=0, epoch=1)
        ):
            draw_key = DrawKey(split="training", epoch=1, step=number)
            batch = prepare_batch(run.model, data.training, positions, draw_key)
            words.append(sum(len(text.split()) for text in batch.documents.texts))
            times.append(best(lambda batch=batch: stepper.step([batch], count=1)))
    gradient = sum(4.0 * each.numel() for each in run.model.parameters() if each.requires_grad)
    line = np.polyfit(words[1:], times[1:], 1)  # what the machine does beside would count as differences of batches
    print(f"residual of a line through words: {np.std(times[1:] - np.polyval(line, words[1:])) / np.mean(times):.1%}")
    return Cost(np.polyval(line, words[1:]), gradient)


def best(call: Callable[[], object], times: int = 3) -> float:
    """Return the least seconds of the processor of a few calls: what else the machine does is in the others."""
    found = []
    for _ in range(times):
        began = time.process_time()
        call()
        found.append(time.process_time() - began)
    return min(found)


def speed_up(cost: Cost, workers: int, batches: int, *, steps: int = 2000) -> float:
    """Return how many times as many batches a second `workers`, at most as many as a step has, compute as one does."""
    rng = np.random.default_rng(0)
    ring = 2 * (workers - 1) / workers * cost.gradient / NETWORK_BYTES_S + 2 * (workers - 1) * LATENCY_S
    slowest = rng.choice(cost.batches, (steps, workers, batches // workers)).sum(axis=2).max(axis=1)
    exposed = np.clip(ring - BACKWARD * slowest, 0, None) if workers > 1 else 0.0
    return float(batches * cost.batches.mean() / (slowest + exposed).mean())


def line_of(documents: list[int], values: list[float]) -> tuple[float, float]:
    """Return a and b of a + b x documents, by least squares of the relative errors."""
    weights = 1 / np.maximum(np.abs(values), 1e-12)
    if len(values) < 2:
        return values[0], 0.0
    b, a = np.polyfit(documents, values, 1, w=weights)
    return float(a), float(b)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4], help="processes of a step, over gloo")
    parser.add_argument("--first-step", type=int, metavar="N", help="measure the time to the first step alone")
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON in the last line")
    options = parser.parse_args()
    if options.measure:
        home, *place = options.measure
        if place == [FIRST]:
            print(json.dumps(measure_first_step(home)))
        else:
            print(json.dumps(together(home, *map(int, place)) if place else measure(home)))
        return
    if options.first_step:
        print(json.dumps(first_step(options.first_step)))
        return
    began, load = time.perf_counter(), os.getloadavg()[0]
    found = {}
    for count in sorted(options.documents):
        found[count] = measured(count, options.workers)
        print(f"{count:,} documents: {time.perf_counter() - began:.0f} s, load {os.getloadavg()[0]:.1f}", flush=True)
    lines = table(found)
    size, parse = (value / 2000 for value in manifest_cost(1000))
    print(f"manifest: {size:.0f} bytes a part, {1000 * parse:.3f} s to parse 1,000 parts")
    extended(found, lines, size, parse)
    cost = batch_cost()
    mean, spread = cost.batches.mean(), cost.batches.std() / cost.batches.mean()
    print(
        f"batch {1000 * mean:.0f} ms of the processor (deviation {spread:.1%}), gradient {cost.gradient / 1e6:.0f} MB"
    )
    speeds = {f"{w} of {k}": speed_up(cost, w, k) for k in BATCHES for w in WORKERS if w <= k}
    speeds |= {f"{w} of {w}": speed_up(cost, w, w) for w in WORKERS}
    print(f"{'times one worker':18s}" + "".join(f"{w:>8d}" for w in WORKERS))
    for name, batches in [("K = W", WORKERS), *((f"K = {k}", [k] * len(WORKERS)) for k in BATCHES)]:
        row = (speeds[f"{w} of {k}"] for w, k in zip(WORKERS, batches, strict=True) if w <= k)
        print(f"{name:18s}" + "".join(f"{value:8.1f}" for value in row))
    print(f"in {time.perf_counter() - began:.0f} s, load {load:.1f} before and {os.getloadavg()[0]:.1f} after")
    if options.json:
        print(json.dumps({str(count): row for count, row in found.items()} | {"speed-up": speeds}))


def table(found: dict[int, dict[str, float]]) -> dict[str, tuple[float, float]]:
    """Print what was measured, and return the line of each measure."""
    print(f"{'':26s}" + "".join(f"{count:>12,}" for count in found) + "           a  + b a million  most/least")
    lines = {}
    for name in next(iter(found.values())):
        unit = UNITS.get(name.rsplit(" ", 1)[-1], 1.0)
        values = [row[name] / unit for row in found.values()]
        a, b = lines[name] = line_of(list(found), values)
        print(
            f"{name:26s}" + "".join(f"{value:12.4g}" for value in values),
            f"{a:11.4g}{1e6 * b:15.3g}{max(values) / min(values):12.2f}",
            flush=True,
        )
    return lines


def first_step(documents: int) -> Any:
    """Measure the time to the first step with so many documents in a process of its own."""
    in_shard = max(IN_SHARD, -(-documents // MOST_SHARDS))
    with tempfile.TemporaryDirectory(prefix="multilink-scale-") as home:
        make_version(Path(home, "lake"), documents, in_shard, in_shard)
        return result(begin(home, FIRST))


def begin(home: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a process that measures the version under a folder."""
    environment = os.environ | {"MULTILINK_CACHE": f"{home}/cache", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.scale", "--measure", f"{home}/lake", *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def result(process: subprocess.Popen[str]) -> Any:
    """Return what a process that `begin` started has measured."""
    printed, _ = process.communicate()
    if process.returncode:
        raise SystemExit(process.returncode)
    return json.loads(printed.splitlines()[-1])


def measured(documents: int, workers: list[int]) -> dict[str, float]:
    """Measure a version of so many documents in processes of their own."""
    with tempfile.TemporaryDirectory(prefix="multilink-scale-") as home:
        make_version(Path(home, "lake"), documents, documents // SHARE_JUDGED, IN_SHARD)
        row: dict[str, float] = result(begin(home))
        for count in workers:
            running = [begin(home, str(rank), str(count)) for rank in range(count)]
            row[f"{count} processes ms"] = max(map(result, running))
            Path(home, "lake.meeting").unlink(missing_ok=True)
        return row


def extended(
    found: dict[int, dict[str, float]], lines: dict[str, tuple[float, float]], part_bytes: float, part_s: float
) -> None:
    """Print what the lines give for a corpus of 100 million documents on some hosts."""

    (a, b), most = lines["index s"], max(row["first step s"] - row["index s"] for row in found.values())
    begin = a + b * CORPUS + most
    parts = 2 * MOST_SHARDS
    size, seconds = parts * part_bytes / 1e6, parts * part_s
    print(f"{CORPUS:,} documents, {parts:,} parts: manifest {size:.1f} MB, parsed in {seconds:.2f} s once a process")
    index, mapped = lines["index bytes a document"][0], lines["mapped bytes a document"][0]
    for hosts in HOSTS:
        linked = CORPUS / (lines["link documents/s"][0] * hosts) / 3600
        print(
            f"  {hosts:3d} hosts: index {index * CORPUS / 1e9:.1f} GB a host, mapped columns up to "
            f"{mapped * CORPUS / 1e9:.0f} GB a host, first step {begin:.0f} s, "
            f"linked in {linked:.1f} h by a core each"
        )


if __name__ == "__main__":
    main()
