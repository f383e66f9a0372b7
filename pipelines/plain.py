"""The stages up to features without Beam, for documents that are linked rather than kept: one process, in order.

The same plain functions as in the pipeline, so the same bytes give the same vectors; a test holds the two paths equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from pipelines.config import BuildConfig
from pipelines.documents.draft import Draft
from pipelines.documents.filters import reject_document, reject_draft
from pipelines.documents.resolve import resolve
from pipelines.features.extractors import ImageExtractor, SentenceExtractor
from pipelines.http.fan_out import map_concurrently
from pipelines.images.obtain import ImagePlaces, obtain_image
from schemas.documents import Document
from schemas.failures import Failure
from schemas.images import Image

FETCHED_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class VectorDocument:
    """A document with what a model reads of it.

    Attributes:
        sentence_vectors: n x t, float16, or None where no sentence extractor was given.
        image_vectors: m x v, float16.
    """

    document: Document
    sentence_vectors: npt.NDArray[np.float16] | None
    image_vectors: npt.NDArray[np.float16]


def documents_of(
    records: Iterable[Draft | Failure], config: BuildConfig, places: ImagePlaces
) -> Iterator[Document | Failure]:
    """Yield the document of every record that can become one, and a failure row for all that cannot."""
    drafts: list[Draft] = []
    for record in records:
        checked = record if isinstance(record, Failure) else reject_draft(record, config.documents) or record
        if isinstance(checked, Failure):
            yield checked
            continue
        drafts.append(checked)
        if len(drafts) == FETCHED_AT_ONCE:
            yield from _resolved(drafts, config, places)
            drafts = []
    yield from _resolved(drafts, config, places)


def _resolved(drafts: Sequence[Draft], config: BuildConfig, places: ImagePlaces) -> Iterator[Document | Failure]:
    addresses = sorted({uri for draft in drafts for uri in draft.image_uris})
    obtain = partial(_obtain, config=config, places=places)
    outcomes = dict(map_concurrently(obtain, addresses, threads=config.http.connections_per_host))
    for draft in drafts:
        resolved = resolve(draft, outcomes)
        yield from resolved.failures
        yield reject_document(resolved.document, config.documents) or resolved.document


def _obtain(uri: str, *, config: BuildConfig, places: ImagePlaces) -> tuple[str, Image | Failure]:
    return uri, obtain_image(uri, places=places, config=config.images, fingerprint=config.dedupe.fingerprint)


def add_vectors(
    documents: Sequence[Document], places: ImagePlaces, images: ImageExtractor, sentences: SentenceExtractor | None
) -> Iterator[VectorDocument]:
    """Yield documents with their vectors, as the shards would hold them (float16); each picture is looked at once."""
    hashes = sorted({image.hash for document in documents for image in document.images})
    matrix = images.extract([places.store.read(content_hash) for content_hash in hashes]).astype(np.float16)
    rows = {content_hash: row for row, content_hash in enumerate(hashes)}
    for document in documents:
        chosen = matrix[[rows[image.hash] for image in document.images]]
        texts = [sentence.text for sentence in document.sentences]
        read = None if sentences is None else sentences.extract(texts).astype(np.float16)
        yield VectorDocument(document, read, chosen)
