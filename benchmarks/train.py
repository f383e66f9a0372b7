"""The time of a real training run: `multilink train`'s path under Ray, part by part.

    python -m benchmarks.train [--precision float32 bfloat16] [--epochs 2] [--batches 60] [--shards 10]
                               [--workers 2 4] [--batches-per-step 4] [--before COMMIT] [--json]

    bound    floating-point operations of the real words, images and cosines of a step, forward and backward, at the
             rate of the machine's own product of two 2048 x 2048 matrices in that precision
    shapes   the same products one by one, in the shapes that the step has: a recurrence multiplies a few rows at a time
    step     `training.loop.step.Stepper.step` in the worker, median of the run
    epoch    from the first batch of an epoch to the checkpoint that Ray has stored, validation included
    before   steps of this code and of a commit in turn, each in a process of its own that trains alone, from the start
             of one step to the start of the next: `--batches` of them, by the clock and in processor time

A version of 11 documents a batch is written into a temporary lake: 10 sentences of 3-14 words, 10 images of 1280
numbers, a tenth of the documents for validation. Then `training.ray.train.launch` trains `hessel-2019` on it (GRU,
d = 1024), and its worker times itself. Bound and shapes are timed in the worker, before each epoch, so that all is of
one process and one time; shares of the bound are of medians.

Found on two shared cores of an AMD EPYC with AVX-512 BF16, 2026-11-22, with 20 steps an epoch:

                                     float32              bfloat16
                                     before    after      before    after
    bound / step                     50-61%    74-99%     43%       49-54%
    shapes / step                    82-93%    98-108%    61%       61-68%
    epoch / its steps - 1            8-19%     7-11%      11%       9%
    processors busy, of two          0.9-1.0   1.8        1.0       1.8

Before, Ray's niceness of 15 left the worker what others did not take, and gradients were joined, summed and scaled for
nothing. What an epoch takes beside its steps is validation (3%) and 0.1-0.3 s for its checkpoint, whatever its length:
with 60 steps an epoch takes 4% more than they in float32, 5% in bfloat16.

`--shards 1 --workers 2 --precision float32 --batches 20`, 2026-11-23: a step takes 1.51 of that of one worker on the
same two cores; 1.81 when shares were whole shards, and the second worker had nothing.

`--epochs 1 --batches 24 --shards 4 --workers 1 2 4 --batches-per-step 4 --precision float32`, 2026-11-23: a step of
four batches takes one worker 543 ms; 1.03 of that when it is measured again, 1.01 with two workers, 1.13 with four. All
share the same two cores, of which one worker alone uses 1.8: the figures show what working together costs, not what it
gains.

`--before c06a614 --precision float32`, 2026-11-24: a step takes 1.015 of that commit's by the clock (184 and 181 ms on
cores that others used, half of 54 pairs 0.964 to 1.052), 1.006 in processor time (359 and 355 ms).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import ray.train
import torch

from benchmarks.linking import DATASET, IMAGE_DIMENSIONS, Shape, make_version
from schemas.documents import Split
from schemas.lake import Lake
from schemas.overrides import override
from training.config import Precision, TrainConfig
from training.data.ragged import Ragged
from training.loop import epoch, step, trainer
from training.loop import state as states
from training.loop.context import Context
from training.loop.step import Stepper
from training.objectives.batch import EncodedBatch
from training.ray import train as ray_train
from training.recipes import recipe
from training.towers.recurrence import time_steps

SHAPE = Shape(sentences=(10, 10), words=(3, 14), images=(10, 10))
DOCUMENTS, DIMENSIONS, WORD_DIMENSIONS = 11, 1024, 300
TIMES = "times.json"
LARGE, REPEATS = 2048, 8
DTYPES = {Precision.FLOAT32: torch.float32, Precision.BFLOAT16: torch.bfloat16}
PARTS = {
    "data and towers": (step, "encode_batch"),
    "cosines and similarity": (EncodedBatch, "similarity"),
    "backward": (torch.autograd, "backward"),
    "clipping": (step, "clip"),
    "optimiser": (torch.optim.Adam, "step"),
    "step": (Stepper, "step"),
    "preparation (beside)": (epoch, "prepare_batch"),
    "validation": (trainer, "validate"),
    "keeping": (trainer, "_keep"),
    "checkpoint": (trainer, "_checkpoint"),
    "  saved": (states, "save"),
    "  reported": (Context, "report"),
}


def lengths() -> np.ndarray:
    """Return the words of each sentence of a typical batch."""
    rng = np.random.default_rng(0)
    return rng.integers(*SHAPE.words, DOCUMENTS * SHAPE.sentences[0], endpoint=True)


def products() -> list[tuple[int, int, int]]:
    """Return rows, inner size and columns of the matrix products of a step."""
    words = Ragged.of(lengths())
    *_, rows = time_steps(words)
    gates, images = 3 * DIMENSIONS, DOCUMENTS * SHAPE.images[0]
    later = words.total - int(rows[0])
    found = [(words.total, WORD_DIMENSIONS, gates), (gates, words.total, WORD_DIMENSIONS)]
    found += [(words.total, gates, WORD_DIMENSIONS), (gates, later, DIMENSIONS)]
    for count in rows[1:].tolist():
        found += [(count, DIMENSIONS, gates), (count, gates, DIMENSIONS)]
    found += [(images, IMAGE_DIMENSIONS, DIMENSIONS), (DIMENSIONS, images, IMAGE_DIMENSIONS)]
    cosines = (len(words), DIMENSIONS, images)
    return [*found, cosines, (len(words), images, DIMENSIONS), (images, len(words), DIMENSIONS)]


def operations() -> float:
    return float(sum(2 * n * k * m for n, k, m in products()))


def product_seconds(precision: Precision) -> float:
    """Return the time of one large product per floating-point operation."""
    left, right = (torch.randn(LARGE, LARGE).to(DTYPES[precision]) for _ in range(2))
    return seconds(lambda: left @ right) / (2 * LARGE**3)


def shapes_seconds(precision: Precision) -> float:
    """Return the time of a step's products, each in its own shape."""
    pairs = [[torch.randn(*shape).to(DTYPES[precision]) for shape in ((n, k), (k, m))] for n, k, m in products()]
    return seconds(lambda: [left @ right for left, right in pairs])


def seconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


@contextmanager
def timed(times: dict[str, list[float]]) -> Iterator[None]:
    """Note the seconds of every call of the `PARTS` inside."""
    patches = [
        mock.patch.object(owner, name, clocked(getattr(owner, name), times[part]))
        for part, (owner, name) in PARTS.items()
    ]
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()


def clocked(call: Callable[..., Any], times: list[float]) -> Callable[..., Any]:
    def wrapped(*args: Any, **options: Any) -> Any:
        began = time.perf_counter()
        try:
            return call(*args, **options)
        finally:
            times.append(time.perf_counter() - began)

    return wrapped


def timed_worker(settings: Mapping[str, Any], train_worker: Callable[..., Any]) -> Any:
    """Train as the worker does, and leave its times, with those of the bound, in the run's folder."""
    precision = Precision(settings["config"]["training"]["precision"])
    times: dict[str, list[float]] = defaultdict(list)
    train_epoch = trainer.train_epoch

    def train_one(*args: Any) -> dict[str, float]:
        times["bound"] += [operations() * product_seconds(precision) for _ in range(REPEATS)]
        times["shapes"] += [shapes_seconds(precision) for _ in range(REPEATS)]
        times["began"].append(time.perf_counter())
        times["processor"].append(time.process_time())
        times["faults"].append(-float(resource.getrusage(resource.RUSAGE_SELF).ru_minflt))
        return train_epoch(*args)

    checkpoint = trainer._checkpoint

    def checkpoint_one(*args: Any) -> None:
        checkpoint(*args)
        times["ended"].append(time.perf_counter())
        times["processor"].append(time.process_time())
        times["faults"].append(float(resource.getrusage(resource.RUSAGE_SELF).ru_minflt))

    with (
        mock.patch.object(trainer, "train_epoch", train_one),
        mock.patch.object(trainer, "_checkpoint", checkpoint_one),
        timed(times),
    ):
        result = train_worker(settings)
    times["threads"] = [float(torch.get_num_threads())]
    times["niceness"] = [float(os.nice(0))]
    if ray.train.get_context().get_world_rank() == 0:
        Lake.at(settings["lake"]).root.child("times").write(TIMES, json.dumps(times).encode())
    return result


def launch(config: TrainConfig, lake: Lake, run_id: str, workers: int = 1) -> dict[str, list[float]]:
    """Train under Ray and return the times of the first worker."""
    train_worker = ray_train._train_worker

    def worker(settings: Mapping[str, Any]) -> Any:
        from benchmarks.train import timed_worker as run

        return run(settings, train_worker)

    with mock.patch.object(ray_train, "_train_worker", worker):
        ray_train.launch(
            config, lake=lake, dataset=DATASET, workers=workers, run_id=run_id, on_report=_nothing, on_progress=_nothing
        )
    return json.loads(lake.root.child("times").read(TIMES))


def _nothing(message: object) -> None:
    """Keep a run's progress out of the table."""


def show(precision: Precision, times: Mapping[str, list[float]]) -> dict[str, float]:
    """Print a precision's table and return its ratios."""
    bound, shapes, taken = (statistics.median(times[name]) for name in ("bound", "shapes", "step"))
    epochs = [ended - began for began, ended in zip(times["began"], times["ended"], strict=True)]
    steps = len(times["step"]) // len(epochs)
    of_steps = [sum(times["step"][epoch * steps :][:steps]) for epoch in range(len(epochs))]
    processor = sum(times["processor"][1::2]) - sum(times["processor"][::2])
    over = statistics.median(epoch / of for epoch, of in zip(epochs, of_steps, strict=True)) - 1
    print(
        f"{precision}: bound {1000 * bound:.0f} ms, its products in their shapes {1000 * shapes:.0f} ms, step "
        f"{1000 * taken:.0f} ms: {bound / taken:.0%} and {shapes / taken:.0%} of them"
    )
    print(
        f"  epoch of {steps} steps {statistics.median(epochs):.2f} s, {over:.1%} more than its steps; "
        f"{processor / sum(epochs):.2f} processors busy of {times['threads'][0]:.0f} threads, niceness "
        f"{times['niceness'][0]:.0f}, {sum(times['faults']) / len(times['step']):.0f} page faults a step"
    )
    for part in PARTS:
        share, each = sum(times[part]) / sum(epochs), statistics.median(times[part])
        print(f"    {part:24s} {share:6.1%} of the epochs, {1000 * each:.1f} ms a call", flush=True)
    return {
        f"{precision} step": bound / taken,
        f"{precision} step of shapes": shapes / taken,
        f"{precision} epoch": over,
    }


TRAIN_IN_TURN = """
import sys, tempfile, time
from pathlib import Path

from benchmarks.train import DATASET, DOCUMENTS, SHAPE, Context, Split, make_version, override, recipe
from training.data.loading import load_training_data
from training.loop import step, trainer

batches, precision = int(sys.argv[1]), sys.argv[2]


def in_turn(call):
    def wrapped(*arguments, **named):
        print(time.process_time(), flush=True)
        sys.stdin.readline()
        return call(*arguments, **named)
    return wrapped


if hasattr(step, "Stepper"):
    step.Stepper.step = in_turn(step.Stepper.step)
else:
    trainer.take_step = in_turn(trainer.take_step)
with tempfile.TemporaryDirectory() as scratch:
    lake = make_version(Path(scratch), {Split.TRAIN: 10, Split.VAL: 1}, DOCUMENTS * (batches // 10 + 2), SHAPE)
    config = override(recipe("hessel-2019"), ["training.epochs=1", f"training.precision={precision}"])
    reading = getattr(config, "reading", config)  # which a commit of before has not
    trainer.train(config, load_training_data(lake, DATASET, reading), Context(), run_directory=Path(scratch))
"""


def compare_with(commit: str, precision: Precision, batches: int) -> dict[str, float]:
    """Take steps of this code and of a commit in turn; return how many times as long this code's take."""
    root = Path(__file__).resolve().parents[1]
    with tempfile.TemporaryDirectory(prefix="multilink-before-") as scratch:
        archive = subprocess.run(["git", "-C", root, "archive", commit], check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", scratch], check=True, input=archive)
        running = []
        for place in (root, Path(scratch)):
            cache = f"{scratch}/cache-{place.name}"
            environment = os.environ | {"PYTHONPATH": str(place), "MULTILINK_CACHE": cache, "TMPDIR": scratch}
            command = [sys.executable, "-c", TRAIN_IN_TURN, str(batches), precision]
            process = subprocess.Popen(
                command, cwd=place, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            running.append(process)
        clocks, processors = ([[], []], [[], []])
        spent = [float(read_line(process)) for process in running]
        for number in range(2 * batches):
            which = number % 2
            process = running[which]
            assert process.stdin is not None
            began = time.perf_counter()
            process.stdin.write("go\n")
            process.stdin.flush()
            now = float(read_line(process))
            clocks[which].append(time.perf_counter() - began)
            processors[which].append(now - spent[which])
            spent[which] = now
        for process in running:
            process.kill()
            process.wait()
    first = len(clocks[0]) // 10  # the first steps are slower
    found = {}
    for name, (ours, theirs) in {"clock": clocks, "processor": processors}.items():
        ratios = [one / other for one, other in zip(ours[first:], theirs[first:], strict=True)]
        found[f"{precision} step by the {name}, times {commit}'s"] = statistics.median(ratios)
        low, high = np.quantile(ratios, [0.25, 0.75])
        own, other = (1000 * statistics.median(times[first:]) for times in (ours, theirs))
        print(
            f"{precision}: a step takes {own:.0f} ms by the {name}, {commit}'s {other:.0f} ms: "
            f"{statistics.median(ratios):.3f} of it (median of {len(ratios)} pairs, half of them "
            f"{low:.3f} to {high:.3f})"
        )
    return found


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--precision", type=Precision, nargs="+", default=list(Precision))
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batches", type=int, default=60, help="of an epoch")
    parser.add_argument("--shards", type=int, default=10, help="of the training split")
    parser.add_argument("--workers", type=int, nargs="+", default=[], help="a step of each beside that of one worker")
    parser.add_argument("--batches-per-step", type=int, default=1)
    parser.add_argument("--before", help="a commit: compare steps with its code, and do nothing else")
    parser.add_argument("--json", action="store_true", help="print the ratios as JSON in the last line")
    options = parser.parse_args()
    found: dict[str, float] = {}
    if options.before:
        for precision in options.precision:
            found |= compare_with(options.before, precision, options.batches)
        if options.json:
            print(json.dumps({name: round(value, 3) for name, value in found.items()}))
        return
    with tempfile.TemporaryDirectory(prefix="multilink-train-") as scratch:
        shards = {Split.TRAIN: options.shards, Split.VAL: 1}
        lake = make_version(Path(scratch), shards, DOCUMENTS * options.batches // options.shards, SHAPE)
        for precision in options.precision:
            changes = [f"training.epochs={options.epochs}", f"training.precision={precision}"]
            changes.append(f"training.batches_per_step={options.batches_per_step}")
            config = override(recipe("hessel-2019"), changes)
            alone = launch(config, lake, str(precision))
            found |= show(precision, alone)
            for workers in options.workers:
                together = launch(config, lake, f"{precision}-{workers}", workers)
                share = statistics.median(together["step"]) / statistics.median(alone["step"])
                print(
                    f"  {workers} workers, {options.batches_per_step} batches a step: "
                    f"it takes {share:.2f} of that of one worker"
                )
                found[f"{precision} step of {workers} workers"] = share
    if options.json:
        print(json.dumps({name: round(value, 3) for name, value in found.items()}))


if __name__ == "__main__":
    main()
