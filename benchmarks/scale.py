"""What grows with a corpus in training and linking.

    python -m benchmarks.scale [--documents 10000 100000 1000000] [--json]
    python -m benchmarks.scale --first-step 10000000

Synthetic versions of shards of 256 documents, as builds make them, are trained on and their validation split, a tenth
of the documents, is linked. Each is measured in a process of its own with an empty cache.

    own            memory that no file is behind, at the end of training, beyond the imports
    peak           resident memory beyond the imports, at its highest (VmHWM), pages of files among it
    first step     from the call to the end of the first step, for which moments of up to 200,000 documents are read;
                   with torch imported
    step           mean of the processor's time of the steps of a window of 65,536 documents and a quarter of the next
                   (of an epoch where it is shorter), reading of shards included
    link           documents linked for a second of the processor

`--first-step` measures only that, of a version of so many documents in as many shards as a build makes of them; ten
million take 15 GB of disk and a quarter of an hour to make.

Found on two shared cores of an AMD EPYC, 2026-11-24, load 2 to 6:

                           10,000       100,000     1,000,000    most/least
    own MB                     77            92            94    1.22 (10,000 are less than a window)
    peak MB                   125           280           403    (files mapped; a window has an end)
    first step s             0.83          5.96          20.3
    step ms                   9.0           9.1           8.3    1.09
    link documents/s         4316          5766          6575    1.52, faster with size

`--first-step 10000000`, on the same cores at load 7: 53 s by the clock and 40 s of the processor, of which 45 and 33
until the index was there, in 900 MB at most, files mapped among them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from argparse import SUPPRESS
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.command import parser_of, print_figures
from benchmarks.scale_data import DATASET, make_version

IN_SHARD, SHARE_JUDGED, MOST_SHARDS = 256, 10, 16_384
DOCUMENTS = 11  # of a batch
FIRST = "first-step"


def measure(home: str, *, is_first: bool) -> dict[str, float]:
    """Measure a version in this process, whose cache is empty."""
    import torch
    import torch._dynamo  # as the first optimiser does: 40 MB of files read

    from schemas.lake import Folder, Lake
    from schemas.overrides import override
    from training.data.loading import load_training_data
    from training.data.split import WINDOW
    from training.linking.links import Linker
    from training.linking.versions import link_version, prepare_linking
    from training.recipes import recipe

    torch.set_num_threads(1)
    before, owned, began = status("VmRSS"), status("RssAnon"), time.perf_counter()
    config = override(recipe("tiny"), ["training.epochs=1"])
    data = load_training_data(Lake.at(home), DATASET, config.reading)
    loaded = time.perf_counter() - began
    run, clocks, spent = train_steps(config, data, 1 if is_first else (WINDOW + WINDOW // 4) // DOCUMENTS)
    found = {"index s": loaded, "first step s": clocks[0] - began, "processor of it s": spent[0]}
    if not is_first:
        found |= {"own MB": status("RssAnon") - owned, "step ms": 1000 * (spent[-1] - spent[0]) / (len(spent) - 1)}
        with tempfile.TemporaryDirectory() as folder:
            linker = Linker(model=run.model.eval(), uri="models:/scale/1")
            linking = prepare_linking(linker, Lake.at(home), DATASET, output=Folder(folder))
            started = time.process_time()
            linked = link_version(run.model, linking, splits=["val"], say=lambda line: None)
        found["link documents/s"] = linked.documents / (time.process_time() - started)
    return found | {"peak MB": status("VmHWM") - before}


def train_steps(config: Any, data: Any, most: int) -> tuple[Any, np.ndarray, np.ndarray]:
    """Train as an epoch does; return the run, and the clock and the processor's time at the end of each step."""
    from itertools import groupby, islice
    from operator import itemgetter

    from training.loop.context import Context
    from training.loop.epoch import _ahead, _batches
    from training.loop.setup import new_model
    from training.loop.state import start
    from training.loop.step import Stepper

    run = start(new_model(config, data, Context()))
    stepper, ended = Stepper(run.model, run.optimiser, Context()), []
    coming = _ahead(_batches(run.model, data.training, 1, Context()))
    for step, own in islice(groupby(coming, itemgetter(0)), most):
        stepper.step((batch for _, batch in own if batch is not None), count=step.batches)
        ended.append((time.perf_counter(), time.process_time()))
    return run, *np.array(ended).T


def status(name: str) -> float:
    """Return a size of this process, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1000 for line in lines if line.startswith(f"{name}:"))


def measured(documents: int, judged: int, in_shard: int, *arguments: str) -> dict[str, float]:
    """Measure a version of so many documents in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="multilink-scale-") as home:
        make_version(Path(home, "lake"), documents, judged, in_shard)
        environment = os.environ | {"MULTILINK_CACHE": f"{home}/cache", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "benchmarks.scale", "--measure", f"{home}/lake", *arguments]
        printed = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
        row: dict[str, float] = json.loads(printed.splitlines()[-1])
        return row


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--documents", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--first-step", type=int, metavar="N", help="measure the time to the first step alone")
    parser.add_argument("--measure", nargs="+", help=SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        home, *only = options.measure
        print(json.dumps(measure(home, is_first=bool(only))))
        return
    if options.first_step:
        in_shard = max(IN_SHARD, -(-options.first_step // MOST_SHARDS))
        found = {options.first_step: measured(options.first_step, in_shard, in_shard, FIRST)}
    else:
        found = {count: measured(count, count // SHARE_JUDGED, IN_SHARD) for count in sorted(options.documents)}
    print(f"{'':20s}" + "".join(f"{count:>12,}" for count in found) + "  most/least")
    for name in next(iter(found.values())):
        values = [row[name] for row in found.values()]
        print(f"{name:20s}" + "".join(f"{value:12.4g}" for value in values), f"{max(values) / min(values):11.2f}")
    print_figures(options, found)


if __name__ == "__main__":
    main()
