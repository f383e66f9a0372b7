"""Raw documents and queries as a model reads them: the stages up to features without Beam, in one process.

Documents that are linked or searched for are not kept. The functions are those of the pipeline, so the same bytes give
the same vectors; a test holds the two paths equal.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from newsroom.search.queries import RawDocument, read_words
from pipelines.config import recipe
from pipelines.documents.rules import SettledDocument, check_candidate, settle, without_images
from pipelines.features.extraction import FeaturePlan, FeatureRefs, Features, missing_feature, plan_features
from pipelines.features.values import DOCUMENTS, IMAGES, Rejected
from pipelines.images.inspect import copy_packs
from pipelines.images.obtain import ImageAccess, obtain_images
from pipelines.ledger import texts_key
from pipelines.packs import PackFolder
from pipelines.recipe import BuildConfig
from pipelines.settings import DocumentsConfig
from pipelines.sources.records import CandidateDocument, CandidateImage, sentence
from schemas.documents import Document, Provenance, Role
from schemas.failures import Failure, Stage
from schemas.features import column_to_regions, column_to_vectors, several
from schemas.lake import Folder, Lake
from schemas.messages import ConfigError, UsageError
from schemas.overrides import override
from training.data.documents import GivenDocument
from training.data.lake import region_bank
from training.model import LinkModel, ModelCard

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


def read_vectors(
    records: Iterable[CandidateDocument | Failure],
    config: BuildConfig,
    *,
    files: str,
    scratch: Folder,
    extraction: Extraction,
) -> Iterator[GivenDocument | Failure]:
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
) -> Iterator[GivenDocument | Failure]:
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
) -> GivenDocument:
    """Return a document with its values, read from columns as those of shards are."""
    columns = extraction.plan.arrays(IMAGES, images)
    of_sentences = extraction.plan.arrays(DOCUMENTS, [sentences])
    texts = [of_sentences[f"features.{name}"].flatten() for name in extraction.plan.config.sentences]
    vectors = [columns[f"features.{name}"] for name in several(extraction.vectors)]
    regions = columns.get(f"regions.{extraction.regions}")
    nothing = np.zeros((len(images), 0), np.float16)
    return GivenDocument(
        id=document.id,
        texts=[sentence.text for sentence in document.sentences],
        image_vectors=np.concatenate([nothing, *map(_float16, vectors)], axis=1),
        sentence_vectors=np.concatenate([*map(_float16, texts)], axis=1) if texts else None,
        roles=[sentence.role for sentence in document.sentences],
        language=document.language,
        regions=None if regions is None else region_bank(column_to_regions(regions)),
        jpegs=pictures if extraction.pictures else None,
        sources=[image.source or image.hash for image in document.images],
        sentence_numbers=document.sentence_numbers,
        image_numbers=document.image_numbers,
        after_sentence=document.after_sentence,
    )


def _float16(column: Any) -> npt.NDArray[np.float16]:
    return column_to_vectors(column).astype(np.float16)


class DocumentReader:
    """Reads raw documents for one model.

    Args:
        card: what the model was trained on.
        config: which documents and images are accepted, how images are fetched, where weights are.
        scratch: folder for fetched bytes, small copies and values.
        with_pictures: whether documents carry their pictures where the model reads none: they are drawn.

    Raises:
        UsageError: the model reads features that cannot be made from raw documents here.
    """

    def __init__(self, card: ModelCard, config: BuildConfig, scratch: Folder, *, with_pictures: bool = False) -> None:
        data = card.data
        images, texts = several(data.image_features), several(data.sentence_features)
        images += several(data.region_features)
        features = replace(config.features, images=images, sentences=texts)
        try:
            plan = plan_features(features, config.images, config.http, given=None, lake=Lake(scratch), workers=1)
        except ConfigError as problem:
            raise UsageError(
                f"the model reads features that cannot be made from raw documents here: {problem}"
            ) from problem
        self._config, self._scratch = config, scratch
        self._extraction = Extraction(
            plan=plan,
            vectors=data.image_features,
            regions=data.region_features,
            pictures=card.config.needs.jpegs or with_pictures,
        )

    def read(self, records: Iterable[CandidateDocument | Failure], *, files: str) -> Iterator[GivenDocument | Failure]:
        """Give what can be linked, and a failure for all else; paths of images are relative to `files`."""
        return read_vectors(records, self._config, files=files, scratch=self._scratch, extraction=self._extraction)


class PipelineReader:
    """A `newsroom.search.queries.Reader`: the pipeline's own extractors, as for `link --input`, or words as they are.

    An extractor is loaded when something first needs it; a call raises a `UsageError` where the model reads features
    that cannot be made from raw documents here.

    Files that the steps keep are removed after each call, so that a service does not grow with every query. Calls
    therefore wait for one another.

    Args:
        model: that reads.
        settings: `KEY=VALUE` settings of extractors.
        scratch: folder of these files.
    """

    def __init__(self, model: LinkModel, settings: Sequence[str], scratch: Folder) -> None:
        config = override(recipe("documents"), settings)
        self._config = replace(config, documents=replace(config.documents, min_sentences=0, min_images=0))
        self._card = model.card
        self._scratch = scratch
        self._readers: dict[bool, DocumentReader] = {}
        self._reading = threading.Lock()

    def __call__(self, documents: Sequence[RawDocument]) -> list[GivenDocument]:
        if self._card.data.sentence_features is None and all(each.picture is None for each in documents):
            return list(read_words(documents))
        with self._reading:
            try:
                return [given for run in _runs(documents) for given in self._read(run)]
            finally:
                for kept in (Lake(self._scratch).features, Lake(self._scratch).images):
                    kept.remove()

    def _read(self, documents: Sequence[RawDocument]) -> list[GivenDocument]:
        """Return documents without a picture, or one document with a picture."""
        picture = documents[0].picture
        is_local = picture is not None and "://" not in picture
        folder = Path(picture or "").absolute().parent if is_local else Path.cwd()
        candidates = (
            CandidateDocument(
                id=f"{number:06d}",
                dataset="queries",
                sentences=tuple(sentence(text, Role(role)) for role, text in each.texts),
                images=() if picture is None else (CandidateImage(Path(picture).name if is_local else picture),),
                links=None,
                provenance=Provenance("queries", str(number)),
                language=each.language,
            )
            for number, each in enumerate(documents)
        )
        given = []
        for found in self._reader(picture is not None).read(candidates, files=str(folder)):
            if isinstance(found, Failure):
                where = "" if picture is None else f"{picture}: "
                raise UsageError(f"{where}{found.reason}: {found.message}")
            given.append(found)
        return sorted(given, key=lambda each: each.id)

    def _reader(self, has_pictures: bool) -> DocumentReader:
        """Return the reader of texts with pictures, or of texts alone, which needs no extractor of images."""
        if has_pictures not in self._readers:
            data = self._card.data
            if not has_pictures:
                data = replace(data, image_features=None, region_features=None)
            self._readers[has_pictures] = DocumentReader(replace(self._card, data=data), self._config, self._scratch)
        return self._readers[has_pictures]


def _runs(documents: Sequence[RawDocument]) -> Iterator[Sequence[RawDocument]]:
    """Yield the documents without a picture that follow one another, and each with a picture by itself."""
    for _, run in groupby(enumerate(documents), lambda each: None if each[1].picture is None else each[0]):
        yield [each for _, each in run]
