"""The images stage in Beam: every address once; all hosts at once, each by one worker; pictures inspected as they come.

    addresses, once each --> at hand (files, rows, what was fetched before) --> images, failures
                                 |
                                 `--> the rest, by host to workers --> fetched --> images, failures

Pictures that one file holds are read by one worker, in the order in which they stand there: a pass over the file. A
host's addresses go to one worker, which keeps its pace. A worker has all its hosts in one bounded pool.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import apache_beam as beam

from pipelines.files import INSIDE
from pipelines.images.obtain import Found, ImageAccess, Inspector, fetch_images, is_to_fetch, read_at_hand
from pipelines.progress import Progress
from pipelines.sources.records import CandidateDocument
from pipelines.transforms import Separate
from pipelines.web.requests import host_of


class Images(NamedTuple):
    """(address, PackedImage | Failure) of every address; and the images and the failures on their own."""

    outcomes: beam.PCollection
    found: beam.PCollection
    failures: beam.PCollection


@dataclass(eq=False)
class ObtainImages(beam.PTransform):
    """Turns the addresses in candidates into images: gives `Images`.

    Attributes:
        shares: parts that hosts are divided into: a worker fetches one at a time.
    """

    access: ImageAccess
    progress: Progress
    shares: int = 1

    def expand(self, candidates: beam.PCollection) -> Images:
        addresses = (
            candidates
            | "list addresses" >> beam.FlatMap(_addresses)
            | "once each" >> beam.Distinct()
            | "by the file that holds it" >> beam.Map(_key_by_file)
        )
        at_hand, to_fetch = addresses | "at hand or to fetch" >> beam.Partition(_is_to_fetch, 2, self.access)
        alone, held = at_hand | "a file or in a file" >> beam.Partition(_is_held, 2)
        together = held | "group by file" >> beam.GroupByKey() | "of each file" >> beam.Values()
        read = (
            (alone | "one at a time" >> beam.MapTuple(_alone), together)
            | "what is at hand" >> beam.Flatten()
            | "read what is at hand" >> beam.ParDo(_Obtain(read_at_hand, self.access, self.progress))
        )
        fetched = (
            to_fetch
            | "to the worker of its host" >> beam.MapTuple(partial(_key_by_share, shares=self.shares))
            | "group by worker" >> beam.GroupByKey()
            | "of each worker" >> beam.Values()
            | "fetch" >> beam.ParDo(_Obtain(fetch_images, self.access, self.progress))
        )
        outcomes = (read, fetched) | "outcomes" >> beam.Flatten()
        found = outcomes | "outcomes only" >> beam.Values() | Separate()
        return Images(outcomes, found.results, found.failures)


class _Obtain(beam.DoFn):
    """Applies a function of addresses with an inspector, whose packs are closed when a bundle ends."""

    def __init__(
        self,
        function: Callable[[Iterable[str], ImageAccess, Inspector], Iterator[tuple[str, Found]]],
        access: ImageAccess,
        progress: Progress,
    ) -> None:
        self._function = function
        self._access = access
        self._progress = progress

    def setup(self) -> None:
        self._inspector = Inspector(self._access)

    def process(self, uris: Iterable[str]) -> Iterator[tuple[str, Found]]:
        for found in self._function(uris, self._access, self._inspector):
            self._progress.advance("images")
            yield found

    def finish_bundle(self) -> None:
        self._inspector.close()


def _key_by_file(uri: str) -> tuple[str, str]:
    """Return an address under the file that holds its picture; empty where it is a file of its own."""
    file, is_inside, _ = uri.partition(INSIDE)
    return file if is_inside else "", uri


def _is_to_fetch(keyed: tuple[str, str], _: int, access: ImageAccess) -> int:
    return int(is_to_fetch(keyed[1], access))


def _is_held(keyed: tuple[str, str], _: int) -> int:
    return int(bool(keyed[0]))


def _alone(_: str, uri: str) -> list[str]:
    return [uri]


def _addresses(candidate: CandidateDocument) -> Iterator[str]:
    yield from set(candidate.image_uris)


def _key_by_share(_: str, uri: str, *, shares: int) -> tuple[int, str]:
    return zlib.crc32((host_of(uri) or "").encode()) % shares, uri
