"""All similarities of a batch, forward and backward: one product and segment operations against a loop over pairs.

The peer is the loop that the definition suggests, over every pair's own product. Sizes are those of
Hessel 2019's data sets at b = 10 and b = 30. Run `python -m benchmarks.similarity [--json]`; the ratio is peer time
over our time.
"""

import argparse
import json
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from schemas.plugins import SIMILARITIES, find_part, own_parts
from training.data.ragged import Int64, Ragged
from training.similarity.assignment import match

DIMENSIONS = 1024
SHAPES = {"story (5 x 5)": (5, 5), "mscoco (10 x 10)": (10, 10), "diy (15 x 16)": (15, 16), "wiki (86 x 5)": (86, 5)}
ROUNDS = 5


def by_definition(matrix_nm: Tensor, kind: str) -> Tensor:
    """Return the similarity of one sentence set and one image set, each maximum or edge by itself."""
    n, m = matrix_nm.shape
    if kind == "ap":
        rows, columns = match(matrix_nm.detach().double().numpy(), min(n, m), "exact")
        return matrix_nm[rows, columns].mean()
    by_row, by_column = matrix_nm.amax(dim=1), matrix_nm.amax(dim=0)
    if kind == "tk":
        by_row, by_column = by_row.topk(min(n, m)).values, by_column.topk(min(n, m)).values
    return by_row.mean() + by_column.mean()


def pair_by_pair(text: Tensor, image: Tensor, sentence_sets: Ragged, image_sets: Ragged, kind: str) -> Tensor:
    sentences = torch.split(text, sentence_sets.counts.tolist())
    images = torch.split(image, image_sets.counts.tolist())
    rows = [torch.stack([by_definition(s @ v.T, kind) for v in images]) for s in sentences]
    return torch.stack(rows)


def from_one_product(text: Tensor, image: Tensor, sentence_sets: Ragged, image_sets: Ragged, kind: str) -> Tensor:
    similarity: Tensor = find_part(SIMILARITIES, kind)().blocks(text @ image.T, sentence_sets, image_sets)
    return similarity


def milliseconds(similarity: Callable[..., Tensor], *arguments: object) -> float:
    """Return the median time of a forward and backward pass."""
    times = []
    for _ in range(ROUNDS + 1):
        start = time.perf_counter()
        torch.autograd.backward(similarity(*arguments).sum())
        times.append(1000 * (time.perf_counter() - start))
    return float(np.median(times[1:]))


def batch_of(documents: int, shape: tuple[int, int]) -> tuple[Tensor, Tensor, Int64, Int64]:
    """Return a batch whose sizes vary around the given ones."""
    rng = np.random.default_rng(0)
    sentences, images = (np.maximum(1, rng.poisson(size, documents)) for size in shape)
    text, image = (
        F.normalize(torch.from_numpy(rng.normal(size=(int(counts.sum()), DIMENSIONS))).float(), dim=1)
        for counts in (sentences, images)
    )
    return text.requires_grad_(), image.requires_grad_(), Ragged.of(sentences), Ragged.of(images)


def measure(documents: int, name: str, kind: str) -> float:
    arguments = (*batch_of(documents, SHAPES[name]), kind)
    peer, ours = milliseconds(pair_by_pair, *arguments), milliseconds(from_one_product, *arguments)
    print(f"b = {documents - 1}, {name}, {kind}: pair by pair {peer:.1f} ms, batch {ours:.1f} ms, {peer / ours:.1f} x")
    return round(peer / ours, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the ratios as JSON in the last line")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    ratios = {
        f"{kind}, b = {documents - 1}, {name}": measure(documents, name, kind)
        for kind in own_parts(SIMILARITIES)
        for documents in (11, 31)
        for name in SHAPES
    }
    if options.json:
        print(json.dumps(ratios))


if __name__ == "__main__":
    main()
