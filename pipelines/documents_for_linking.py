"""The stages up to features without Beam, for documents that are linked or searched for, not kept: one process.

The same plain functions as in the pipeline, so the same bytes give the same vectors; a test holds the two paths equal.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from pipelines.documents.rules import SettledDocument, check_candidate, settle, without_images
from pipelines.features.extraction import FeaturePlan, FeatureRefs, Features, missing_feature
from pipelines.features.values import DOCUMENTS, IMAGES, Rejected
from pipelines.images.inspect import copy_packs
from pipelines.images.obtain import ImageAccess, obtain_images
from pipelines.ledger import texts_key
from pipelines.packs import PackFolder
from pipelines.recipe import BuildConfig
from pipelines.settings import DocumentsConfig
from pipelines.sources.records import CandidateDocument
from schemas.documents import Document
from schemas.failures import Failure, Stage
from schemas.features import RegionArrays, column_to_regions, column_to_vectors, several
from schemas.lake import Folder, Lake

DOCUMENTS_AT_ONCE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """What a model reads.

    Attributes:
        plan: the columns that are extracted.
        vectors: name of its column of image vectors, several as `A+B`, or None.
        regions: name of its column of regions, or None.
        pictures: whether it reads the pictures themselves.
    """

    plan: FeaturePlan
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
    records: Iterable[CandidateDocument | Failure],
    config: BuildConfig,
    *,
    files: str,
    scratch: Folder,
    extraction: Extraction,
) -> Iterator[VectorDocument | Failure]:
    """Yield documents with their features, and a failure row for all that has none.

    Args:
        records: of a user's file (`pipelines.sources.datasets.documents`), or made of what somebody typed.
        config: which documents and images are accepted, and how images are fetched.
        files: folder, tar or zip that image paths are relative to.
        scratch: folder for fetched bytes and small copies.
        extraction: what is extracted.
    """
    access = ImageAccess(
        http=config.http,
        raw=scratch.child("raw"),
        copies=copy_packs(Lake(scratch), config.images, config.dedupe.fingerprint),
        files=files,
        config=config.images,
        fingerprint=config.dedupe.fingerprint,
    )
    found = documents_of(records, config.documents, access)
    while batch := list(islice(found, DOCUMENTS_AT_ONCE)):
        yield from (item for item in batch if isinstance(item, Failure))
        documents = [item for item in batch if isinstance(item, SettledDocument)]
        if documents:
            yield from add_vectors(documents, config.documents, access.copies, extraction)


def documents_of(
    records: Iterable[CandidateDocument | Failure], config: DocumentsConfig, access: ImageAccess
) -> Iterator[SettledDocument | Failure]:
    """Yield the document of every record that can become one, and a failure row for all others; ids differ."""
    remaining = iter(records)
    while batch := list(islice(remaining, DOCUMENTS_AT_ONCE)):
        candidates: list[CandidateDocument] = []
        for record in batch:
            checked = record if isinstance(record, Failure) else check_candidate(record, config=config)
            if isinstance(checked, CandidateDocument):
                candidates.append(checked)
            else:
                yield checked
        outcomes = dict(obtain_images(sorted({image.uri for each in candidates for image in each.images}), access))
        for candidate in candidates:
            yield from settle(candidate, outcomes, config)


def add_vectors(
    documents: Sequence[SettledDocument], config: DocumentsConfig, copies: PackFolder, extraction: Extraction
) -> Iterator[VectorDocument | Failure]:
    """Yield documents with their features, as shards hold them; each picture is read once.

    A document loses the images that an extractor rejects, a failure row each; left with too few, it is one itself.
    """
    plan = extraction.plan
    known = {found.image.hash: found for document in documents for found in document.images if found.copy}
    refs = {key: found.copy for key, found in known.items() if found.copy}
    jpegs = dict(zip(refs, copies.read([*refs.values()], ["jpeg"])["jpeg"].to_pylist(), strict=True))
    found = _filled(plan, IMAGES, jpegs, [known[key].image.source or key for key in jpegs])
    rejected = {key: missing_feature(key, value) for key, value in found.items() if isinstance(value, Rejected)}
    texts = [[sentence.text for sentence in each.document.sentences] for each in documents]
    keys = [texts_key(of_document) for of_document in texts]
    read = _filled(plan, DOCUMENTS, dict(zip(keys, texts, strict=True)))
    for settled, key in zip(documents, keys, strict=True):
        sentences = read[key]
        for kept in without_images(settled, rejected, config, stage=Stage.FEATURES):
            if isinstance(kept, Failure):
                yield kept
            elif isinstance(sentences, Rejected):
                yield missing_feature(kept.document.id, sentences)
            else:
                shown = [image.hash for image in kept.document.images]
                images = [cast(FeatureRefs, found[content_hash]) for content_hash in shown]
                pictures = tuple(jpegs[content_hash] for content_hash in shown)
                yield _with_values(kept.document, images, sentences, extraction, pictures)


def _filled(
    plan: FeaturePlan, table: str, items: Mapping[str, Any], names: Sequence[str] = ()
) -> dict[str, FeatureRefs | Rejected]:
    """Return where the values of each item are, by its key; see `Features.fill`."""
    features, values = Features(plan, table), list(items.values())
    found = dict(zip(items, features.fill([*items], lambda numbers: [values[n] for n in numbers], names), strict=True))
    features.close()
    return found


def _with_values(
    document: Document,
    images: Sequence[FeatureRefs],
    sentences: FeatureRefs,
    extraction: Extraction,
    pictures: tuple[bytes, ...],
) -> VectorDocument:
    """Return a document with its values, read from columns as those of shards are."""
    columns = extraction.plan.arrays(IMAGES, images)
    of_sentences = extraction.plan.arrays(DOCUMENTS, [sentences])
    texts = [of_sentences[f"features.{name}"].flatten() for name in extraction.plan.config.sentences]
    vectors = [columns[f"features.{name}"] for name in several(extraction.vectors)]
    regions = columns.get(f"regions.{extraction.regions}")
    nothing = np.zeros((len(images), 0), np.float16)
    return VectorDocument(
        document,
        np.concatenate([*map(_float16, texts)], axis=1) if texts else None,
        np.concatenate([nothing, *map(_float16, vectors)], axis=1),
        None if regions is None else column_to_regions(regions),
        pictures if extraction.pictures else None,
    )


def _float16(column: Any) -> npt.NDArray[np.float16]:
    return column_to_vectors(column).astype(np.float16)
