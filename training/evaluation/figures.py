"""The report's small charts, drawn as inline SVG: lines by epoch, a histogram, interval bars.

A figure takes numbers and gives markup, the same for the same numbers; colours and fonts are in the style sheet, by
class. What a figure shows is also said in words, in its title and description.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from training.evaluation.axes import Axis, axis_over
from training.evaluation.svg import drawing, element, number

WIDTH, HEIGHT = 440.0, 240.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 14.0, 26.0, 40.0
INTERVAL_WIDTH, INTERVAL_HEIGHT = 120.0, 18.0
_INTERVAL_MARGIN = 9.0
BIN_WIDTH = 5


@dataclass(frozen=True, slots=True)
class Series:
    """A line: its name and (x, y) points in order of x; a y that is None or not finite is a gap."""

    name: str
    points: tuple[tuple[float, float | None], ...]

    def known(self) -> list[tuple[float, float]]:
        """Return the points that can be drawn."""
        return [(x, y) for x, y in self.points if y is not None and math.isfinite(y)]

    def runs(self) -> list[list[tuple[float, float]]]:
        """Return the stretches of points between gaps."""
        runs: list[list[tuple[float, float]]] = [[]]
        for x, y in self.points:
            if y is not None and math.isfinite(y):
                runs[-1].append((x, y))
            elif runs[-1]:
                runs.append([])
        return [run for run in runs if run]


def line_chart(title: str, series: Sequence[Series], *, x_label: str, marked: float | None = None) -> Markup:
    """Return lines over whole x values; `marked` is an x that gets a vertical rule and rings on the lines."""
    points = [point for line in series for point in line.known()]
    x_axis = axis_over((x for x, _ in points), start=LEFT, end=WIDTH - RIGHT, most=8, whole=True)
    y_axis = axis_over((y for _, y in points), start=HEIGHT - BOTTOM, end=TOP)
    return drawing(
        title,
        *grid(x_axis, y_axis, x_label=x_label),
        *(_marker(series, x_axis, y_axis, marked) if marked is not None else ()),
        *(_line(line, index, x_axis, y_axis) for index, line in enumerate(series)),
        _legend(series),
        width=WIDTH,
        height=HEIGHT,
        class_="chart",
        description=_describe(series, x_label),
    )


def histogram(title: str, values: Iterable[float], *, x_label: str, reference: float, reference_name: str) -> Markup:
    """Return how many percentages fall in each bin of five points, with a rule at a reference value.

    A value on the edge of two bins counts in the upper one; 100 counts in the last.
    """
    counts = bin_counts(values)
    x_axis = Axis(tuple(float(tick) for tick in range(0, 101, 20)), LEFT, WIDTH - RIGHT)
    y_axis = axis_over([0, max(1, *counts)], start=HEIGHT - BOTTOM, end=TOP, whole=True)
    fullest = counts.index(max(counts)) * BIN_WIDTH
    return drawing(
        title,
        *grid(x_axis, y_axis, x_label=x_label),
        *(_bar(index, count, x_axis, y_axis) for index, count in enumerate(counts) if count),
        *rule(x_axis.place(reference), reference_name),
        width=WIDTH,
        height=HEIGHT,
        class_="chart",
        description=f"{sum(counts)} documents; most lie from {fullest} to {fullest + BIN_WIDTH}",
    )


def bin_counts(values: Iterable[float]) -> list[int]:
    """Return how many percentages fall in each of the twenty bins of five points."""
    bins = 100 // BIN_WIDTH
    counts = [0] * bins
    for value in values:
        counts[min(int(value // BIN_WIDTH), bins - 1)] += 1
    return counts


def interval_axis(values: Iterable[float]) -> Axis:
    """Return the axis that all interval plots of one column share."""
    return axis_over(values, start=_INTERVAL_MARGIN, end=INTERVAL_WIDTH - _INTERVAL_MARGIN, most=7)


def interval_plot(
    title: str, value: float, axis: Axis, *, low: float | None = None, high: float | None = None
) -> Markup:
    """Return a dot at a value on a bar from `low` to `high` (no bar where they are None)."""
    middle = INTERVAL_HEIGHT / 2
    shapes = [element("line", class_="track", x1=axis.start, y1=middle, x2=axis.end, y2=middle)]
    shapes += [
        element("line", class_="notch", x1=place, y1=middle - 3, x2=place, y2=middle + 3) for place, _ in axis.labels()
    ]
    if low is not None and high is not None:
        left, right = axis.place(low), axis.place(high)
        shapes.append(
            element("rect", class_="interval", x=left, y=middle - 5, width=max(1.0, right - left), height=10.0, rx=3.0)
        )
    shapes.append(element("circle", class_="mean", cx=axis.place(value), cy=middle, r=3.0))
    return drawing(title, *shapes, width=INTERVAL_WIDTH, height=INTERVAL_HEIGHT, class_="interval-plot")


def interval_scale(title: str, axis: Axis) -> Markup:
    """Return the labels of the first and last tick of an interval axis, to stand under a column of plots."""
    labels = axis.labels()
    texts = [
        element("text", text, class_="tick", x=place, y=13.0, text_anchor="middle")
        for place, text in (labels[0], labels[-1])
    ]
    return drawing(title, *texts, width=INTERVAL_WIDTH, height=INTERVAL_HEIGHT, class_="interval-plot")


def grid(x_axis: Axis, y_axis: Axis, *, x_label: str, has_x_labels: bool = True) -> list[Markup]:
    """Return horizontal grid lines, tick labels of both axes and the name of x, for any chart of `WIDTH` x `HEIGHT`."""
    shapes: list[Markup] = []
    for place, text in y_axis.labels():
        shapes.append(element("line", class_="grid", x1=x_axis.start, y1=place, x2=x_axis.end, y2=place))
        shapes.append(element("text", text, class_="tick", x=LEFT - 8, y=place + 4, text_anchor="end"))
    for place, text in x_axis.labels() if has_x_labels else ():
        shapes.append(element("text", text, class_="tick", x=place, y=HEIGHT - BOTTOM + 17, text_anchor="middle"))
    middle = (x_axis.start + x_axis.end) / 2
    shapes.append(element("text", x_label, class_="axis", x=middle, y=HEIGHT - 6, text_anchor="middle"))
    return shapes


def _line(line: Series, index: int, x_axis: Axis, y_axis: Axis) -> Markup:
    """Return a line broken at gaps; a point between two gaps, or alone, is a dot."""
    shapes = []
    for run in line.runs():
        places = [(x_axis.place(x), y_axis.place(y)) for x, y in run]
        if len(places) == 1:
            shapes.append(element("circle", class_="dot", cx=places[0][0], cy=places[0][1], r=4.0))
        else:
            path = "M" + " ".join(f"{number(x)},{number(y)}" for x, y in places)
            shapes.append(element("path", class_="line", d=path))
    return element("g", *shapes, class_=f"series-{index}")


def _marker(series: Sequence[Series], x_axis: Axis, y_axis: Axis, marked: float) -> list[Markup]:
    """Return the rule of the kept epoch and a ring where each line crosses it; nothing outside the axis."""
    if not x_axis.ticks[0] <= marked <= x_axis.ticks[-1]:
        return []
    place = x_axis.place(marked)
    rings = [
        element("circle", class_="ring", cx=place, cy=y_axis.place(y), r=6.5)
        for line in series
        for x, y in line.known()
        if x == marked
    ]
    return [*rule(place, "kept"), *rings]


def rule(place: float, text: str) -> list[Markup]:
    """Return a dashed vertical rule with its name beside its top, on the side that has more room."""
    left_half = place < WIDTH / 2
    anchor, shift = ("start", 5) if left_half else ("end", -5)
    return [
        element("line", class_="rule", x1=place, y1=TOP - 8, x2=place, y2=HEIGHT - BOTTOM),
        element("text", text, class_="rule-name", x=place + shift, y=TOP - 2, text_anchor=anchor),
    ]


def _bar(index: int, count: int, x_axis: Axis, y_axis: Axis) -> Markup:
    low = index * BIN_WIDTH
    left, right = x_axis.place(low), x_axis.place(low + BIN_WIDTH)
    top, bottom = y_axis.place(count), y_axis.place(0)
    name = element("title", f"{low} to {low + BIN_WIDTH}: {count}")
    return element("rect", name, class_="bar", x=left + 1, y=top, width=right - left - 2, height=bottom - top, rx=1.5)


def _legend(series: Sequence[Series]) -> Markup:
    """Return a sample and name for each line, along the top; none for a single line, which the title names."""
    if len(series) < 2:
        return Markup("")
    shapes: list[Markup] = []
    x = LEFT
    for index, line in enumerate(series):
        sample = element("path", class_="line", d=f"M{number(x)},10 {number(x + 22)},10")
        name = element("text", line.name, class_="tick", x=x + 28, y=14.0)
        shapes.append(element("g", sample, name, class_=f"series-{index}"))
        x += 48 + 7 * len(line.name)
    return element("g", *shapes)


def _describe(series: Sequence[Series], x_label: str) -> str:
    """Return where each line starts and ends, in words."""
    parts = []
    for line in series:
        known = line.known()
        if known:
            (first, start), (last, end) = known[0], known[-1]
            parts.append(f"{line.name}: {start:.4g} at {x_label} {first:g}, {end:.4g} at {x_label} {last:g}")
    return "; ".join(parts)
