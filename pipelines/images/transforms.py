"""The images stage in Beam: every address once; all hosts at once, each by one worker; pictures inspected as they come.

    addresses, once each --> at hand (files, rows, what was fetched before) --> images, failures
                                 |
                                 `--> the rest, by host to workers --> fetched --> images, failures

A host's addresses go to one worker, which keeps its pace. A worker has all its hosts in one bounded pool.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import apache_beam as beam

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
        addresses = candidates | "list addresses" >> beam.FlatMap(_addresses) | "once each" >> beam.Distinct()
        at_hand, to_fetch = addresses | "at hand or to fetch" >> beam.Partition(_is_to_fetch, 2, self.access)
        read = (
            at_hand
            | "one at a time" >> beam.Map(_alone)
            | "read what is at hand" >> beam.ParDo(_Obtain(read_at_hand, self.access, self.progress))
        )
        fetched = (
            to_fetch
            | "to the worker of its host" >> beam.Map(_key_by_share, shares=self.shares)
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


def _is_to_fetch(uri: str, _: int, access: ImageAccess) -> int:
    return int(is_to_fetch(uri, access))


def _alone(uri: str) -> list[str]:
    return [uri]


def _addresses(candidate: CandidateDocument) -> Iterator[str]:
    yield from set(candidate.image_uris)


def _key_by_share(uri: str, shares: int) -> tuple[int, str]:
    return zlib.crc32((host_of(uri) or "").encode()) % shares, uri
