"""The stages up to features without Beam, for documents that are linked rather than kept: one process, in order.

The same plain functions as in the pipeline, so the same bytes give the same vectors; a test holds the two paths equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipelines.config import BuildConfig
from pipelines.documents.filters import check_candidate
from pipelines.documents.settle import SettledDocument, settle, without_images
from pipelines.features.catalogue import Extractor
from pipelines.features.columns import DOCUMENTS, IMAGES, value_array
from pipelines.features.extraction import checked_values
from pipelines.features.values import Rejected, Value
from pipelines.images.obtain import ImageAccess, obtain_images
from pipelines.images.packed import copy_packs
from pipelines.packs import PackFolder
from pipelines.recipes import recipe
from pipelines.settings import DocumentsConfig
from pipelines.sources.candidate import CandidateDocument
from pipelines.sources.jsonl import read_documents
from schemas.configs import override
from schemas.documents import Document
from schemas.failures import Failure, Reason, Stage
from schemas.feature_arrays import RegionArrays, column_to_regions, column_to_vectors
from schemas.lake import Folder, Lake

DOCUMENTS_AT_ONCE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """What a model reads.

    Attributes:
        images: the extractors of its columns of images.
        sentences: the extractor of its sentence vectors, if it reads any.
        vectors: name of its column of image vectors, or None.
        regions: name of its column of regions, or None.
        pictures: whether it reads the pictures themselves.
    """

    images: Sequence[Extractor] = ()
    sentences: Sequence[Extractor] = ()
    vectors: str | None = None
    regions: str | None = None
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
    """Yield the document of every record that can become one, the first of its id, and a failure row for all others."""
    candidates: list[CandidateDocument] = []
    seen: set[str] = set()
    for record in records:
        checked = record if isinstance(record, Failure) else next(check_candidate(record, config=config.documents))
        if isinstance(checked, CandidateDocument) and checked.id in seen:
            checked = Failure(Stage.DOCUMENTS, checked.id, Reason.DUPLICATE_RECORD, "another document has the same id")
        if isinstance(checked, Failure):
            yield checked
            continue
        seen.add(checked.id)
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
    found = checked_values(extraction.images, jpegs)
    values = {name: dict(zip(hashes, column, strict=True)) for name, column in found.items()}
    rejected = {
        content_hash: Failure(Stage.FEATURES, content_hash, Reason.FEATURE_MISSING, f"{name}: {value.message}")
        for name, of_column in reversed(values.items())
        for content_hash, value in of_column.items()
        if isinstance(value, Rejected)
    }
    for document in documents:
        for kept in without_images(document, rejected, config, stage=Stage.DOCUMENTS):
            if isinstance(kept, Failure):
                yield kept
                continue
            with_values = _with_features(kept.document, values, extraction)
            shown = tuple(pictures[image.hash] for image in kept.document.images)
            yield replace(with_values, jpegs=shown) if extraction.pictures else with_values


def _with_features(
    document: Document, values: Mapping[str, Mapping[str, Value | Rejected]], extraction: Extraction
) -> VectorDocument:
    """Return a document with its values, made into columns and read from them as those of shards are."""
    hashes = [image.hash for image in document.images]
    columns = {
        column.name: value_array([values[column.name][key] for key in hashes], column, IMAGES)
        for extractor in extraction.images
        for column in extractor.columns
    }
    read = None
    for extractor in extraction.sentences:
        found = checked_values([extractor], [[sentence.text for sentence in document.sentences]])
        [column] = extractor.columns
        read = column_to_vectors(value_array(found[column.name], column, DOCUMENTS).flatten()).astype(np.float16)
    vectors = columns.get(extraction.vectors or "")
    regions = columns.get(extraction.regions or "")
    return VectorDocument(
        document,
        read,
        np.zeros((len(hashes), 0), np.float16) if vectors is None else column_to_vectors(vectors).astype(np.float16),
        None if regions is None else column_to_regions(regions),
    )
