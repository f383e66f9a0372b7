"""How fast an extractor is on this machine, beside its bound: the bare model on pictures decoded beforehand.

The plain function behind `multilink features bench`. Both are measured in turn, in rounds, and the best round of each
counts, so that what else the machine does disturbs them alike. `Clock.CPU` counts this process's processor time instead
of the wall's: the measure of one thread's work where processors are shared.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Protocol, runtime_checkable

from pipelines.features.extractors import ImageExtractor, SentenceExtractor


class Clock(StrEnum):
    WALL = "wall"
    CPU = "cpu"


_CLOCKS: Mapping[Clock, Callable[[], float]] = {Clock.WALL: time.perf_counter, Clock.CPU: time.process_time}


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Images or texts a second of one extractor.

    Attributes:
        bound: of its bare model on what was prepared beforehand; None where the extractor has no such path.
    """

    name: str
    rate: float
    bound: float | None

    @property
    def share(self) -> float | None:
        """The rate as a share of the bound."""
        return None if self.bound is None else self.rate / self.bound


@runtime_checkable
class HasBound(Protocol):
    """An extractor that can also run its bare model."""

    def bare(self, pictures: Sequence[bytes]) -> Callable[[], object]:
        """Return a function that runs the model alone, over these pictures prepared beforehand."""
        ...


def image_speed(
    extractor: ImageExtractor, pictures: Sequence[bytes], *, rounds: int = 3, clock: Clock = Clock.WALL
) -> Speed:
    """Return the speed of an image extractor from stored JPEGs to values.

    Args:
        pictures: at least two; halves of them take turns, so that no extractor can answer from what it saw last.
    """
    half = len(pictures) // 2
    halves = [pictures[:half], pictures[half : 2 * half]]
    runs: list[Callable[[], object]] = [partial(_each, extractor.extract, halves)]
    if isinstance(extractor, HasBound):
        runs.append(partial(_all, [extractor.bare(some) for some in halves]))
    rates = [2 * half / seconds for seconds in best_seconds(runs, rounds=rounds, clock=clock)]
    return Speed(name=extractor.name, rate=rates[0], bound=rates[1] if len(rates) > 1 else None)


def sentence_speed(
    extractor: SentenceExtractor, texts: Sequence[str], *, rounds: int = 3, clock: Clock = Clock.WALL
) -> Speed:
    """Return the speed of a sentence extractor, which has no bound: its model is all it runs."""
    [seconds] = best_seconds([partial(extractor.extract, texts)], rounds=rounds, clock=clock)
    return Speed(name=extractor.name, rate=len(texts) / seconds, bound=None)


def best_seconds(runs: Sequence[Callable[[], object]], *, rounds: int, clock: Clock) -> list[float]:
    """Return the least time of each run, after one that does not count; the runs take turns."""
    now = _CLOCKS[clock]
    best = [math.inf] * len(runs)
    for number in range(rounds + 1):
        for place, run in enumerate(runs):
            begin = now()
            run()
            if number:
                best[place] = min(best[place], now() - begin)
    return best


def _each(extract: Callable[[Sequence[bytes]], object], halves: Sequence[Sequence[bytes]]) -> None:
    for half in halves:
        extract(half)


def _all(runs: Sequence[Callable[[], object]]) -> None:
    for run in runs:
        run()
