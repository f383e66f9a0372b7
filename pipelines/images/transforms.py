"""The images stage in Beam: every address once; all hosts at once, each by one worker; pictures inspected as they come.

    addresses, once each --> at hand (files, rows, what was fetched before) --> images, failures
                                 |
                                 `--> the rest, by host to workers --> fetched --> images, failures

Pictures that one file holds are read by one worker, in the order in which they stand there: a pass over the file. What
was fetched before is read by all workers, a segment of the raw store at a time: each index is read once. A host's
addresses go to one worker, which keeps its pace, in shares of minutes. A worker has the hosts of all its shares in one
bounded pool: a share begins before the slow hosts of the one before it are through. What is fetched is in the raw store
within a minute, so a worker that takes over from one that was killed asks for no more than that again.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindows

from pipelines.embedded import on_web
from pipelines.files import INSIDE
from pipelines.images.obtain import (
    Found,
    ImageAccess,
    Inspector,
    crew_of,
    fetch,
    judge,
    keyed_signs,
    locate_stored,
    read_at_hand,
    read_stored,
)
from pipelines.settings import ImagesConfig
from pipelines.sources.records import addresses_of
from pipelines.web.pool import Crew
from pipelines.web.requests import host_of

LOOKED_UP_AT_ONCE = 2048  # addresses
_SOME = {"min_batch_size": LOOKED_UP_AT_ONCE, "max_batch_size": LOOKED_UP_AT_ONCE}
CARRIED = 2048  # addresses that may be under way when the next share begins


@dataclass(eq=False)
class ObtainImages(beam.PTransform):
    """Turns the addresses in candidates into images: gives some PCollections of (address, PackedImage | Failure).

    One that they all came together in would be written and read once more before what comes of them is joined.

    Attributes:
        shares: parts that hosts are divided into.
    """

    access: ImageAccess
    shares: int = 1

    def expand(self, candidates: beam.PCollection) -> tuple[beam.PCollection, ...]:
        addresses = (
            candidates
            | "list addresses" >> beam.FlatMap(addresses_of)
            | "once each" >> beam.Distinct()
            | "by the file that holds it" >> beam.Map(_key_by_file)
        )
        at_hand, to_fetch = addresses | "at hand or to fetch" >> beam.Partition(_is_to_fetch, 2)
        alone, held = at_hand | "a file or in a file" >> beam.Partition(_is_held, 2)
        together = held | "group by file" >> beam.GroupByKey() | "of each file" >> beam.Values()
        read = (
            (alone | "names" >> beam.Values() | "some files at once" >> beam.BatchElements(**_SOME), together)
            | "what is at hand" >> beam.Flatten()
            | "read what is at hand" >> beam.ParDo(_Obtain(read_at_hand, self.access))
        )
        new, known = (
            to_fetch
            | "addresses" >> beam.Values()
            | "some at once" >> beam.BatchElements(**_SOME)
            | "locate" >> beam.FlatMap(locate_stored, self.access)
            | "new or known" >> beam.Partition(_is_held, 2)
        )
        stored, old = (
            known
            | "group by segment" >> beam.GroupByKey()
            | "of each segment" >> beam.Values()
            | "read what is stored" >> beam.ParDo(_Obtain(read_stored, self.access))
            | "stored or to ask for" >> beam.Partition(_is_to_ask, 2)
        )
        to_share = partial(_key_by_share, self.shares)
        fetched = (
            (
                new | "never asked" >> beam.MapTuple(lambda _, uri: to_share(uri)),
                old | "to ask again" >> beam.MapTuple(lambda uri, _: to_share(uri)),
            )
            | "to the workers of their hosts" >> beam.Flatten()
            | "group by worker" >> beam.GroupByKey()
            | "of each worker" >> beam.Values()
            | "fetch" >> beam.ParDo(_Fetch(self.access))
        )
        return read, stored, fetched


@dataclass(eq=False)
class LeaveOutPlaceholders(beam.PTransform):
    """Makes failures of pictures by which hosts stand in for those that are gone; gives as many PCollections."""

    config: ImagesConfig

    def expand(self, outcomes: tuple[beam.PCollection, ...]) -> tuple[beam.PCollection, ...]:
        signs = [some | f"signs {number}" >> beam.FlatMap(keyed_signs) for number, some in enumerate(outcomes)]
        shared = (
            signs
            | "signs" >> beam.Flatten()
            | "each address once" >> beam.Distinct()
            | "addresses of each" >> beam.combiners.Count.PerKey()
            | "of many" >> beam.FlatMapTuple(self._of_many)
        )
        judge_all = partial(judge, config=self.config)
        side = beam.pvalue.AsDict(shared)
        return tuple(some | f"judge {number}" >> beam.Map(judge_all, side) for number, some in enumerate(outcomes))

    def _of_many(self, sign: str, addresses: int) -> Iterator[tuple[str, int]]:
        if 0 < self.config.placeholder_addresses <= addresses:
            yield sign, addresses


class _Obtain(beam.DoFn):
    """Applies a function of addresses with an inspector, whose packs are closed when a bundle ends."""

    def __init__(
        self,
        function: Callable[[Iterable[str], ImageAccess, Inspector], Iterator[tuple[str, Found | None]]],
        access: ImageAccess,
    ) -> None:
        self._function = function
        self._access = access

    def setup(self) -> None:
        self._inspector = Inspector(self._access)

    def process(self, uris: Iterable[str]) -> Iterator[tuple[str, Found | None]]:
        yield from self._function(uris, self._access, self._inspector)

    def finish_bundle(self) -> None:
        self._inspector.close()


class _Fetch(beam.DoFn):
    """Fetches share after share with one pool; a bundle ends when all of them are through."""

    def __init__(self, access: ImageAccess) -> None:
        self._access = access

    def setup(self) -> None:
        self._inspector = Inspector(self._access)
        self._crew: Crew | None = None

    def process(self, uris: Iterable[str]) -> Iterator[tuple[str, Found]]:
        self._crew = self._crew or crew_of(self._access)
        yield from fetch(uris, self._crew, self._access, self._inspector, carried=CARRIED)

    def finish_bundle(self) -> Iterator[Any]:
        if self._crew is not None:
            yield from map(GlobalWindows.windowed_value, fetch((), self._crew, self._access, self._inspector))
            self._crew.close()
            self._crew = None
        self._inspector.close()


def _key_by_file(uri: str) -> tuple[str, str]:
    """Return an address under the file that holds its picture; empty where it is a file of its own."""
    file, is_inside, _ = uri.partition(INSIDE)
    return file if is_inside else "", uri


def _is_to_fetch(keyed: tuple[str, str], _: int) -> int:
    return int(on_web(keyed[1]))


def _is_held(keyed: tuple[str, str], _: int) -> int:
    return int(bool(keyed[0]))


def _is_to_ask(found: tuple[str, Found | None], _: int) -> int:
    return int(found[1] is None)


def _key_by_share(shares: int, uri: str) -> tuple[int, str]:
    """Return an address under the share of its host."""
    return zlib.crc32((host_of(uri) or "").encode()) % shares, uri
