"""The sources stage in Beam: any source gives candidate documents and failure rows, by the steps that it has.

read        each shard where one worker has it
select      one item of each id is kept
fetch       all by one worker
complete    each item by any worker

What comes of each step goes through one border: names of images become addresses, and what is on the takedown list
goes. What was read is in the ledger before anything of it is fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

import apache_beam as beam

from pipelines.ledger import LedgerRow, Read, append, texts_key
from pipelines.sources.records import CandidateDocument, with_addresses
from pipelines.sources.source import Context
from pipelines.sources.takedowns import without_listed
from pipelines.transforms import OnOneWorker, StageOutput, fallible, separate
from schemas.failures import Stage
from schemas.lake import Folder

_ROWS_AT_ONCE = 10_000


@dataclass(eq=False)
class ReadSource(beam.PTransform):
    """Reads any source from the root of a pipeline: gives candidate documents.

    Attributes:
        source: settings of the source (`pipelines.sources.source.Source`).
        begin: what the first worker calls with what it passes on, or None.
    """

    source: Any
    context: Context
    begin: Callable[[str], str] | None = None

    def expand(self, root: beam.Pipeline) -> StageOutput:
        source = self.source
        start = root | "start" >> beam.Create(source.shards(), reshuffle=False)
        if self.begin is not None:
            start = start | "begin" >> beam.Map(self.begin)
        steps = [start | beam.Reshuffle() | "read" >> fallible(Stage.SOURCES, partial(self._step, "read_shard"))]
        if source.select is not None:
            by_id = steps[-1].results | "by id" >> beam.WithKeys(attrgetter("id")) | "group by id" >> beam.GroupByKey()
            steps.append(by_id | "select" >> fallible(Stage.SOURCES, self._select))
        if source.fetch is not None:
            fetched = steps[-1].results | "fetch" >> OnOneWorker(partial(self._step, "fetch"))
            steps.append(fetched | "fetched or failed" >> separate())
        if source.complete is not None:
            spread = steps[-1].results | "spread" >> beam.Reshuffle()
            steps.append(spread | "complete" >> fallible(Stage.SOURCES, partial(self._step, "complete")))
        candidates = steps[-1].results
        _ = candidates | "into the ledger" >> beam.ParDo(_Note(self.context.ledger))
        return StageOutput(candidates, tuple(step.failures for step in steps), {Stage.SOURCES: (candidates,)})

    def _select(self, group: tuple[str, Iterable[Any]]) -> Iterator[Any]:
        return self._passed(self.source.select(*group, self.context))

    def _step(self, name: str, item: Any) -> Iterator[Any]:
        return self._passed(getattr(self.source, name)(item, self.context))

    def _passed(self, outcomes: Iterable[Any]) -> Iterator[Any]:
        whole = with_addresses(outcomes, getattr(self.source, "images", ""))
        return without_listed(whole, self.context.takedowns)


class _Note(beam.DoFn):
    """Writes the rows of documents into the ledger, some at a time."""

    def __init__(self, ledger: Folder) -> None:
        self._ledger = ledger

    def setup(self) -> None:
        self._rows = list[LedgerRow]()

    def process(self, candidate: CandidateDocument) -> None:
        self._rows.append(row_of(candidate))
        if len(self._rows) >= _ROWS_AT_ONCE:
            self.finish_bundle()

    def finish_bundle(self) -> None:
        append(self._ledger, self._rows)
        self._rows = []


def row_of(candidate: CandidateDocument) -> LedgerRow:
    """Return the row of a document in the ledger; a copy comes from two places: a file, and its original."""
    read, images = candidate.provenance, candidate.images
    copies = [image for image in images if image.original]
    return LedgerRow(
        Read.DOCUMENT,
        candidate.id,
        read.url,
        read.record_id,
        read.captured,
        texts_key(sentence.text for sentence in candidate.sentences),
        tuple(image.uri for image in (*images, *copies)),
        (*(image.source or image.uri for image in images), *(f"sha256:{image.original}" for image in copies))
        if copies or any(image.source for image in images)
        else (),
    )
