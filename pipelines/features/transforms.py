"""The features stage in Beam: a vector per image and extractor, and one per sentence.

One model per worker process, made in `setup`; an extractor's vectors do not depend on what shares a batch, so batches
may form as elements arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.utils import shared

from pipelines.features.extractors import image_extractor, sentence_extractor
from pipelines.features.given import given_vectors, row_of
from pipelines.images.store import ImageStore
from pipelines.progress import Progress
from pipelines.shards.writing import DocumentWithVectors, ImageWithVectors, Vectors
from schemas.codecs import pack_vectors
from schemas.documents import Document
from schemas.errors import IntegrityError
from schemas.images import Image

Named = tuple[str, np.ndarray]


@dataclass(eq=False)
class ExtractImages(beam.PTransform):
    """Adds vectors to images: PCollection[(hash, Image)] to PCollection[(hash, ImageWithVectors)].

    Attributes:
        names: extractors that look at the 256-px copy.
        given: extractor name and path of a released feature array, or None.
    """

    names: tuple[str, ...]
    given: tuple[str, str] | None
    batch: int
    threads: int
    store: ImageStore
    progress: Progress

    def expand(self, images: beam.PCollection) -> beam.PCollection:
        return (
            images
            | "spread" >> beam.Reshuffle()
            | "batch" >> beam.BatchElements(min_batch_size=self.batch, max_batch_size=self.batch)
            | "extract" >> beam.ParDo(_ExtractImages(self))
        )


class _Extracting(beam.DoFn):
    """A DoFn with extractors, loaded once per worker process whatever the number of its threads."""

    def __init__(self, load: Callable[[], list[Any]], tag: str) -> None:
        self._load = load
        self._tag = tag
        self._shared = shared.Shared()
        self.extractors: list[Any] = []

    def setup(self) -> None:
        self.extractors = self._shared.acquire(self._boxed, tag=self._tag).items

    def _boxed(self) -> _Loaded:
        return _Loaded(self._load())


class _Loaded:
    """Extractors in a box that `Shared` can hold a weak reference to."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items


class _ExtractImages(_Extracting):
    def __init__(self, settings: ExtractImages) -> None:
        load = partial(_load, image_extractor, settings.names, settings.threads)
        super().__init__(load, f"images {settings.names}")
        self._given = settings.given
        self._store = settings.store
        self._progress = settings.progress

    def process(self, batch: Sequence[tuple[str, Image]]) -> Iterator[tuple[str, ImageWithVectors]]:
        images = [image for _, image in batch]
        columns: list[Named] = []
        if self.extractors:
            pictures = [self._store.read(image.hash) for image in images]
            columns = [(extractor.name, extractor.extract(pictures)) for extractor in self.extractors]
        if self._given is not None:
            name, path = self._given
            rows = [row_of(str(image.source)) for image in images]
            columns.append((name, given_vectors(name, path).rows(rows)))
        for position, image in enumerate(images):
            yield image.hash, ImageWithVectors(image, pack(columns, position))
        self._progress.advance("features", len(batch))


@dataclass(eq=False)
class ExtractSentences(beam.PTransform):
    """Adds a vector per sentence to documents: gives PCollection[DocumentWithVectors]."""

    names: tuple[str, ...]
    threads: int
    progress: Progress

    def expand(self, documents: beam.PCollection) -> beam.PCollection:
        return documents | "spread" >> beam.Reshuffle() | "extract" >> beam.ParDo(_ExtractSentences(self))


class _ExtractSentences(_Extracting):
    def __init__(self, settings: ExtractSentences) -> None:
        load = partial(_load, sentence_extractor, settings.names, settings.threads)
        super().__init__(load, f"sentences {settings.names}")
        self._progress = settings.progress

    def process(self, document: Document) -> Iterator[DocumentWithVectors]:
        texts = [sentence.text for sentence in document.sentences]
        columns = [(extractor.name, extractor.extract(texts)) for extractor in self.extractors]
        self._progress.advance("sentences", len(texts))
        yield DocumentWithVectors(document, pack(columns))


def _load(make: Callable[..., Any], names: Sequence[str], threads: int) -> list[Any]:
    return [make(name, threads=threads) for name in names]


def pack(columns: Sequence[Named], position: int | None = None) -> Vectors:
    """Return the float16 bytes of each extractor's matrix, or of one row of it, sorted by extractor."""
    return tuple(sorted((name, _bytes_of(name, matrix, position)) for name, matrix in columns))


def _bytes_of(name: str, matrix: np.ndarray, position: int | None) -> bytes:
    packed, is_valid = pack_vectors(matrix if position is None else matrix[position : position + 1])
    if not is_valid.all():
        raise IntegrityError(f"extractor {name}: a vector has values that are not finite, or beyond float16's range")
    return packed.astype("<f2").tobytes()
