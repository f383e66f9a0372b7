"""Rows as arrays in Beam: elements are packed into tables, tables divided into partitions, and rows of a key gathered.

The number of partitions follows from that of the rows, which partition a row is in from a value of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import apache_beam as beam
from apache_beam.pvalue import AsSingleton

from pipelines.partitions.columns import Columns

ELEMENTS_AT_ONCE = 2048  # packed together
ROWS_PER_PARTITION, MAX_PARTITIONS = 1 << 16, 1 << 12

Partition = tuple[int, int]  # bytes of a value, number

T = TypeVar("T", bound=Columns)


@dataclass(eq=False)
class Pack(beam.PTransform):
    """Applies a function from some elements to tables of rows to all elements."""

    function: Callable[[Sequence[Any]], Iterable[Columns]]

    def expand(self, elements: beam.PCollection) -> beam.PCollection[Columns]:
        size = ELEMENTS_AT_ONCE
        return elements | beam.BatchElements(min_batch_size=size, max_batch_size=size) | beam.FlatMap(self.function)


class CountRows(beam.PTransform):
    """The number of rows of all packs, as a side input."""

    def expand(self, packed: beam.PCollection[Columns]) -> AsSingleton:
        count: AsSingleton = packed | "rows" >> beam.Map(len) | "add" >> beam.CombineGlobally(sum).as_singleton_view()
        return count


@dataclass(eq=False)
class Gather(beam.PTransform):
    """(key, rows) to all rows of each key."""

    kind: type[Columns]

    def expand(self, parts: beam.PCollection[tuple[Any, Columns]]) -> beam.PCollection[Columns]:
        return parts | "group" >> beam.GroupByKey() | "concatenate" >> beam.MapTuple(self._concatenate)

    def _concatenate(self, _: Any, parts: Iterable[Columns]) -> Columns:
        return self.kind.concatenate(parts)


def divide(
    table: T, count: int, *, by: str, rows: int = ROWS_PER_PARTITION, most: int = MAX_PARTITIONS
) -> Iterator[tuple[Partition, T]]:
    """Yield (partition, its rows) of a pack, each partition with the width of the values it is made by.

    Args:
        table: the pack.
        count: rows of all packs: the number of partitions follows from it.
        by: name of the column whose equal values are in one partition.
        rows: of a partition, about.
        most: partitions.
    """
    values = getattr(table, by)
    for partition, part in table.divide(values, min(most, max(1, -(-count // rows)))):
        yield (values.itemsize, partition), part
