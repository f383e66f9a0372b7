"""What a person waits for: the demo, linking three sentences, training on the demo's data, a mistyped command.

    python -m benchmarks.waiting [--workspace DIR] [--runs 3] [--without-demo] [--json]

Each command runs as a user runs it, in a process of its own, in an empty home. Of several runs the fastest counts (of
the demo there is one). Time by the clock is the command's, the processor's that of all its processes. `imports` is what
Python's `-X importtime` adds up for the command's own process. The longest waits are those between two lines of its
progress; the second line is printed.

Measured on 2026-11-28 on two quiet cores, seconds by the clock and of the processor: a mistyped command 0.13 and 0.13;
link 3.8 to 4.0 and 4.1, of which imports are 2.2; the demo 53 (69 in the same hour while its command imported
PyTorch between build and training, and waited four seconds for a host that never ends);
training 9.8 and 10.4 (11.7 and 12.4 in the same hour, with an optimiser that it did not need), of which imports are
3.5, registering 2.5 and the closed form 3.3. What the demo's steps take of the processor is not counted: they are not
children of its process. Its build takes 36 s of the clock, 14 of them for convolutions on both cores, 7 in a new home
to make the network's graph.

The bound of a row is on the clock or on the processor, on two quiet cores. A machine that starts Python in another time
needs another one: the first row is Python with nothing to do.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path

from benchmarks.command import cpu_seconds, parser_of, print_figures

ROOT = Path(__file__).resolve().parent.parent
TIMED_LINE = re.compile(r"^\[ *([\d.]+) s\] (.*)")
WAITS = 4  # that are printed of a command


@dataclass(frozen=True, slots=True)
class Measured:
    """A command's times in seconds, and its longest waits with what ended each."""

    clock_s: float
    cpu_s: float
    imports_s: float = 0.0
    waits: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """A command, and what bounds it: seconds of the clock, or of the processor."""

    name: str
    arguments: tuple[str, ...]
    clock_bound_s: float | None = None
    cpu_bound_s: float | None = None
    status: int = 0
    runs: int = 0

    def found(self, measured: Measured) -> str:
        """Return the times beside the bound."""
        bound, value = (
            (self.cpu_bound_s, measured.cpu_s) if self.cpu_bound_s else (self.clock_bound_s, measured.clock_s)
        )
        kind = "processor" if self.cpu_bound_s else "clock"
        judged = f"{bound:g} s of the {kind}: {'met' if value <= bound else 'missed'}" if bound else ""
        times = f"{measured.clock_s:6.2f} {measured.cpu_s:6.2f} {measured.imports_s:6.2f}"
        return f"{self.name:44} {times}   {judged}".rstrip()


def rows(workspace: Path) -> Iterator[Row]:
    """Yield the commands in the order in which they need each other."""
    multilink = ("-m", "orchestration")
    yield Row("Python alone", ("-c", "pass"))
    yield Row("a mistyped command", (*multilink, "lnk"), clock_bound_s=0.3, status=2)
    documents = str(ROOT / "examples" / "photographs" / "documents.jsonl")
    link = ("link", "--model", "class-names", "--input", documents, "--output", "links.parquet", "--page", "linked")
    yield Row("link of three sentences and pictures", (*multilink, *link), clock_bound_s=4.0)
    yield Row("the demo", (*multilink, "demo", "--workspace", str(workspace)), clock_bound_s=45.0, runs=1)
    train = ("train", "--dataset", "diy", "--recipe", "closed-form", "--lake", str(workspace / "lake"))
    store = ("--tracking-uri", f"sqlite:///{workspace / 'mlflow.db'}")
    yield Row("train, closed form, on the demo's data", (*multilink, *train, *store), cpu_bound_s=3.0)


def run(row: Row, folder: Path, *options: str) -> tuple[Measured, str]:
    """Return the times of one run of a command, and what it printed of its progress."""
    environment = {**os.environ, "HOME": str(folder), "PYTHONPATH": str(ROOT)}
    before, began = cpu_seconds(), time.perf_counter()
    command = [sys.executable, *options, *row.arguments]
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    clock, cpu = time.perf_counter() - began, cpu_seconds() - before
    if ended.returncode != row.status:
        raise SystemExit(f"{row.name}: status {ended.returncode}\n{ended.stderr}")
    lines = [(float(found[1]), found[2]) for line in ended.stderr.splitlines() if (found := TIMED_LINE.match(line))]
    waits = sorted(((after - start, text) for (start, _), (after, text) in pairwise([(0.0, ""), *lines])), reverse=True)
    return Measured(clock, cpu, waits=tuple(waits[:WAITS])), ended.stderr


def imports_s(progress: str) -> float:
    """Return what `-X importtime` wrote, added up: the first number of a line is a module's own microseconds."""
    return sum(int(found) for found in re.findall(r"^import time: +(\d+)", progress, re.MULTILINE)) / 1e6


def measure(row: Row, folder: Path, runs: int) -> Measured:
    """Return the fastest of some runs of a command, with the imports of one more."""
    fastest = min((run(row, folder)[0] for _ in range(row.runs or runs)), key=lambda found: found.clock_s)
    if row.runs:
        return fastest
    return replace(fastest, imports_s=imports_s(run(row, folder, "-X", "importtime")[1]))


def print_rows(measured: Sequence[tuple[Row, Measured]]) -> None:
    """Print the table, and below it the longest waits of each command."""
    print(f"{'':44}  clock    cpu imports")
    for row, found in measured:
        print(row.found(found))
    for row, found in measured:
        for seconds, text in found.waits:
            print(f"{row.name}: {seconds:.1f} s until: {text}")


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--workspace", type=Path, help="of the demo; one that is there is continued")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--without-demo", action="store_true", help="the first three commands alone")
    options: Namespace = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        chosen = list(rows((options.workspace or folder / "demo").absolute()))
        commands = chosen[:3] if options.without_demo else chosen
        measured = [(row, measure(row, folder, options.runs)) for row in commands]
    print_rows(measured)
    print_figures(options, {row.name: asdict(found) for row, found in measured})


if __name__ == "__main__":
    main()
