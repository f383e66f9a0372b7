"""The stages up to features without Beam, for documents that are linked rather than kept: one process, in order.

The same plain functions as in the pipeline, so the same bytes give the same vectors; a test holds the two paths equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt

from pipelines.config import BuildConfig
from pipelines.documents.filters import check_candidate
from pipelines.documents.settle import SettledDocument, settle, without_images
from pipelines.features.columns import region_arrays
from pipelines.features.extractors import ImageExtractor, SentenceExtractor
from pipelines.features.missing import feature_failure, problem_of
from pipelines.features.values import ImageValue, Regions, Rejected, Vector
from pipelines.images.obtain import ImageAccess, obtain_images
from pipelines.images.packed import copy_packs
from pipelines.packs import PackFolder
from pipelines.recipes import recipe
from pipelines.settings import DocumentsConfig
from pipelines.sources.candidate import CandidateDocument
from pipelines.sources.jsonl import read_documents
from schemas.configs import override
from schemas.documents import Document
from schemas.failures import Failure, Stage
from schemas.feature_arrays import RegionArrays
from schemas.features import FeatureColumn
from schemas.lake import Folder, Lake

DOCUMENTS_AT_ONCE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """The extractors of what a model reads (None where it reads nothing of the kind), and whether it reads pictures."""

    images: ImageExtractor | None
    sentences: SentenceExtractor | None
    regions: ImageExtractor | None = None
    pictures: bool = False


@dataclass(frozen=True, slots=True)
class VectorDocument:
    """A document with what a model reads of it.

    Attributes:
        sentence_vectors: n x t, float16, or None where no sentence extractor was given.
        image_vectors: m x v, float16; m x 0 where no extractor of image vectors was given.
        regions: of the m images, or None where no extractor of regions was given.
        jpegs: m stored pictures, or None where they were not asked for.
    """

    document: Document
    sentence_vectors: npt.NDArray[np.float16] | None
    image_vectors: npt.NDArray[np.float16]
    regions: RegionArrays | None = None
    jpegs: tuple[bytes, ...] | None = None


def read_vectors(
    path: Path, settings: Sequence[str], scratch: Folder, extraction: Extraction
) -> Iterator[VectorDocument | Failure]:
    """Yield the documents of a user's JSON Lines file with their features, and a failure row for all that has none.

    Args:
        path: of the file.
        settings: overrides of the `documents` recipe (`http.*`, `images.*`).
        scratch: folder for fetched bytes and small copies.
        extraction: what is extracted.
    """
    config = override(recipe("documents"), [f"source.documents={path}", *settings])
    access = ImageAccess(
        http=config.http,
        raw=scratch.child("raw"),
        copies=copy_packs(Lake(scratch), config.images, config.dedupe.fingerprint),
        files=str(path.absolute().parent),
        config=config.images,
        fingerprint=config.dedupe.fingerprint,
    )
    found = documents_of(read_documents(path), config, access)
    while batch := list(islice(found, DOCUMENTS_AT_ONCE)):
        yield from (item for item in batch if isinstance(item, Failure))
        documents = [item for item in batch if isinstance(item, SettledDocument)]
        if documents:
            yield from add_vectors(documents, config.documents, access.copies, extraction)


def documents_of(
    records: Iterable[CandidateDocument | Failure], config: BuildConfig, access: ImageAccess
) -> Iterator[SettledDocument | Failure]:
    """Yield the document of every record that can become one, and a failure row for all that cannot."""
    candidates: list[CandidateDocument] = []
    for record in records:
        checked = record if isinstance(record, Failure) else next(check_candidate(record, config=config.documents))
        if isinstance(checked, Failure):
            yield checked
            continue
        candidates.append(checked)
        if len(candidates) == DOCUMENTS_AT_ONCE:
            yield from _settled(candidates, config, access)
            candidates = []
    yield from _settled(candidates, config, access)


def _settled(
    candidates: Sequence[CandidateDocument], config: BuildConfig, access: ImageAccess
) -> Iterator[SettledDocument | Failure]:
    outcomes = dict(obtain_images(sorted({uri for each in candidates for uri in each.image_uris}), access))
    for candidate in candidates:
        yield from settle(candidate, outcomes, config.documents)


def add_vectors(
    documents: Sequence[SettledDocument], config: DocumentsConfig, copies: PackFolder, extraction: Extraction
) -> Iterator[VectorDocument | Failure]:
    """Yield documents with their features, as the shards would hold them (float16); each picture is looked at once.

    A document loses the images that an extractor rejects, a failure row each; left with too few, it is one itself.
    """
    refs = {found.image.hash: found.copy for document in documents for found in document.images if found.copy}
    hashes = sorted(refs)
    jpegs = copies.read([refs[content_hash] for content_hash in hashes], ["jpeg"])["jpeg"].to_pylist()
    pictures = dict(zip(hashes, jpegs, strict=True))
    vectors = _extracted(extraction.images, pictures)
    regions = _extracted(extraction.regions, pictures)
    rejected = {
        key: value for found in (regions, vectors) for key, value in found.items() if isinstance(value, Failure)
    }
    for document in documents:
        for kept in without_images(document, rejected, config, stage=Stage.DOCUMENTS):
            if isinstance(kept, Failure):
                yield kept
                continue
            found = _with_features(kept.document, vectors, regions, extraction)
            shown = tuple(pictures[image.hash] for image in kept.document.images)
            yield replace(found, jpegs=shown) if extraction.pictures else found


def _extracted(extractor: ImageExtractor | None, pictures: Mapping[str, bytes]) -> dict[str, ImageValue | Failure]:
    """Return the value of each picture that has one float16 can hold, and a failure for each other."""
    if extractor is None:
        return {}
    column = FeatureColumn(name=extractor.name, kind=extractor.kind, dimensions=extractor.dimensions)
    found: dict[str, ImageValue | Failure] = {}
    for content_hash, value in zip(pictures, extractor.extract(list(pictures.values())), strict=True):
        problem = problem_of(value, column)
        if problem is None and not isinstance(value, Rejected):
            found[content_hash] = value
        elif problem is not None:
            found[content_hash] = feature_failure(content_hash, f"{extractor.name}: {problem.message}")
    return found


def _with_features(
    document: Document,
    vectors: Mapping[str, ImageValue | Failure],
    regions: Mapping[str, ImageValue | Failure],
    extraction: Extraction,
) -> VectorDocument:
    hashes = [image.hash for image in document.images]
    size = extraction.images.dimensions if extraction.images else 0
    rows = [cast(Vector, vectors[key]).astype(np.float16) for key in hashes] if extraction.images else []
    matrix = np.stack(rows) if rows else np.zeros((len(hashes), size), np.float16)
    texts = [sentence.text for sentence in document.sentences]
    read = extraction.sentences.extract(texts).astype(np.float16) if extraction.sentences else None
    found = None
    if extraction.regions is not None:
        found = region_arrays([cast(Regions, regions[key]) for key in hashes], extraction.regions.dimensions)
    return VectorDocument(document, read, matrix, found)
