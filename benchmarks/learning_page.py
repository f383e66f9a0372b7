"""What `benchmarks/learning.py` found as a page of the guide; its words are in `learning_page.md.j2`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from jinja2 import Environment, StrictUndefined

from benchmarks.learning_models import ABOUT, CLOSED_FORM, COMPARED, DOCUMENT_DATA, ORDERS, PAIRS, SHUFFLED
from benchmarks.learning_scores import Line
from schemas.documents import Split
from training.metrics.intervals import Interval
from training.report.sections import NO_BREAK, cell_text

Lines = Mapping[tuple[str, str], Line]
Sizes = Mapping[str, Mapping[Split, Sequence[int]]]


def page(lines: Lines, sizes: Sizes, *, minutes: float) -> str:
    """Return the page as Markdown.

    Args:
        lines: by data set and title.
        sizes: documents, or pairs, by data set and split, a number a division.
        minutes: of a processor, that all took.
    """
    template = Environment(undefined=StrictUndefined, trim_blocks=True, autoescape=False)
    return template.from_string(Path(__file__).with_suffix(".md.j2").read_text(encoding="utf-8")).render(
        about={data: about for data, about in ABOUT.items() if sizes[data][Split.TEST]},
        sizes={data: _in_numbers(each) for data, each in sizes.items() if each[Split.TEST]},
        splits=max(len(line.runs) for line in lines.values()),
        minutes=round(minutes),
        documents=_table(lines, DOCUMENT_DATA, (0, 1)),
        pairs=_table(lines, (PAIRS, SHUFFLED), (0, 2)),
        orders=_orders(lines),
        differences=_differences(lines),
        calibration=_calibration(lines),
    )


def shown(interval: Interval) -> str:
    return cell_text(interval.score("", n=0)).replace(NO_BREAK, "")


def _grid(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (heading, ["---"] * len(heading), *rows))


def _table(lines: Lines, data: Sequence[str], columns: Sequence[int]) -> str:
    """Return a row a model, with some columns of its scores on each data set."""
    own = {key: line for key, line in lines.items() if key[0] in data}
    there = [name for name in data if any(name == key[0] for key in own)]
    heading = [f"{name}: {next(iter(own.values())).columns[column]}" for name in there for column in columns]
    rows = []
    for title in dict.fromkeys(title for _, title in own):
        found = [own.get((name, title)) for name in there]
        first = next(filter(None, found))
        cells = [shown(line.intervals[column]) if line else "" for line in found for column in columns]
        rows.append([title, *cells, str(len(first.runs)), f"{first.seconds:.0f}" if first.model else ""])
    return _grid(["model", *heading, "splits", "s"], rows)


def _orders(lines: Lines) -> str:
    """Return what the order of pictures adds to the closed form, by the share of documents that have one."""
    rows = []
    for data, share in ORDERS.items():
        off, auto = (lines.get((data, f"{CLOSED_FORM}, order {order}")) for order in ("off", "auto"))
        if off is not None and auto is not None:
            means = [f"{line.intervals[column].mean:.1f}" for column in (0, 1) for line in (off, auto)]
            rows.append([f"{share:.0%}", *means[:2], _signed(auto.differences(off, 0)), *means[2:]])
    return _grid(["in order", "AUC, off", "AUC, auto", "difference", "p@1, off", "p@1, auto"], rows)


def _differences(lines: Lines) -> str:
    """Return what one model has more than another on the same documents: AUC, or of pairs R@10."""
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for each in COMPARED:
        if {each.better, each.worse} <= lines.keys():
            line, other = lines[each.better], lines[each.worse]
            both = min(len(line.runs), len(other.runs))  # the same splits
            line, other = (replace(one, runs=one.runs[:both]) for one in (line, other))
            name = other.title if other.data == line.data else f"{other.title} ({other.data})"
            found = line.differences(other, 2 if line.data == PAIRS else 0)
            rows.setdefault((line.title, name), {})[line.data] = _signed(found)
    data = [*DOCUMENT_DATA, PAIRS]
    cells = [[*titles, *(found.get(name, "") for name in data)] for titles, found in rows.items()]
    return _grid(["model", "less", *data], cells)


def _signed(found: Interval) -> str:
    text = f"{found.mean:+z.1f} [{found.low:.1f}, {found.high:.1f}]"
    return f"**{text}**" if found.low > 0 or found.high < 0 else text


def _calibration(lines: Lines) -> str:
    """Return how well links are told right from wrong, by how much is seen of them."""
    rows = []
    for data in DOCUMENT_DATA:
        found = [run.calibration for run in lines[data, CLOSED_FORM].runs] if (data, CLOSED_FORM) in lines else []
        for name in dict.fromkeys(key.partition(":")[0] for run in found for key in run or ()):
            cells = [_range([(run or {})[f"{name}: {what}"] for run in found]) for what in ("AUC", "error")]
            rows.append([data, name, *cells])
    return _grid(["data", "by", "AUC", "error, percent"], rows)


def _range(values: Sequence[float]) -> str:
    return f"{np.mean(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def _in_numbers(sizes: Mapping[Split, Sequence[int]]) -> str:
    return " / ".join(_range_of(sizes[split]) for split in (Split.TRAIN, Split.VAL, Split.TEST))


def _range_of(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return f"{low}" if low == high else f"{low}–{high}"
