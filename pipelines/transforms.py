"""Beam wiring that every stage shares: the door with a name by which bad records leave, and counting.

A fallible step is a plain function that yields results or `Failure`s; `Fallible` runs it and keeps the two apart. An
exception that the function did not expect is a failure row of that record, too: no record stops a build. What is about
the machine, and the project's own errors, end it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import apache_beam as beam

from schemas.failures import Failure, Stage, unexpected

T = TypeVar("T")
FAILED = "failed"


class Outcome(NamedTuple):
    """The two outputs of a fallible step."""

    results: beam.PCollection
    failures: beam.PCollection


@dataclass(eq=False)
class Fallible(beam.PTransform, Generic[T]):
    """Applies a function that yields results or failures to each element: gives an `Outcome`.

    Attributes:
        id_of: names the record of an element, where the function raises what it should not.
    """

    stage: Stage
    function: Callable[[T], Iterable[Any]]
    id_of: Callable[[T], str] = str

    def expand(self, elements: beam.PCollection) -> Outcome:
        outcome: Outcome = elements | "apply" >> beam.FlatMap(self._apply) | Separate()
        return outcome

    def _apply(self, element: T) -> Iterator[Any]:
        try:
            yield from self.function(element)
        except Exception as error:  # noqa: BLE001 - the border of every stage
            yield unexpected(error, stage=self.stage, record_id=self.id_of(element))


class Separate(beam.PTransform):
    """Separates results from failures: gives an `Outcome`."""

    def expand(self, elements: beam.PCollection) -> Outcome:
        outputs = elements | "separate failures" >> beam.FlatMap(_tagged).with_outputs(FAILED, main="results")
        return Outcome(outputs["results"], outputs[FAILED])


def _tagged(element: Any) -> Iterator[Any]:
    yield beam.pvalue.TaggedOutput(FAILED, element) if isinstance(element, Failure) else element


@dataclass(eq=False)
class OnOneWorker(beam.PTransform, Generic[T]):
    """Applies a function to batches of elements, all on one worker, none of which holds more than a batch of them.

    For requests to one host, whose pace one process keeps: a group of all of them would have to fit into memory. Beam
    hands the elements of one key to one worker at a time where a step has state, as `GroupIntoBatches` has.
    """

    function: Callable[[Sequence[T]], Iterable[Any]]
    batch_size: int = 512

    def expand(self, elements: beam.PCollection) -> beam.PCollection:
        keyed = elements | "one key" >> beam.WithKeys("").with_output_types(tuple[str, Any])
        return keyed | "batches" >> beam.GroupIntoBatches(self.batch_size) | "apply" >> beam.FlatMapTuple(self._apply)

    def _apply(self, _: str, batch: Iterable[T]) -> Iterable[Any]:
        return self.function(list(batch))
