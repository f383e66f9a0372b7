"""What a command costs with the collector of cycles as commands set it, beside Python's own threshold (700 objects).

    python -m benchmarks.start [--turns 5] [--json]

Each turn runs each command in both ways, one after the other, in processes of their own. Figures are medians of the
processor's seconds, imports included.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = ROOT / "examples" / "photographs" / "documents.jsonl"
RUN = "from orchestration.__main__ import main; main()"
AS_PYTHON = "import schemas.collector; schemas.collector.collect_rarely = lambda: None; "
COMMANDS = {
    "link": f"link --model class-names --input {DOCUMENTS} --output {{folder}}/links.parquet",
    "build": f"build documents --set source.documents={DOCUMENTS} --lake {{folder}}/lake",
}


def processor_s(program: str, arguments: list[str]) -> float:
    """Return the seconds of the processor that a program takes, and what it started."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", program, *arguments], cwd=ROOT, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(name: str, turns: int) -> float:
    """Return the share of the processor's time that a command takes, of what it takes at Python's own threshold."""
    times: dict[str, list[float]] = {"": [], AS_PYTHON: []}
    for _ in range(turns):
        for prefix, found in times.items():
            with tempfile.TemporaryDirectory() as folder:
                found.append(processor_s(prefix + RUN, COMMANDS[name].format(folder=folder).split()))
    rarely, as_python = map(median, times.values())
    share = rarely / as_python
    print(f"{name:6} {as_python:5.2f} s at 700 objects, {rarely:5.2f} s at 20,000: {share:.2f}", flush=True)
    return round(share, 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print the shares as JSON in the last line")
    options = parser.parse_args()
    shares = {name: measure(name, options.turns) for name in COMMANDS}
    if options.json:
        print(json.dumps(shares))


if __name__ == "__main__":
    main()
