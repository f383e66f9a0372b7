"""What the benchmarks share: their options, the line of JSON at their end, and the time of the processor."""

from __future__ import annotations

import json
import resource
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter


def parser_of(description: str | None) -> ArgumentParser:
    """Return a parser whose help begins with the description of a benchmark."""
    parser = ArgumentParser(description=description, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON in the last line")
    return parser


def print_figures(options: Namespace, figures: object) -> None:
    """Print the figures of a benchmark as the last line where `--json` asks for them."""
    if options.json:
        print(json.dumps(figures))


def cpu_seconds() -> float:
    """Return the processor time of this process and of its children that have ended."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
