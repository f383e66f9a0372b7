"""The images stage in Beam: every address once, fetched at its host's pace and inspected as it comes.

A host's images are divided among the worker processes of one machine, which keep its pace together
(`http/schedules.py`, `http/slots.py`); on a cluster, whose machines know nothing of each other, one worker has all.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import apache_beam as beam

from pipelines.images.obtain import (
    ImagePlaces,
    failure_of,
    fetch_image,
    host_of,
    keep_image,
    obtain_image,
    unique_images,
)
from pipelines.progress import Progress
from pipelines.settings import FingerprintName, ImagesConfig
from pipelines.sources.candidate import CandidateDocument
from pipelines.sources.takedowns import Takedowns
from pipelines.web.errors import FetchFailed
from pipelines.web.fan_out import map_concurrently
from schemas.failures import Failure, Reason, Stage
from schemas.images import Image

_DONE, _AT_HAND = "done", "at-hand"
Outcome = tuple[str, Image | Failure]
HostShare = tuple[str, int]


@dataclass(eq=False)
class ObtainImages(beam.PTransform):
    """Turns the addresses in drafts into images: gives PCollection[(address, Image | Failure)].

    Attributes:
        neighbours: worker processes that share a machine and the store; 1 where workers may be on several machines.
    """

    places: ImagePlaces
    config: ImagesConfig
    fingerprint: FingerprintName
    takedowns: Takedowns
    progress: Progress
    neighbours: int = 1

    @property
    def shares(self) -> int:
        """Return the parts a host's images are divided into: each has a connection at least."""
        return min(self.neighbours, self.places.http.connections_per_host)

    def expand(self, drafts: beam.PCollection) -> beam.PCollection:
        addresses = drafts | "list addresses" >> beam.FlatMap(_addresses) | "once each" >> beam.Distinct()
        fetched = (
            addresses
            | "key by host" >> beam.FlatMap(_key_by_host, self.shares)
            | "group by host" >> beam.GroupByKey()
            | "fetch" >> beam.ParDo(_Fetch(self)).with_outputs(_AT_HAND, main=_DONE)
        )
        of_no_host = addresses | "of no host" >> beam.Filter(_has_no_host)  # in no group, since they may be millions
        at_hand = (fetched[_AT_HAND], of_no_host) | "at hand" >> beam.Flatten()
        inspected = at_hand | "spread" >> beam.Reshuffle() | "inspect" >> beam.Map(self.inspect)
        return (fetched[_DONE], inspected) | "outcomes" >> beam.Flatten()

    def fetch(self, uri: str) -> tuple[str, bytes | Failure | None]:
        """Return what a web address brings: bytes or a failure; None where it is captured, to be read elsewhere."""
        taken_down = self._by_address(uri)
        if taken_down is not None:
            return uri, taken_down
        try:
            return uri, fetch_image(uri, self.places)
        except FetchFailed as problem:
            return uri, failure_of(uri, problem)
        finally:
            self.progress.advance("captures")

    def keep(self, uri: str, fetched: bytes | Failure) -> Outcome:
        """Return what is in the bytes of an address."""
        if isinstance(fetched, Failure):
            return uri, self._counted(fetched)
        found = keep_image(uri, fetched, places=self.places, config=self.config, fingerprint=self.fingerprint)
        return uri, self._counted(self._unless_taken_down(uri, found))

    def inspect(self, uri: str) -> Outcome:
        """Return what is at an address: a file, a row, or something captured."""
        taken_down = self._by_address(uri)
        if taken_down is not None:
            return uri, self._counted(taken_down)
        found = obtain_image(uri, places=self.places, config=self.config, fingerprint=self.fingerprint)
        return uri, self._counted(self._unless_taken_down(uri, found))

    def _by_address(self, uri: str) -> Failure | None:
        entry = self.takedowns.matches_address(uri)
        return None if entry is None else _taken_down(uri, entry)

    def _unless_taken_down(self, uri: str, found: Image | Failure) -> Image | Failure:
        entry = self.takedowns.matches_image(found) if isinstance(found, Image) else None
        return found if entry is None else _taken_down(uri, entry)

    def _counted(self, found: Image | Failure) -> Image | Failure:
        self.progress.advance("images")
        return found


class _Fetch(beam.DoFn):
    """Fetches a share of one host's images at its pace, in several threads, and inspects each as it comes, in this one.

    What was captured before (or is large) it only names, under `_AT_HAND`: any worker can read that.
    """

    def __init__(self, stage: ObtainImages) -> None:
        self._stage = stage

    def process(self, group: tuple[HostShare, Iterable[str]]) -> Iterator[Outcome | beam.pvalue.TaggedOutput]:
        _, uris = group
        threads = math.ceil(self._stage.places.http.connections_per_host / self._stage.shares)
        for uri, fetched in map_concurrently(self._stage.fetch, uris, threads=threads):
            yield beam.pvalue.TaggedOutput(_AT_HAND, uri) if fetched is None else self._stage.keep(uri, fetched)


@dataclass(eq=False)
class UniqueImages(beam.PTransform):
    """One record per content hash: gives PCollection[(content hash, Image)]."""

    def expand(self, outcomes: beam.PCollection) -> beam.PCollection:
        return (
            outcomes
            | "valid only" >> beam.FlatMap(_valid)
            | "group by hash" >> beam.GroupByKey()
            | "one of each" >> beam.MapTuple(_one_of_each)
        )


def _taken_down(uri: str, entry: str) -> Failure:
    return Failure(Stage.IMAGES, uri, Reason.TAKEN_DOWN, f"on the takedown list by its {entry.partition(':')[0]}")


def _addresses(draft: CandidateDocument) -> Iterator[str]:
    yield from set(draft.image_uris)


def _has_no_host(uri: str) -> bool:
    return not host_of(uri)


def _key_by_host(uri: str, shares: int) -> Iterator[tuple[HostShare, str]]:
    host = host_of(uri)
    if host:
        yield (host, zlib.crc32(uri.encode()) % shares), uri


def _valid(outcome: Outcome) -> Iterator[tuple[str, Image]]:
    _, image = outcome
    if isinstance(image, Image):
        yield image.hash, image


def _one_of_each(content_hash: str, images: Iterable[Image]) -> tuple[str, Image]:
    return content_hash, unique_images(images)
