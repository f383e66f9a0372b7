"""What a model reads of raw documents: the pipeline's own steps extract it, so the same bytes give the same vectors."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from pipelines.documents_for_linking import Extraction, VectorDocument, read_vectors
from pipelines.features.extraction import plan_features
from pipelines.recipe import BuildConfig
from pipelines.sources.records import CandidateDocument
from schemas.errors import ConfigError, UsageError
from schemas.failures import Failure
from schemas.features import several
from schemas.lake import Folder, Lake
from training.data.documents import GivenDocument
from training.data.lake import region_bank
from training.model import ModelCard


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
