"""The charts of the pages, drawn by matplotlib as inline SVG that takes its colours and fonts from the style sheet.

The same numbers give the same bytes: no date, and ids that follow from what is drawn. Matplotlib writes colours into
each shape; those of `COLOURS` become variables of the style sheet, so that a chart is right on light and dark paper.
The title and description of a figure hold its content in words.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec

import numpy as np
from markupsafe import Markup

if TYPE_CHECKING:
    from matplotlib.axes import Axes

P = ParamSpec("P")

WIDTH, HEIGHT = 440, 240
COLOURS = {
    "accent": "#1d5fa8",
    "second": "#8a6d3b",
    "right": "#1a7f4b",
    "wrong": "#b5533c",
    "line": "#dcd8ce",
    "soft": "#555e69",
    "ink": "#1e2329",
    "card": "#fffefb",
}
ACCENT, SECOND, LINE, SOFT, INK, CARD = (COLOURS[n] for n in ("accent", "second", "line", "soft", "ink", "card"))
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "multilink",
    "font.size": 12.5,
    "axes.edgecolor": LINE,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": LINE,
    "xtick.color": LINE,
    "xtick.labelcolor": SOFT,
    "ytick.left": False,
    "ytick.labelcolor": SOFT,
    "axes.labelcolor": SOFT,
    "text.color": INK,
    "legend.labelcolor": SOFT,
    "legend.frameon": False,
    "lines.linewidth": 2.2,
    "lines.solid_capstyle": "round",
}
_RING: dict[str, Any] = {"marker": "o", "color": CARD, "mec": INK, "mew": 1.6, "ms": 12, "zorder": 4}
_DASHED: dict[str, Any] = {"color": INK, "linewidth": 1, "linestyle": (0, (3, 3))}
_DROPPED = re.compile(r"<metadata>.*?</metadata>|<defs>\s*<(style|clipPath).*?</\1>\s*</defs>|<!--.*?-->", re.DOTALL)
_ATTRIBUTES = re.compile(
    r' clip-path="[^"]*"| id="(?!m[0-9a-f]{10})[^"]*"|font-family: [^;"]*;? ?| xmlns(:xlink)?="[^"]*"'
)

Points = Sequence[tuple[float, float | None]]


def _styled(draw: Callable[P, Markup]) -> Callable[P, Markup]:
    """Return what draws in the style of the pages; the first chart imports matplotlib, which takes half a second."""

    @wraps(draw)
    def styled(*arguments: P.args, **named: P.kwargs) -> Markup:
        import matplotlib as mpl

        with mpl.rc_context(_STYLE):
            return draw(*arguments, **named)

    return styled


def _chart(x_label: str) -> Axes:
    from matplotlib.figure import Figure

    axes = Figure(figsize=(WIDTH / 72, HEIGHT / 72), layout="constrained").add_subplot()
    axes.set_xlabel(x_label)
    return axes


def _svg(axes: Axes, title: str, description: str) -> Markup:
    """Return a chart as an element that a screen reader announces by its title, and then its description."""
    buffer, no_date = io.StringIO(), dict.fromkeys(("Date", "Creator", "Format", "Type"))
    axes.figure.savefig(buffer, format="svg", transparent=True, metadata=no_date)  # type: ignore[union-attr]
    text = _ATTRIBUTES.sub("", _DROPPED.sub("", buffer.getvalue())).replace("xlink:href", "href")
    for name, colour in COLOURS.items():
        text = text.replace(colour, f"var(--{name})")
    shapes = text[text.index(">", text.index("<svg")) + 1 :]
    head = Markup(
        '<svg viewBox="0 0 {} {}" class="chart" role="img" aria-label="{}"><title>{}</title><desc>{}</desc>'
    ).format(WIDTH, HEIGHT, title, title, description)
    return head + Markup(re.sub(r"\s*\n\s*", "\n", shapes).strip())  # matplotlib escapes its texts


@_styled
def line_chart(title: str, lines: Mapping[str, Points], *, x_label: str, marked: float | None = None) -> Markup:
    """Return lines by name over x; a y that is None or not finite is a gap, a point between two gaps a dot.

    `marked` is an x that gets a vertical rule and rings on the lines.
    """
    axes = _chart(x_label)
    for (name, points), colour, dashes in zip(lines.items(), (ACCENT, SECOND), ("-", (0, (2.2, 1.8))), strict=False):
        x, y = np.array([(x, math.nan if y is None else y) for x, y in points], dtype=np.float64).reshape(-1, 2).T
        axes.plot(x, y, color=colour, linestyle=dashes, label=name)
        is_drawn = np.pad(np.isfinite(y), 1)
        alone = is_drawn[1:-1] & ~is_drawn[:-2] & ~is_drawn[2:]
        axes.plot(x[alone], y[alone], "o", color=colour, markersize=8)
        at = (x == marked) & np.isfinite(y)
        axes.plot(x[at], y[at], **_RING)
    everything = [x for points in lines.values() for x, _ in points]
    if marked is not None and everything and min(everything) <= marked <= max(everything):
        _rule(axes, marked, "kept", is_left=marked < (min(everything) + max(everything)) / 2)
    axes.locator_params(axis="x", nbins=8, steps=[1, 2, 5, 10], integer=True)
    if len(lines) > 1:
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1.02), ncols=len(lines), borderaxespad=0, handlelength=1.8)
    words = (f"{name}: {_ends(points, x_label)}" for name, points in lines.items() if _known(points))
    return _svg(axes, title, "; ".join(words))


@_styled
def reliability_chart(title: str, expected: Sequence[float], true: Sequence[float], links: Sequence[int]) -> Markup:
    """Return true against expected share of links in percent; a dot's area is in proportion to its links."""
    axes = _chart("expected, percent")
    axes.plot([0, 100], [0, 100], **_DASHED)
    axes.plot(expected, true, color=ACCENT)
    axes.scatter(expected, true, s=[20 + 160 * count / max(links) for count in links], color=ACCENT, linewidths=0)
    axes.set(xlim=(0, 100), ylim=(0, 100))
    rows = zip(expected, true, links, strict=True)
    return _svg(axes, title, "; ".join(f"expected {a:.0f}%, true {b:.0f}% of {count} links" for a, b, count in rows))


def _rule(axes: Axes, x: float, name: str, *, is_left: bool) -> None:
    """Draw a dashed vertical rule with its name beside its top, on the side that has more room."""
    axes.axvline(x, **_DASHED, ymax=1.03)
    offset: dict[str, Any] = {"xytext": (5 if is_left else -5, 2), "ha": "left" if is_left else "right", "va": "bottom"}
    axes.annotate(name, (x, 1), xycoords=("data", "axes fraction"), textcoords="offset points", **offset)


def _known(points: Points) -> list[tuple[float, float]]:
    return [(x, y) for x, y in points if y is not None and math.isfinite(y)]


def _ends(points: Points, x_label: str) -> str:
    """Return where a line starts and ends, in words."""
    known = _known(points)
    return ", ".join(f"{y:.4g} at {x_label} {x:g}" for x, y in (known[0], known[-1]))
