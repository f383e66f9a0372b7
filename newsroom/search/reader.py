"""Raw documents and queries as a model reads them, by the pipeline's own steps: equal bytes give equal vectors."""

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from newsroom.search.queries import RawDocument, read_words
from pipelines.config import recipe
from pipelines.documents_for_linking import Extraction, VectorDocument, read_vectors
from pipelines.features.extraction import plan_features
from pipelines.recipe import BuildConfig
from pipelines.sources.records import CandidateDocument, CandidateImage, sentence
from schemas.documents import Provenance, Role
from schemas.errors import ConfigError, UsageError
from schemas.failures import Failure
from schemas.features import several
from schemas.lake import Folder, Lake
from schemas.overrides import override
from training.data.documents import GivenDocument
from training.data.lake import region_bank
from training.model import LinkModel, ModelCard


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
        """Yield what can be linked, and a failure for all else; paths of images are relative to `files`."""
        extraction, scratch = self._extraction, self._scratch
        for each in read_vectors(records, self._config, files=files, scratch=scratch, extraction=extraction):
            yield each if isinstance(each, Failure) else given_document(each)


def given_document(read: VectorDocument) -> GivenDocument:
    """Return a document with its features as training's models take it."""
    document = read.document
    return GivenDocument(
        id=document.id,
        texts=[sentence.text for sentence in document.sentences],
        image_vectors=read.image_vectors,
        sentence_vectors=read.sentence_vectors,
        roles=[sentence.role for sentence in document.sentences],
        language=document.language,
        regions=None if read.regions is None else region_bank(read.regions),
        jpegs=read.jpegs,
        sources=[image.source or image.hash for image in document.images],
        sentence_numbers=document.sentence_numbers,
        image_numbers=document.image_numbers,
        after_sentence=document.after_sentence,
    )


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
