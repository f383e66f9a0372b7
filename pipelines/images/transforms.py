"""The images stage in Beam: every address once; all hosts at once, each by one worker; pictures inspected as they come.

    addresses, once each --> at hand (files, rows, what was fetched before) --> images, failures
                                 |
                                 `--> the rest, by host to workers --> fetched --> images, failures

A host's addresses go to one worker, which keeps its pace. A worker has all its hosts in one bounded pool.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import apache_beam as beam

from pipelines.images.obtain import Found, ImageAccess, Inspector, fetch_images, is_to_fetch, read_at_hand
from pipelines.progress import Progress
from pipelines.sources.candidate import CandidateDocument
from pipelines.transforms import Separate
from pipelines.web.requests import host_of

_DONE, _TO_FETCH = "done", "to-fetch"


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
        at_hand = addresses | "read what is at hand" >> beam.ParDo(_AtHand(self.access, self.progress)).with_outputs(
            _TO_FETCH, main=_DONE
        )
        fetched = (
            at_hand[_TO_FETCH]
            | "to the worker of its host" >> beam.Map(_key_by_share, shares=self.shares)
            | "group by worker" >> beam.GroupByKey()
            | "fetch" >> beam.ParDo(_Fetch(self.access, self.progress))
        )
        outcomes = (at_hand[_DONE], fetched) | "outcomes" >> beam.Flatten()
        found = outcomes | "outcomes only" >> beam.Values() | Separate()
        return Images(outcomes, found.results, found.failures)


class _Obtaining(beam.DoFn):
    """A DoFn with an inspector, whose packs are closed when a bundle ends."""

    def __init__(self, access: ImageAccess, progress: Progress) -> None:
        self._access = access
        self._progress = progress

    def setup(self) -> None:
        self._inspector = Inspector(self._access)

    def finish_bundle(self) -> None:
        self._inspector.close()

    def _counted(self, uri: str, found: Found) -> tuple[str, Found]:
        self._progress.advance("images")
        return uri, found


class _AtHand(_Obtaining):
    def process(self, uri: str) -> Iterator[tuple[str, Found] | beam.pvalue.TaggedOutput]:
        if is_to_fetch(uri, self._access):
            yield beam.pvalue.TaggedOutput(_TO_FETCH, uri)
        else:
            yield self._counted(uri, read_at_hand(uri, self._access, self._inspector))


class _Fetch(_Obtaining):
    def process(self, group: tuple[int, Iterable[str]]) -> Iterator[tuple[str, Found]]:
        _, uris = group
        for uri, found in fetch_images(uris, self._access, self._inspector):
            yield self._counted(uri, found)


def _addresses(candidate: CandidateDocument) -> Iterator[str]:
    yield from set(candidate.image_uris)


def _key_by_share(uri: str, shares: int) -> tuple[int, str]:
    return zlib.crc32((host_of(uri) or "").encode()) % shares, uri
