"""The time of a training step, alone or in turn with another commit's.

    python -m benchmarks.training [--recipe hessel-2019] [--before COMMIT] [--batches 40] [--threads 1] [--json]

A version of drawn documents (`scale_data`) is trained on as `multilink train` does, in a process of its own that waits
before each `training.loop.step.Stepper.step` until it is told to go on. With `--before` a second process runs the code
of that commit on its own copy of the version, and both take steps in turn, so that other work on the machine disturbs
them alike. A step lasts from its start to the start of the next.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path

import numpy as np

from benchmarks.command import parser_of, print_figures

FIRST = 10  # the first tenth of the steps is slower
IN_TURN = """
import sys, tempfile, time
from pathlib import Path

import torch

from benchmarks.scale_data import DATASET, make_version
from schemas.overrides import override
from training.data.loading import load_training_data
from training.loop import step, trainer
from training.loop.context import Context
from training.recipes import recipe

batches, name, threads = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
torch.set_num_threads(threads)
take = step.Stepper.step


def in_turn(*arguments, **named):
    print(time.process_time(), flush=True)
    sys.stdin.readline()
    return take(*arguments, **named)


step.Stepper.step = in_turn
with tempfile.TemporaryDirectory() as scratch:
    lake = make_version(Path(scratch), 11 * (batches + 2), 11)
    config = override(recipe(name), ["training.epochs=1"])
    trainer.train(config, load_training_data(lake, DATASET, config.reading), Context(), run_directory=Path(scratch))
"""


class Trainer:
    """A process that trains with the code under a folder, a step at a time."""

    def __init__(self, code: Path, scratch: str, options: Namespace) -> None:
        cache = f"{scratch}/cache-{code.name}"
        environment = os.environ | {"PYTHONPATH": str(code), "MULTILINK_CACHE": cache, "TMPDIR": scratch}
        command = [sys.executable, "-c", IN_TURN, str(options.batches), options.recipe, str(options.threads)]
        self._process = subprocess.Popen(
            command, cwd=code, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.clock, self.processor = list[float](), list[float]()
        self._spent = self._read()

    def step(self) -> None:
        began = time.perf_counter()
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        spent = self._read()
        self.clock.append(time.perf_counter() - began)
        self.processor.append(spent - self._spent)
        self._spent = spent

    def end(self) -> None:
        self._process.kill()
        self._process.wait()

    def _read(self) -> float:
        assert self._process.stdout is not None
        return float(self._process.stdout.readline())


def measure(options: Namespace) -> dict[str, float]:
    root = Path(__file__).resolve().parents[1]
    with tempfile.TemporaryDirectory(prefix="multilink-before-") as scratch:
        trainers = [Trainer(root, scratch, options)]
        if options.before:
            archive = subprocess.run(["git", "-C", root, "archive", options.before], check=True, capture_output=True)
            subprocess.run(["tar", "-x", "-C", scratch], check=True, input=archive.stdout)
            trainers.append(Trainer(Path(scratch), scratch, options))
        for _ in range(options.batches):
            for trainer in trainers:
                trainer.step()
        for trainer in trainers:
            trainer.end()
    figures: dict[str, float] = {}
    for name in ("clock", "processor"):
        times = [np.array(getattr(trainer, name)[options.batches // FIRST :]) for trainer in trainers]
        figures |= {f"{name} ms": 1000 * statistics.median(times[0])}
        print(f"a step takes {figures[f'{name} ms']:.1f} ms by the {name}")
        if options.before:
            ratios = times[0] / times[1]
            figures[f"{name} of before"] = middle = float(np.median(ratios))
            low, high = np.quantile(ratios, [0.25, 0.75])
            print(f"  {middle:.3f} of {options.before}'s; half of {len(ratios)} pairs {low:.3f} to {high:.3f}")
    return figures


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--recipe", default="hessel-2019")
    parser.add_argument("--before", metavar="COMMIT", help="take steps in turn with the code of a commit")
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    print_figures(options, measure(options))


if __name__ == "__main__":
    main()
