"""What `benchmarks/learning.py` found, as tables in text and as a page in the looks of the evaluation report.

The page's words are in `learning_page.html.j2`; it has no scripts and refers to no other file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from jinja2 import ChoiceLoader, FileSystemLoader
from markupsafe import Markup

from benchmarks.learning_models import ABOUT, COMPOSED, DOCUMENT_DATA, SCENES, Expected
from benchmarks.learning_scores import Line
from schemas.documents import Split
from training.metrics.bootstrap import Interval, compare
from training.report.figures import line_chart
from training.report.pages import environment
from training.report.sections import POINTS, Row, RowKind, Table, cell_text

CURVE = ("AP", "NoStruct")
SHOWN, HOLDS, NOT_SHOWN, CONTRADICTED = "shown", "holds", "not shown", "contradicted"


@dataclass(frozen=True)
class Verdict:
    """What was found of an expectation."""

    data: str
    metric: str
    text: str
    difference: Interval
    result: str

    @property
    def is_clear(self) -> bool:
        return self.difference.low > 0 or self.difference.high < 0


@dataclass(frozen=True)
class Section:
    """A data set and those made of it: models of all are scored on the same test documents.

    `groups` has a title, a text and the number of rows of each, in the order of the table.
    """

    title: str
    judged: str
    units: str
    table: Table
    groups: tuple[tuple[str, str, int], ...]


def judged(expected: Expected, lines: Mapping[tuple[str, str], Line]) -> Verdict:
    """Return what the scores of two models on the same test documents say (paired bootstrap)."""
    better, worse = lines[expected.better], lines[expected.worse]
    found = compare(better.by_document[:, better.judged], worse.by_document[:, worse.judged]).difference
    if found.low > 0:
        result = SHOWN
    elif found.high < 0:
        result = CONTRADICTED
    else:
        result = HOLDS if found.mean >= 0 and not expected.is_strict else NOT_SHOWN
    relation = "above" if expected.is_strict else "at least as good as"
    other = worse.title if worse.data == better.data else f"{worse.title} ({worse.data})"
    metric = better.columns[better.judged]
    return Verdict(better.data, metric, f"{better.title} {relation} {other}", found, result)


def markdown(lines: Sequence[Line], verdicts: Sequence[Verdict]) -> str:
    """Return a table for each data set, and one of the expectations."""
    parts = ["# What the models learn"]
    for data, rows in _by_data(lines):
        columns = rows[0].columns
        heading = ["model", *columns, f"seeds, {columns[rows[0].judged]}", "seconds a model"]
        cells = [[row.title, *map(shown, row.intervals), row.seeds, f"{row.seconds_a_model:.1f}"] for row in rows]
        parts += [f"## {data}", _grid(heading, cells)]
    found = [[f"{each.data}: {each.text}", shown(each.difference), each.result] for each in verdicts]
    return "\n\n".join([*parts, "## expectations", _grid(["expected", "difference", "found"], found)]) + "\n"


def page(lines: Sequence[Line], verdicts: Sequence[Verdict], sizes: Mapping[str, Mapping[Split, int]]) -> str:
    """Return the page; `sizes` has the numbers of documents, or pairs, by data set and split."""
    looks = environment()
    here = FileSystemLoader(Path(__file__).parent)
    loader = here if looks.loader is None else ChoiceLoader([here, looks.loader])
    template = looks.overlay(loader=loader).get_template("learning_page.html.j2")
    ordered = [line for _, own in _by_data(lines) for line in own]
    sections = [_section(title, list(own), sizes) for title, own in groupby(ordered, key=_section_title)]
    return template.render(
        found=_in_words(verdicts),
        verdicts=_verdict_table(verdicts),
        headings=[(heading, "", len(list(own))) for heading, own in groupby(verdicts, key=_heading)],
        curve=_curve(lines, sizes),
        sections=sections,
    )


def shown(interval: Interval) -> str:
    return cell_text(interval.score("", n=0))


def _grid(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (heading, ["---"] * len(heading), *rows))


def _by_data(lines: Sequence[Line]) -> list[tuple[str, list[Line]]]:
    """Return the lines of each data set."""
    found = [(data, [line for line in lines if line.data == data]) for data in ABOUT]
    return [(data, own) for data, own in found if own]


def _in_words(verdicts: Sequence[Verdict]) -> str:
    """Return how many expectations met with what, for the end of a sentence."""
    words = {SHOWN: "shown", HOLDS: "holding", NOT_SHOWN: "not shown", CONTRADICTED: "contradicted"}
    counts = [(word, sum(each.result == result for each in verdicts)) for result, word in words.items()]
    found = [f"{count} {word}" for word, count in counts if count]
    return ", ".join([f"of {len(verdicts)} expected orders", *found])


def _in_numbers(sizes: Mapping[Split, int]) -> str:
    training, validation, test = (sizes[split] for split in (Split.TRAIN, Split.VAL, Split.TEST))
    return f"{training} for training, {validation} for validation, {test} for the test."


def _verdict_table(verdicts: Sequence[Verdict]) -> Table:
    rows = (Row(each.text, (each.result, each.difference.score(each.metric, n=0, unit=POINTS))) for each in verdicts)
    return Table(("Expected", "Found", "Difference"), tuple(rows), is_plotted=True)


def _curve(lines: Sequence[Line], sizes: Mapping[str, Mapping[Split, int]]) -> Markup | None:
    """Return AUC by number of training documents, with and without their structure; None where it is not measured."""
    found = {(line.data, line.title): line for line in lines}
    sets = [data for data in (SCENES, *COMPOSED) if {(data, title) for title in CURVE} <= found.keys()]
    series = {title: [(sizes[data][Split.TRAIN], _judged_mean(found[data, title])) for data in sets] for title in CURVE}
    return line_chart("AUC by training documents", series, x_label="training documents") if len(sets) > 1 else None


def _section(title: str, lines: Sequence[Line], sizes: Mapping[str, Mapping[Split, int]]) -> Section:
    columns = lines[0].columns
    best = max(lines, key=_judged_mean)
    rows = [_row(line, RowKind.MODEL if line is best else RowKind.BASELINE) for line in lines]
    groups = [(data, f"{ABOUT[data]} {_in_numbers(sizes[data])}", len(own)) for data, own in _by_data(lines)]
    return Section(
        title=title,
        judged=columns[lines[0].judged],
        units="documents" if title in DOCUMENT_DATA else "pairs",
        table=Table(("Model", *columns), tuple(rows), is_plotted=True),
        groups=tuple(groups),
    )


def _row(line: Line, kind: RowKind) -> Row:
    scores = (found.score(name, n=0) for name, found in zip(line.columns, line.intervals, strict=True))
    notes = [f"seeds {line.seeds}"] * bool(line.seeds) + [f"{line.seconds_a_model:.0f} s"] * bool(line.seconds)
    return Row(line.title, tuple(scores), kind, "; ".join(notes))


def _section_title(line: Line) -> str:
    return line.data.partition(",")[0]


def _heading(verdict: Verdict) -> str:
    return f"{verdict.data}, {verdict.metric}"


def _judged_mean(line: Line) -> float:
    return line.intervals[line.judged].mean
