"""The features stage in Beam: a vector per image and extractor, and one per sentence.

One model per worker process, made in `setup`; an extractor's vectors do not depend on what shares a batch, so batches
may form as elements arrive.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
        work = _ExtractImages(self.names, self.given, self.threads, self.store, self.progress)
        return (
            images
            | "spread" >> beam.Reshuffle()
            | "batch" >> beam.BatchElements(min_batch_size=self.batch, max_batch_size=self.batch)
            | "extract" >> beam.ParDo(work)
        )


class _ExtractImages(beam.DoFn):
    def __init__(
        self,
        names: tuple[str, ...],
        given: tuple[str, str] | None,
        threads: int,
        store: ImageStore,
        progress: Progress,
    ) -> None:
        self._names = names
        self._given = given
        self._threads = threads
        self._store = store
        self._progress = progress
        self._shared = shared.Shared()
        self._extractors: Any = None

    def setup(self) -> None:
        self._extractors = self._shared.acquire(self._load, tag=repr(self._names))

    def _load(self) -> Any:
        return _Loaded([image_extractor(name, threads=self._threads) for name in self._names])

    def process(self, batch: Sequence[tuple[str, Image]]) -> Iterator[tuple[str, ImageWithVectors]]:
        images = [image for _, image in batch]
        columns: list[Named] = []
        if self._names:
            pictures = [self._store.read(image.hash) for image in images]
            columns = [(extractor.name, extractor.extract(pictures)) for extractor in self._extractors.items]
        if self._given is not None:
            name, path = self._given
            rows = [row_of(str(image.source)) for image in images]
            columns.append((name, given_vectors(name, path).rows(rows)))
        for position, image in enumerate(images):
            yield image.hash, ImageWithVectors(image, pack(columns, position))
        self._progress.advance("features", len(batch))


class _Loaded:
    """Extractors in a box that `Shared` can hold a weak reference to."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items


@dataclass(eq=False)
class ExtractSentences(beam.PTransform):
    """Adds a vector per sentence to documents: gives PCollection[DocumentWithVectors]."""

    names: tuple[str, ...]
    threads: int
    progress: Progress

    def expand(self, documents: beam.PCollection) -> beam.PCollection:
        work = _ExtractSentences(self.names, self.threads, self.progress)
        return documents | "spread" >> beam.Reshuffle() | "extract" >> beam.ParDo(work)


class _ExtractSentences(beam.DoFn):
    def __init__(self, names: tuple[str, ...], threads: int, progress: Progress) -> None:
        self._names = names
        self._threads = threads
        self._progress = progress
        self._shared = shared.Shared()
        self._extractors: Any = None

    def setup(self) -> None:
        self._extractors = self._shared.acquire(self._load, tag=repr(self._names))

    def _load(self) -> Any:
        return _Loaded([sentence_extractor(name, threads=self._threads) for name in self._names])

    def process(self, document: Document) -> Iterator[DocumentWithVectors]:
        texts = [sentence.text for sentence in document.sentences]
        columns = [(extractor.name, extractor.extract(texts)) for extractor in self._extractors.items]
        self._progress.advance("sentences", len(texts))
        yield DocumentWithVectors(document, pack(columns))


def pack(columns: Sequence[Named], position: int | None = None) -> Vectors:
    """Return the float16 bytes of each extractor's matrix, or of one row of it, sorted by extractor."""
    return tuple(sorted((name, _bytes_of(name, matrix, position)) for name, matrix in columns))


def _bytes_of(name: str, matrix: np.ndarray, position: int | None) -> bytes:
    packed, is_valid = pack_vectors(matrix if position is None else matrix[position : position + 1])
    if not is_valid.all():
        raise IntegrityError(f"extractor {name}: a vector has values that are not finite, or beyond float16's range")
    return packed.astype("<f2").tobytes()
