"""Axes: ticks at round values, their labels, and where a value lies on the page.

Ticks are multiples of 1, 2 or 5 times a power of ten, and reach from at or below the smallest value to at or above
the largest. Drawing is in `figures.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

_STEPS = (1.0, 2.0, 5.0)


@dataclass(frozen=True, slots=True)
class Axis:
    """Values from the first tick to the last, laid over `start` to `end` (user units; `end` may be smaller)."""

    ticks: tuple[float, ...]
    start: float
    end: float

    def place(self, value: float) -> float:
        """Return where a value lies."""
        low, high = self.ticks[0], self.ticks[-1]
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def labels(self) -> list[tuple[float, str]]:
        """Return (place, text) of each tick, all with as many decimals as the step needs."""
        decimals = max(0, -_magnitude(self.ticks[1] - self.ticks[0]))
        return [(self.place(tick), tick_text(tick, decimals)) for tick in self.ticks]


def axis_over(values: Iterable[float], *, start: float, end: float, most: int = 6, whole: bool = False) -> Axis:
    """Return an axis that holds every value; with no value, one from 0 to 1."""
    known = list(values)
    ticks = round_ticks(min(known), max(known), most=most, whole=whole) if known else (0.0, 1.0)
    return Axis(ticks, start, end)


def round_ticks(low: float, high: float, *, most: int = 6, whole: bool = False) -> tuple[float, ...]:
    """Return two to `most` round ticks around `low..high`, with the finest step that allows it.

    `whole` keeps to whole numbers. Equal ends get a step of their own size on each side.
    """
    if low == high:
        margin = max(1.0, 10.0 ** _magnitude(low)) if whole else 10.0 ** (_magnitude(low) - 1)
        low, high = low - margin, high + margin
    exponent = _magnitude((high - low) / most)
    if whole:
        exponent = max(0, exponent)
    while True:
        for step in _STEPS:
            first, last = _outer(low, high, step, exponent)
            if last - first + 1 <= most:
                return tuple(_multiple(index * step, exponent) for index in range(first, last + 1))
        exponent += 1


def tick_text(value: float, decimals: int) -> str:
    """Return a tick's label, with a true minus sign and thousands apart."""
    text = f"{value:,.{decimals}f}"
    return text.replace("-", "−")


def _outer(low: float, high: float, step: float, exponent: int) -> tuple[int, int]:
    """Return the indices of the last tick at or below `low` and the first at or above `high`."""
    size = _multiple(step, exponent)
    slack = 1e-9
    return math.floor(low / size + slack), math.ceil(high / size - slack)


def _multiple(value: float, exponent: int) -> float:
    """Return value x 10 ** exponent, rounded so that 3 x 0.1 is 0.3."""
    return value * 10.0**exponent if exponent >= 0 else round(value / 10.0**-exponent, -exponent)


def _magnitude(value: float) -> int:
    """Return the power of ten of the leading digit; 0 for 0."""
    return math.floor(math.log10(abs(value)) + 1e-9) if value else 0
