"""The images stage in Beam: every address once, fetched at its host's pace, then decoded by any worker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import apache_beam as beam

from pipelines.config import FingerprintName, ImagesConfig
from pipelines.documents.draft import Draft
from pipelines.documents.takedown import Takedowns
from pipelines.http.captures import Kind
from pipelines.http.client import process_client
from pipelines.http.errors import FetchFailed
from pipelines.http.fan_out import map_concurrently
from pipelines.images.obtain import WEB, ImagePlaces, host_of, obtain_image, unique_images
from pipelines.progress import Progress
from schemas.failures import Failure, Reason, Stage
from schemas.images import Image

Outcome = tuple[str, Image | Failure]


@dataclass(eq=False)
class ObtainImages(beam.PTransform):
    """Turns the addresses in drafts into images: gives PCollection[(address, Image | Failure)]."""

    places: ImagePlaces
    config: ImagesConfig
    fingerprint: FingerprintName
    takedowns: Takedowns
    progress: Progress

    def expand(self, drafts: beam.PCollection) -> beam.PCollection:
        addresses = drafts | "list addresses" >> beam.FlatMap(_addresses) | "once each" >> beam.Distinct()
        fetched = (
            addresses
            | "key by host" >> beam.FlatMap(_key_by_host)
            | "group by host" >> beam.GroupByKey()
            | "capture" >> beam.ParDo(_Capture(self.places, self.takedowns, self.progress))
        )
        at_hand = addresses | "at hand" >> beam.FlatMap(self._check)
        captured = (fetched, at_hand) | "captured" >> beam.Flatten()
        return captured | "spread" >> beam.Reshuffle() | "inspect" >> beam.Map(self._inspect)

    def _check(self, uri: str) -> Iterator[tuple[str, Failure | None]]:
        """Yield a file or row, which no host's pace concerns: in no group, since they may be millions."""
        if not host_of(uri):
            entry = self.takedowns.matches_address(uri)
            yield uri, None if entry is None else _taken_down(uri, entry)

    def _inspect(self, captured: tuple[str, Failure | None]) -> Outcome:
        uri, failure = captured
        self.progress.advance("images")
        if failure is not None:
            return uri, failure
        image = obtain_image(uri, places=self.places, config=self.config, fingerprint=self.fingerprint)
        entry = self.takedowns.matches_image(image) if isinstance(image, Image) else None
        return uri, image if entry is None else _taken_down(uri, entry)


class _Capture(beam.DoFn):
    """Brings one host's images into the raw store: yields each address, with a failure where there is nothing."""

    def __init__(self, places: ImagePlaces, takedowns: Takedowns, progress: Progress) -> None:
        self._places = places
        self._takedowns = takedowns
        self._progress = progress

    def process(self, group: tuple[str, Iterable[str]]) -> Iterator[tuple[str, Failure | None]]:
        _, uris = group
        yield from map_concurrently(self._capture, uris, threads=self._places.http.connections_per_host)

    def _capture(self, uri: str) -> tuple[str, Failure | None]:
        entry = self._takedowns.matches_address(uri)
        if entry is not None:
            return uri, _taken_down(uri, entry)
        try:
            process_client(self._places.http, self._places.raw).get(uri, source=WEB, kind=Kind.IMAGE)
        except FetchFailed as problem:
            return uri, problem.failure(uri, stage=Stage.IMAGES)
        finally:
            self._progress.advance("captures")
        return uri, None


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


def _addresses(draft: Draft) -> Iterator[str]:
    yield from set(draft.image_uris)


def _key_by_host(uri: str) -> Iterator[tuple[str, str]]:
    host = host_of(uri)
    if host:
        yield host, uri


def _valid(outcome: Outcome) -> Iterator[tuple[str, Image]]:
    _, image = outcome
    if isinstance(image, Image):
        yield image.hash, image


def _one_of_each(content_hash: str, images: Iterable[Image]) -> tuple[str, Image]:
    return content_hash, unique_images(images)
