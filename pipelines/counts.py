"""What each stage passed on, rejected and failed, and the other facts a build's manifest is composed of.

Facts are pairs of a kind and a value. Each stage adds its own, and one place gathers them: their number grows with
shards, reasons and sizes of documents, and not with documents.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import apache_beam as beam

from schemas.failures import FILTERED, Failure, Stage

Fact = tuple[str, Any]
STAGES, REASONS = "stages", "reasons"
_PASSED, _REJECTED, _FAILED = "out", "rejected", "failed"


@dataclass(eq=False)
class CountStages(beam.PTransform):
    """Failures of all stages to facts: (`stages`, (stage, field, number)) and (`reasons`, (reason, number)).

    Attributes:
        passed: what each stage passed on.
        recounted: stages whose failures are counted in another collection than the failure rows: one image that
            cannot be had is a row in each of its documents.
    """

    passed: Mapping[Stage, beam.PCollection]
    recounted: Mapping[Stage, beam.PCollection]

    def expand(self, failures: beam.PCollection) -> beam.PCollection:
        out = [
            elements | f"{stage}" >> beam.combiners.Count.Globally() | f"{stage} out" >> beam.Map(partial(_out, stage))
            for stage, elements in self.passed.items()
        ]
        own = failures | "of other stages" >> beam.Filter(_is_not_of, frozenset(self.recounted))
        counted = (own, *self.recounted.values()) | "failures" >> beam.Flatten()
        kinds = counted | "kinds" >> beam.Map(_kind) | "count kinds" >> beam.combiners.Count.PerElement()
        reasons = failures | "reason" >> beam.Map(_reason) | "count reasons" >> beam.combiners.Count.PerElement()
        facts = (
            kinds | "as stages" >> beam.MapTuple(_lost),
            reasons | "as reasons" >> beam.Map(partial(_fact, REASONS)),
        )
        return (*out, *facts) | "facts" >> beam.Flatten()


class GatherFacts(beam.PTransform):
    """Facts to one mapping from each kind to its values, in no order."""

    def expand(self, facts: beam.PCollection) -> beam.PCollection:
        return facts | beam.CombineGlobally(beam.combiners.ToListCombineFn()) | "by kind" >> beam.Map(_by_kind)


def as_facts(kind: str) -> beam.PTransform:
    """Return a transform of elements into facts of a kind."""
    return beam.Map(partial(_fact, kind))


def stage_table(counts: Iterable[tuple[str, str, int]]) -> dict[str, dict[str, int]]:
    """Return for each stage how many elements went in and out, were rejected by a rule, and failed."""
    table: dict[str, dict[str, int]] = {}
    for stage, field, number in sorted(counts):
        row = table.setdefault(stage, {"in": 0, _PASSED: 0, _REJECTED: 0, _FAILED: 0})
        row[field] += number
        row["in"] += number
    return table


def _out(stage: Stage, number: int) -> Fact:
    return STAGES, (str(stage), _PASSED, number)


def _lost(kind: tuple[str, str], number: int) -> Fact:
    return STAGES, (*kind, number)


def _kind(failure: Failure) -> tuple[str, str]:
    return str(failure.stage), _REJECTED if failure.reason in FILTERED else _FAILED


def _is_not_of(failure: Failure, stages: frozenset[Stage]) -> bool:
    return failure.stage not in stages


def _reason(failure: Failure) -> str:
    return str(failure.reason)


def _fact(kind: str, value: Any) -> Fact:
    return kind, value


def _by_kind(facts: Iterable[Fact]) -> dict[str, list[Any]]:
    values: dict[str, list[Any]] = defaultdict(list)
    for kind, value in facts:
        values[kind].append(value)
    return values
