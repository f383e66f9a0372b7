"""Beam wiring that every stage shares: the door with a name by which bad records leave, and counting.

A fallible step is a plain function that yields results or `Failure`s; `Fallible` runs it and keeps the two apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import apache_beam as beam
from apache_beam.metrics import Metrics

from schemas.failures import Failure, Stage

T = TypeVar("T")
FAILED = "failed"


class Outcome(NamedTuple):
    """The two outputs of a fallible step."""

    results: beam.PCollection
    failures: beam.PCollection


class _Separate(beam.DoFn):
    """Sends failures to their own output, and counts both."""

    def __init__(self, stage: Stage) -> None:
        self._passed = Metrics.counter(str(stage), "out")
        self._failed = Metrics.counter(str(stage), "failed")

    def process(self, element: Any) -> Iterator[Any]:
        if isinstance(element, Failure):
            self._failed.inc()
            yield beam.pvalue.TaggedOutput(FAILED, element)
        else:
            self._passed.inc()
            yield element


@dataclass(eq=False)
class Separate(beam.PTransform):
    """Separates results from failures: gives an `Outcome`."""

    stage: Stage

    def expand(self, elements: beam.PCollection) -> Outcome:
        outputs = elements | "separate failures" >> beam.ParDo(_Separate(self.stage)).with_outputs(
            FAILED, main="results"
        )
        return Outcome(outputs["results"], outputs[FAILED])


@dataclass(eq=False)
class Fallible(beam.PTransform, Generic[T]):
    """Applies a function that yields results or failures to each element: gives an `Outcome`."""

    stage: Stage
    function: Callable[[T], Iterable[Any]]

    def expand(self, elements: beam.PCollection) -> Outcome:
        outcome: Outcome = elements | "apply" >> beam.FlatMap(self.function) | Separate(self.stage)
        return outcome
