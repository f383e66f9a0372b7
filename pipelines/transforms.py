"""Beam wiring that every stage shares: the door with a name by which bad records leave, and what is counted of stages.

A fallible step is a plain function that yields results or `Failure`s; `fallible` runs it and keeps the two apart. An
exception that the function did not expect is a failure row of that record, too: no record stops a build. What is about
the machine, and the project's own errors, end it.

Each stage gives a `StageOutput`: what goes on, the failures, its own counts, and what it adds to the version's tables
and manifest. A stage that is off gives `off(documents)`. What is counted is counted where it is (`Tally`), so that only
numbers travel, and added up in one step.

How far a local build is, is seen from outside while it runs: a small file a stage and worker, with its count, since
Beam tells its counters only when a local run is over. A count is written when it begins, once a second, and when a
bundle ends; what cannot be written is not shown, and ends no build. A cluster's runner shows Beam's counters itself.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import GlobalWindows

from schemas.failures import FILTERED, OF_PARTS, Failure, Reason, Stage, unexpected
from schemas.messages import Passing

POLL_S = 1.0


@dataclass(frozen=True, slots=True)
class Progress:
    """Where counts are written; `directory` None: nowhere."""

    directory: str | None

    def counts(self) -> Counter[str]:
        """Return elements done so far, by stage."""
        done = Counter[str]()
        with suppress(OSError, ValueError):
            for path in Path(self.directory).iterdir() if self.directory is not None else ():
                done[path.suffix.removeprefix(".")] += int(path.read_text() or 0)
        return done


@contextmanager
def watched(progress: Progress, say: Callable[[str], None], *, poll_s: float = POLL_S) -> Iterator[None]:
    """Tell a line whenever the counts have changed, from a thread, while the `with` block runs."""
    stop = threading.Event()

    def watch() -> None:
        shown = Counter[str]()
        while not stop.wait(poll_s):
            counts = progress.counts()
            if counts != shown:
                say(Passing("  ".join(f"{stage} {count}" for stage, count in counts.items())))
                shown = counts

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


T = TypeVar("T")
FAILURES = "failures"
Fact = tuple[str, Any]
Counted = tuple[str, int]  # stage, number
Lost = tuple[tuple[str, str], int]  # (stage, reason), number
Met = tuple[str, list[T], Mapping[str, Any]]  # id, the wholes of it, what became of their parts by key
RECOUNTED = frozenset({Stage.IMAGES, Stage.FEATURES})


class StageOutput(NamedTuple):
    """What a stage gives.

    Attributes:
        results: what goes on.
        failures: PCollections of `Failure`s.
        passed: PCollections of what each stage passed on, which is counted; none of a stage that is off. Of images it
            is (key, what became of it), so that one counts once in place of a failure row in each of its documents.
        counts: PCollections of ((kind, thing), number) of other things, as `Tally` gives them.
        tables: rows of the version's tables, by their names.
        facts: values that the manifest is made of, by their kinds: few, whatever the number of documents.
    """

    results: beam.PCollection
    failures: tuple[beam.PCollection, ...] = ()
    passed: Mapping[Stage, tuple[beam.PCollection, ...]] = {}
    counts: tuple[beam.PCollection, ...] = ()
    tables: Mapping[str, beam.PCollection] = {}
    facts: Mapping[str, beam.PCollection] = {}


def off(documents: beam.PCollection) -> StageOutput:
    """Return what a stage gives that does nothing."""
    return StageOutput(documents)


def _own_id(element: Any) -> str:
    """Return the id of an element that has one, the key of a group, the last part of a file's path."""
    if isinstance(element, str):
        return element.rpartition("/")[2]
    return str(element.id if hasattr(element, "id") else element[0])


def fallible(stage: Stage, function: Callable[[Any], Iterable[Any]], id_of: Callable[[Any], str] = _own_id) -> Any:
    """Return a transform that applies a function to each element: gives `results`, and `failures` apart.

    Args:
        stage: of an unforeseen failure.
        function: yields results or failures.
        id_of: names the record of an element, where the function raises what it should not.
    """
    return beam.FlatMap(_apply, stage, function, id_of).with_outputs(FAILURES, main="results")


def _apply(
    element: Any, stage: Stage, function: Callable[[Any], Iterable[Any]], id_of: Callable[[Any], str]
) -> Iterator[Any]:
    try:
        yield from map(_tagged, function(element))
    except Exception as error:  # noqa: BLE001 - the border of every stage
        yield _tagged(unexpected(error, stage=stage, record_id=id_of(element)))


def separate() -> Any:
    """Return a transform that separates elements: gives `results`, and `failures` apart."""
    return beam.Map(_tagged).with_outputs(FAILURES, main="results")


def _tagged(element: Any) -> Any:
    return TaggedOutput(FAILURES, element) if isinstance(element, Failure) else element


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


@dataclass(eq=False)
class MeetParts(beam.PTransform, Generic[T]):
    """Joins wholes with what became of their parts: gives PCollection[`Met`], one for each id.

    Attributes:
        id_of: id of a whole.
        parts_of: keys of its parts, each once.
        outcomes: PCollections of (key, outcome): together, one for each key that any whole has.
    """

    id_of: Callable[[T], str]
    parts_of: Callable[[T], Iterable[str]]
    outcomes: Sequence[beam.PCollection]

    def expand(self, wholes: beam.PCollection) -> beam.PCollection:
        by_id = wholes | "by id" >> beam.WithKeys(self.id_of)
        parts = wholes | "parts" >> beam.FlatMap(self._parts)
        found = (parts, *self.outcomes) | "meet outcomes" >> beam.CoGroupByKey() | "deliver" >> beam.FlatMap(_deliver)
        return (by_id, found) | "meet wholes" >> beam.CoGroupByKey() | "met" >> beam.MapTuple(_met)

    def _parts(self, whole: T) -> Iterator[tuple[str, str]]:
        for key in self.parts_of(whole):
            yield key, self.id_of(whole)


def _deliver(group: tuple[str, tuple[Iterable[Any], ...]]) -> Iterator[tuple[str, tuple[str, Any]]]:
    key, (ids, *outcomes) = group
    for outcome in chain.from_iterable(outcomes):
        for whole_id in ids:
            yield whole_id, (key, outcome)


def _met(whole_id: str, group: tuple[Iterable[Any], Iterable[tuple[str, Any]]]) -> Met[Any]:
    wholes, outcomes = group
    return whole_id, list(wholes), dict(outcomes)


@dataclass(eq=False)
class LeaveOut(beam.PTransform):
    """(documents, ids of those to leave out, once each) to the documents that stay, however many go."""

    id_of: Callable[[Any], str]

    def expand(self, inputs: tuple[beam.PCollection, beam.PCollection]) -> beam.PCollection:
        documents, unwanted = inputs
        by_id = documents | "key documents" >> beam.WithKeys(self.id_of)
        keyed = unwanted | "key ids" >> beam.WithKeys(str)
        return (by_id, keyed) | "meet ids" >> beam.CoGroupByKey() | "stay" >> beam.FlatMapTuple(_staying)


def _staying(_: str, group: tuple[Iterable[Any], Iterable[str]]) -> Iterable[Any]:
    documents, unwanted = group
    return () if list(unwanted) else documents


class Tally(beam.DoFn, Generic[T]):
    """Gives the things of elements, and how often each is there in a bundle: ((kind, thing), number)."""

    def __init__(self, things_of: Callable[[T], Iterable[Fact]]) -> None:
        self._things_of = things_of

    def start_bundle(self) -> None:
        self._numbers = Counter[Fact]()

    def process(self, element: T) -> None:
        self._numbers.update(self._things_of(element))

    def finish_bundle(self) -> Iterator[Any]:
        yield from map(GlobalWindows.windowed_value, self._numbers.items())


class Show(beam.DoFn):
    """Lets whoever watches see the number of elements grow: in a counter of Beam's, and in files of a local build."""

    def __init__(self, stage: Stage, progress: Progress) -> None:
        self._stage, self._directory = stage, progress.directory
        self._count, self._written_at = 0, 0.0

    def setup(self) -> None:
        self._counter = Metrics.counter("multilink", str(self._stage))
        self._file = f"{os.urandom(8).hex()}.{self._stage}"

    def process(self, _: Any) -> None:
        self._counter.inc()
        self._count += 1
        if time.monotonic() - self._written_at > POLL_S:
            self._write()

    def finish_bundle(self) -> None:
        self._write()

    def _write(self) -> None:
        self._written_at = time.monotonic()
        if self._directory is not None:
            with suppress(OSError):
                Path(self._directory, self._file).write_text(f"{self._count}")


def count_passed(passed: Mapping[Stage, Iterable[beam.PCollection]]) -> list[beam.PCollection]:
    """Return the counts of what stages passed on: of `passed`, a stage; of `recounted`, (stage, reason)."""
    return [
        some | f"count {stage} {number}" >> beam.ParDo(Tally(partial(_became, stage)))
        for stage, parts in passed.items()
        for number, some in enumerate(parts)
    ]


def count_lost(failures: beam.PCollection) -> beam.PCollection:
    """Return the counts of failures: of `lost`, (stage, reason)."""
    return failures | "count failures" >> beam.ParDo(Tally(_lost))


def show(passed: Mapping[Stage, Iterable[beam.PCollection]], progress: Progress) -> None:
    """Let the number of the elements of stages be seen while it grows."""
    for stage, parts in passed.items():
        for number, some in enumerate(parts):
            _ = some | f"show {stage} {number}" >> beam.ParDo(Show(stage, progress))


class CountThings(beam.PTransform):
    """Tallies, ((kind, thing), number), to a fact of each thing: (kind, (thing, number))."""

    def expand(self, tallies: beam.PCollection) -> beam.PCollection:
        facts = beam.MapTuple(lambda thing, number: (thing[0], (thing[1], number)))
        return tallies | "add up" >> beam.CombinePerKey(sum) | "as facts" >> facts


class GatherFacts(beam.PTransform):
    """Facts to one mapping from each kind to its values, in no order."""

    def expand(self, facts: beam.PCollection) -> beam.PCollection:
        lists = beam.CombineGlobally(beam.combiners.ToListCombineFn()).without_defaults()  # there are always some
        return facts | lists | "by kind" >> beam.Map(_by_kind)


def as_facts(kind: str) -> beam.PTransform:
    """Return a transform of elements into facts of a kind."""
    return beam.Map(lambda value: (kind, value))


def stage_table(
    stages: Iterable[str], passed: Iterable[Counted], lost: Iterable[Lost], recounted: Iterable[Lost]
) -> dict[str, dict[str, int]]:
    """Return for each stage how many elements went in and out, were rejected by a rule, and failed.

    `sources` counts records, the stages in `RECOUNTED` count images, all others documents. What is lost of a record or
    document that stays (`OF_PARTS`) is counted by its reason alone.
    """
    out = Counter(dict(passed))
    table = {stage: {"in": out[stage], "out": out[stage], "rejected": 0, "failed": 0} for stage in sorted(stages)}
    whole = (row for row in lost if row[0][0] not in RECOUNTED and Reason(row[0][1]) not in OF_PARTS)
    for (stage, reason), number in (*whole, *recounted):
        table[stage]["in"] += number
        table[stage]["rejected" if Reason(reason) in FILTERED else "failed"] += number
    return table


def _became(stage: Stage, element: Any) -> list[Fact]:
    """Return what an element of a stage, or (key, what became of an image), counts as."""
    outcome = element[1] if isinstance(element, tuple) else element
    if isinstance(outcome, Failure):
        return [("recounted", (str(outcome.stage), str(outcome.reason)))]
    return [("passed", str(stage))]


def _lost(failure: Failure) -> list[Fact]:
    return [("lost", (str(failure.stage), str(failure.reason)))]


def _by_kind(facts: Iterable[Fact]) -> dict[str, list[Any]]:
    values: dict[str, list[Any]] = defaultdict(list)
    for kind, value in facts:
        values[kind].append(value)
    return values
