"""Does the closed form's time grow with the documents and with nothing else? And its memory not at all?

    python -m benchmarks.closed_form [--documents 1000 10000 100000] [--threads 1] [--device cpu] [--demo] [--json]

`multilink train --recipe closed-form` spends its time here: a pass that sums vectors' moments, once a run, and one of
plans and products in each epoch (`training.closed_form.solver`). Both are timed for documents of ten sentences and ten
images with vectors of the sizes of the packaged encoders (512 and 1,280). A shard of 1,000 documents is drawn once and
passed over as often as there are thousands: what is measured is neither reading nor drawing.

`--demo` trains on the posts of the demo instead, by `tiny` and by the closed form, as `benchmarks/learning.py` does.

Measured on two shared cores (processor time, one thread):

    documents  moments, s  a pass, s  ms a document  memory, MB
        1,000        1.11       0.22          1.327         909
       10,000        7.06       2.41          0.948         985
      100,000       66.10      18.83          0.849         993
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.command import parser_of, print_figures
from benchmarks.held_split import HeldSplit
from benchmarks.learning_columns import SENTENCES, VECTORS
from benchmarks.learning_data import build_posts
from benchmarks.learning_models import ALL_IMAGES, ALL_SENTENCES, NAMES
from benchmarks.learning_scores import fit
from schemas.lake import Lake
from schemas.overrides import override
from training.closed_form.solver import Solver
from training.data.documents import DocumentSet
from training.data.ragged import Int64, Ragged
from training.loop.context import Context
from training.objectives.closed_form import ClosedForm
from training.recipes import recipe
from training.towers.vectors import VectorTower
from training.towers.whitening import Column

SHARD, ROWS, SIZES, DIMENSIONS = 1000, 10, (512, 1280), 128


class Repeated(HeldSplit):
    """A split of so many shards, each of the same documents."""

    def __init__(self, documents: DocumentSet, shards: int) -> None:
        super().__init__(documents)
        self.index = replace(
            self.index, shards=Ragged.of([len(documents)] * shards), usable=np.arange(len(documents) * shards)
        )

    def documents(self, positions: Int64) -> DocumentSet:
        return self.held.take_documents(positions % len(self.held))


def drawn() -> DocumentSet:
    rng = np.random.default_rng(0)
    texts, images = (rng.normal(size=(SHARD * ROWS, size)).astype(np.float16) for size in SIZES)
    sets = Ragged.of([ROWS] * SHARD)
    return DocumentSet(
        ids=tuple(map(str, range(SHARD))),
        texts=("",) * len(texts),
        sentences=sets,
        sentence_numbers=sets.numbers,
        sentence_vectors=texts,
        images=sets,
        image_rows=np.arange(len(images)),
        image_hashes=tuple(map(str, range(len(images)))),
        image_bank=images,
    )


def measured(documents: DocumentSet, count: int, device: torch.device) -> tuple[float, float]:
    """Return the processor seconds of the pass of moments, and of a pass of plans and products."""
    term = ClosedForm()
    towers = [VectorTower(size, DIMENSIONS, dropout=0.0).to(device) for size in SIZES]
    components = (term.sentence_components, term.image_components)
    text, image = ([Column(size=size, components=kept)] for size, kept in zip(SIZES, components, strict=True))
    split = Repeated(documents, -(-count // SHARD))
    solver = Solver(
        text=towers[0],
        image=towers[1],
        split=split,
        workers=Context(device=device),
        columns=(text, image),
        named=None,
        pass_of=lambda epoch: term.pass_of(2),
    )
    began = time.process_time()
    _ = solver.inputs
    between = time.process_time()
    solver.take(1, lambda read: None)
    return between - began, time.process_time() - between


def of_demo(workspace: Path) -> Iterator[tuple[str, float]]:
    """Yield models of the demo's posts and the processor seconds of their training."""
    posts = build_posts(Lake.at(str(workspace / "lake")), 0)
    plain = (f"data.image_features={VECTORS}", f"data.sentence_features={SENTENCES}")
    models = {
        "tiny": override(recipe("tiny"), plain),
        "closed form": override(recipe("closed-form"), [NAMES, plain[1]]),
        "tiny, all columns": override(recipe("tiny"), [ALL_IMAGES, ALL_SENTENCES]),
        "closed form, all columns": recipe("closed-form"),
    }
    for config in models.values():
        posts.training(config)  # what is read once a machine
    for title, config in models.items():
        began = time.process_time()
        fit(config, posts)
        yield title, time.process_time() - began


def main(arguments: Sequence[str] | None = None) -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--documents", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--demo", action="store_true", help="train on the demo's posts, beside the recipe tiny")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    if options.demo:
        with tempfile.TemporaryDirectory(prefix="closed-form-") as folder:
            for title, seconds in of_demo(Path(folder)):
                print(f"{title:<26}{seconds:>7.1f} s", flush=True)
        return
    documents, device = drawn(), torch.device(options.device)
    measured(documents, SHARD, device)  # what is done once a process
    print("documents  moments, s  a pass, s  ms a document  memory, MB")
    found = {}
    for count in options.documents:
        moments, a_pass = measured(documents, count, device)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        each = 1000 * (moments + a_pass) / count
        print(f"{count:>9,}  {moments:>10.2f}  {a_pass:>9.2f}  {each:>13.3f}  {memory:>10.0f}", flush=True)
        found[str(count)] = {"moments s": moments, "pass s": a_pass, "ms a document": each, "memory MB": memory}
    print_figures(options, found)


if __name__ == "__main__":
    main()
