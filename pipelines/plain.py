"""The stages up to features without Beam, for documents that are linked rather than kept: one process, in order.

The same plain functions as in the pipeline, so the same bytes give the same vectors; a test holds the two paths equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipelines.config import BuildConfig
from pipelines.documents.draft import Draft
from pipelines.documents.filters import reject_document, reject_draft
from pipelines.documents.resolve import resolve
from pipelines.features.extractors import ImageExtractor, SentenceExtractor
from pipelines.http.fan_out import map_concurrently
from pipelines.images.obtain import ImagePlaces, obtain_image
from pipelines.images.store import ImageStore
from pipelines.recipes import recipe
from pipelines.sources.jsonl import read_documents
from schemas.configs import override
from schemas.documents import Document
from schemas.failures import Failure
from schemas.images import Image
from schemas.lake import Folder

DOCUMENTS_AT_ONCE = 64


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


def read_vectors(
    path: Path, settings: Sequence[str], scratch: Folder, images: ImageExtractor, sentences: SentenceExtractor | None
) -> Iterator[VectorDocument | Failure]:
    """Yield the documents of a user's JSON Lines file with their vectors, and a failure row for all that has none.

    Args:
        settings: overrides of the `documents` recipe (`http.*`, `images.*`).
        scratch: folder for fetched bytes and small copies.
    """
    config = override(recipe("documents"), [f"source.documents={path}", *settings])
    places = ImagePlaces(
        http=config.http,
        raw=scratch.child("raw"),
        store=ImageStore(scratch.child("images")),
        files=str(path.absolute().parent),
    )
    found = documents_of(read_documents(path), config, places)
    while batch := list(islice(found, DOCUMENTS_AT_ONCE)):
        yield from (item for item in batch if isinstance(item, Failure))
        documents = [item for item in batch if isinstance(item, Document)]
        if documents:
            yield from add_vectors(documents, places, images, sentences)


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
        if len(drafts) == DOCUMENTS_AT_ONCE:
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
        missing = len(resolved.failures)
        yield reject_document(resolved.document, config.documents, missing=missing) or resolved.document


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
