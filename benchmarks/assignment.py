"""All assignments of a batch in one call against a loop over scipy's solver, both on the same cosines.

`multilink train` comes here once a step where the similarity is AP (`training.similarity.assignment`). Batches are of
documents of 8-22 sentences and 8-24 images, as in `benchmarks/training.py`: 11 documents are 121 problems, 256 are
65,536. Both answers have the same sums, or the benchmark stops. Run `python -m benchmarks.assignment [--json]`; the
ratio is the loop's time over ours. With `--device cuda` the cosines lie on a GPU and are fetched.

Found in processor time on a shared machine: 0.9 to 1.0 for 11 and 64 documents, 1.2 for documents of 35-50 rows.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn import functional as F

from training.data.ragged import Floats, Int64, Ragged
from training.similarity.assignment import Matching, match_batch

SENTENCES, IMAGES, DIMENSIONS = (8, 22), (8, 24), 64
SECONDS, MOST_ROUNDS = 5.0, 20


def batch_of(documents: int, device: torch.device) -> tuple[Tensor, Int64, Int64]:
    """Return the cosines of a batch's sentences and images, and the bounds of its documents."""
    rng = np.random.default_rng(0)
    counts = [rng.integers(*bounds, documents, endpoint=True) for bounds in (SENTENCES, IMAGES)]
    text, image = (F.normalize(torch.from_numpy(rng.normal(size=(int(n.sum()), DIMENSIONS))).float()) for n in counts)
    return (text @ image.T).to(device), Ragged.of(counts[0]), Ragged.of(counts[1])


def loop(cosines: Floats, sentences: Ragged, images: Ragged) -> float:
    """Return the sum of all matchings, each solved by a call of scipy."""
    total = 0.0
    for rows in sentences:
        for columns in images:
            block = cosines[rows, columns]
            total += block[linear_sum_assignment(block, maximize=True)].sum()
    return total


def ours(cosines: Tensor, sentences: Ragged, images: Ragged) -> Tensor:
    """Return the sum of all matchings, of one call."""
    edges = match_batch(cosines, sentences, images, k="min", matching=Matching.EXACT)
    return cosines.flatten().index_select(0, edges.entries).double().sum()


def seconds(run: Callable[[], object], device: torch.device) -> float:
    """Return the best time of a call."""
    times: list[float] = []
    while sum(times) < SECONDS and len(times) < MOST_ROUNDS:
        began = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return min(times)


def measure(documents: int, device: torch.device) -> float:
    cosines, *bounds = batch_of(documents, device)
    host = cosines.double().cpu().numpy()
    expected, found = loop(host, *bounds), float(ours(cosines, *bounds))
    if abs(found - expected) > 1e-6 * documents**2:
        raise SystemExit(f"{documents} documents: the loop's matchings sum to {expected}, ours to {found}")
    peer, own = seconds(lambda: loop(host, *bounds), device), seconds(lambda: ours(cosines, *bounds), device)
    problems = documents**2
    print(
        f"{documents} documents, {problems} problems: loop {1000 * peer:.1f} ms ({1e6 * peer / problems:.1f} us each), "
        f"ours {1000 * own:.1f} ms ({1e6 * own / problems:.1f} us each), {peer / own:.2f} x",
        flush=True,
    )
    return round(peer / own, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the ratios as JSON in the last line")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--documents", type=int, nargs="+", default=[11, 64, 256])
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    ratios = {
        f"{documents} documents": measure(documents, torch.device(options.device)) for documents in options.documents
    }
    if options.json:
        print(json.dumps(ratios))


if __name__ == "__main__":
    main()
