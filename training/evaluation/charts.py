"""The charts of the wider measures, drawn as inline SVG: points, a path of epochs, reliability, shares of choices.

They follow `figures.py`: numbers in, markup out, the same for the same numbers; looks are in the style sheet, by class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from training.evaluation.axes import Axis, axis_over
from training.evaluation.figures import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, grid
from training.evaluation.svg import drawing, element, number

_MOST_POINTS = 1_500


@dataclass(frozen=True, slots=True)
class Point:
    """A dot: place, and the words that appear when it is pointed at."""

    x: float
    y: float
    name: str


@dataclass(frozen=True, slots=True)
class Shares:
    """One column: its label, and shares in percent that add up to 100, from below."""

    label: str
    parts: tuple[float, ...]
    name: str


def scatter(title: str, points: Sequence[Point], *, x_label: str, level: float | None = None) -> Markup:
    """Return a dot per point, with a dashed level across and the least squares line.

    Of very many points every k-th is drawn; the line is that of all.
    """
    x_axis = axis_over((point.x for point in points), start=LEFT, end=WIDTH - RIGHT, most=7)
    y_axis = axis_over((point.y for point in points), start=HEIGHT - BOTTOM, end=TOP)
    shown = points[:: -(-len(points) // _MOST_POINTS)] if points else ()
    return drawing(
        title,
        *grid(x_axis, y_axis, x_label=x_label),
        *_level(x_axis, y_axis, level),
        *(_dot(point, "point", x_axis, y_axis, radius=3.2) for point in shown),
        *_trend(points, x_axis, y_axis),
        width=WIDTH,
        height=HEIGHT,
        class_="chart",
        description=f"{len(points)} documents",
    )


def path_chart(title: str, points: Sequence[Point], *, x_label: str, marked: Sequence[bool]) -> Markup:
    """Return points joined in their order, the first and the last named, and a ring around the marked ones."""
    x_axis = axis_over((point.x for point in points), start=LEFT, end=WIDTH - RIGHT, most=6)
    y_axis = axis_over((point.y for point in points), start=HEIGHT - BOTTOM, end=TOP)
    places = [(x_axis.place(point.x), y_axis.place(point.y)) for point in points]
    path = "M" + " ".join(f"{number(x)},{number(y)}" for x, y in places)
    dots = [
        _dot(point, "ring" if ring else "dot", x_axis, y_axis, radius=6.5 if ring else 3.0)
        for point, ring in zip(points, marked, strict=True)
    ]
    return drawing(
        title,
        *grid(x_axis, y_axis, x_label=x_label),
        element("g", element("path", class_="line", d=path), *dots, class_="series-0"),
        *(_named(place, point.name) for place, point in ((places[0], points[0]), (places[-1], points[-1]))),
        width=WIDTH,
        height=HEIGHT,
        class_="chart",
        description=f"from {points[0].name} to {points[-1].name}",
    )


def reliability_chart(title: str, points: Sequence[Point], weights: Sequence[float]) -> Markup:
    """Return observed against expected percentages with the diagonal; the area of a dot says how much is behind it."""
    ticks = tuple(float(tick) for tick in range(0, 101, 20))
    x_axis, y_axis = Axis(ticks, LEFT, WIDTH - RIGHT), Axis(ticks, HEIGHT - BOTTOM, TOP)
    largest = max(weights, default=1.0)
    places = [(x_axis.place(point.x), y_axis.place(point.y)) for point in points]
    dots = [
        _dot(point, "dot", x_axis, y_axis, radius=2.5 + 4 * (weight / largest) ** 0.5)
        for point, weight in zip(points, weights, strict=True)
    ]
    path = "M" + " ".join(f"{number(x)},{number(y)}" for x, y in places)
    return drawing(
        title,
        *grid(x_axis, y_axis, x_label="expected, percent"),
        element("line", class_="rule", x1=x_axis.start, y1=y_axis.place(0), x2=x_axis.end, y2=y_axis.place(100)),
        element("g", element("path", class_="line", d=path), *dots, class_="series-0"),
        width=WIDTH,
        height=HEIGHT,
        class_="chart",
        description="; ".join(point.name for point in points),
    )


def share_columns(title: str, columns: Sequence[Shares], *, x_label: str, classes: Sequence[str]) -> Markup:
    """Return a column per group, its parts one on the other; `classes` are those of the parts."""
    y_axis = Axis(tuple(float(tick) for tick in range(0, 101, 20)), HEIGHT - BOTTOM, TOP)
    x_axis = Axis((0.0, float(len(columns))), LEFT, WIDTH - RIGHT)
    shapes = grid(x_axis, y_axis, x_label=x_label, has_x_labels=False)
    for index, column in enumerate(columns):
        left, right = x_axis.place(index + 0.12), x_axis.place(index + 0.88)
        below = 0.0
        parts = []
        for share, class_ in zip(column.parts, classes, strict=True):
            top, bottom = y_axis.place(below + share), y_axis.place(below)
            parts.append(element("rect", class_=class_, x=left, y=top, width=right - left, height=bottom - top))
            below += share
        label = element(
            "text", column.label, class_="tick", x=(left + right) / 2, y=HEIGHT - BOTTOM + 17, text_anchor="middle"
        )
        shapes.append(element("g", element("title", column.name), *parts, label))
    return drawing(
        title,
        *shapes,
        width=WIDTH,
        height=HEIGHT,
        class_="chart",
        description="; ".join(column.name for column in columns),
    )


def _dot(point: Point, class_: str, x_axis: Axis, y_axis: Axis, *, radius: float) -> Markup:
    name = element("title", point.name)
    return element("circle", name, class_=class_, cx=x_axis.place(point.x), cy=y_axis.place(point.y), r=radius)


def _level(x_axis: Axis, y_axis: Axis, level: float | None) -> list[Markup]:
    if level is None or not y_axis.ticks[0] <= level <= y_axis.ticks[-1]:
        return []
    place = y_axis.place(level)
    return [element("line", class_="rule", x1=x_axis.start, y1=place, x2=x_axis.end, y2=place)]


def _trend(points: Sequence[Point], x_axis: Axis, y_axis: Axis) -> list[Markup]:
    """Return the least squares line over the points' range; none where x does not vary."""
    if not points:
        return []
    middle_x = sum(point.x for point in points) / len(points)
    middle_y = sum(point.y for point in points) / len(points)
    variance = sum((point.x - middle_x) ** 2 for point in points)
    if variance <= 0:
        return []
    slope = sum((point.x - middle_x) * (point.y - middle_y) for point in points) / variance
    ends = []
    for x in (min(point.x for point in points), max(point.x for point in points)):
        y = min(max(middle_y + slope * (x - middle_x), y_axis.ticks[0]), y_axis.ticks[-1])
        ends.append((x_axis.place(x), y_axis.place(y)))
    (x1, y1), (x2, y2) = ends
    return [element("line", class_="trend", x1=x1, y1=y1, x2=x2, y2=y2)]


def _named(place: tuple[float, float], name: str) -> Markup:
    x, y = place
    anchor, shift = ("start", 8) if x < WIDTH / 2 else ("end", -8)
    return element("text", name, class_="rule-name", x=x + shift, y=max(y - 9, 12.0), text_anchor=anchor)
