"""What somebody typed or pointed at, as a model reads it: the pipeline's own extractors, as for `link --input`.

Both halves meet here as in `link.py`: `training.retrieval` asks for documents with features and does not know who makes
them.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from orchestration.inference.extraction import extraction_for, given_documents
from schemas.documents import Provenance, Role
from schemas.errors import UsageError
from schemas.failures import Failure
from schemas.lake import Folder, Lake

if TYPE_CHECKING:
    from pipelines.documents_for_linking import Extraction
    from training.data.documents import GivenDocument
    from training.data.ragged import Floats
    from training.model import LinkModel
    from training.retrieval.evaluate import Encode
    from training.retrieval.queries import RawDocument, Reader


@contextmanager
def query_reader(model: LinkModel, settings: Sequence[str] = ()) -> Iterator[Reader]:
    """Give what turns texts and pictures into what a model reads: the pipeline's own extractors, or words as they are.

    An extractor is loaded when something first needs it.

    Raises:
        UsageError: the model reads features that cannot be made from raw documents here.
    """
    with tempfile.TemporaryDirectory(prefix="multilink-search-") as scratch:
        yield _PipelineReader(model, list(settings), Folder(scratch))


class _PipelineReader:
    """A `training.retrieval.queries.Reader` of the pipeline's steps, the same as for `link --input`.

    What the steps keep for later is removed after each call: a service that answers for weeks must not grow by a file a
    query. One call at a time, therefore.
    """

    def __init__(self, model: LinkModel, settings: list[str], scratch: Folder) -> None:
        self._card = model.card
        self._settings = settings
        self._scratch = scratch
        self._extractions: dict[bool, Extraction] = {}
        self._reading = threading.Lock()

    def __call__(self, documents: Sequence[RawDocument]) -> list[GivenDocument]:
        from training.retrieval.queries import read_words

        if self._card.data.sentence_features is None and all(each.picture is None for each in documents):
            return list(read_words(documents))
        with self._reading:
            try:
                return [given for run in _runs(documents) for given in self._read(run)]
            finally:
                for kept in (Lake(self._scratch).features, Lake(self._scratch).images):
                    kept.remove()

    def _read(self, documents: Sequence[RawDocument]) -> list[GivenDocument]:
        """Return documents that all have, or all lack, a picture."""
        from pipelines.config import recipe
        from pipelines.documents_for_linking import read_vectors
        from pipelines.sources.records import CandidateDocument, sentence
        from schemas.configs import override

        pictures = [each.picture for each in documents if each.picture is not None]
        is_local = bool(pictures) and "://" not in pictures[0]
        folder = Path(pictures[0]).absolute().parent if is_local else Path.cwd()
        config = override(recipe("documents"), self._settings)
        config = replace(config, documents=replace(config.documents, min_sentences=0, min_images=0))
        candidates = (
            CandidateDocument(
                id=f"{number:06d}",
                dataset="queries",
                sentences=tuple(sentence(text, Role(role)) for role, text in each.texts),
                image_uris=() if each.picture is None else (Path(each.picture).name if is_local else each.picture,),
                links=None,
                provenance=Provenance("queries", str(number)),
                language=each.language,
            )
            for number, each in enumerate(documents)
        )
        failures: list[Failure] = []
        extraction = self._extraction(bool(pictures))
        found = read_vectors(candidates, config, files=str(folder), scratch=self._scratch, extraction=extraction)
        given = sorted(given_documents(found, failures), key=lambda each: each.id)
        if failures:
            where = f"{pictures[0]}: " if pictures else ""
            raise UsageError(f"{where}{failures[0].reason}: {failures[0].message}")
        return given

    def _extraction(self, has_pictures: bool) -> Extraction:
        """Return what is extracted; of texts alone, no extractor of images."""
        if has_pictures not in self._extractions:
            data = self._card.data
            if not has_pictures:
                data = replace(data, image_features=None, region_features=None)
            card = replace(self._card, data=data)
            self._extractions[has_pictures] = extraction_for(card, self._settings, self._scratch)
        return self._extractions[has_pictures]


def _runs(documents: Sequence[RawDocument]) -> Iterator[Sequence[RawDocument]]:
    """Yield the documents without a picture that follow one another, and each with a picture by itself."""
    start = 0
    for number, each in enumerate(documents):
        if each.picture is not None:
            if start < number:
                yield documents[start:number]
            yield documents[number : number + 1]
            start = number + 1
    if start < len(documents):
        yield documents[start:]


def sentence_encoder() -> Encode:
    """Return the pipeline's multilingual sentence encoder: N texts -> N x t unit vectors, float32."""
    from pipelines.features.catalogue import extractors
    from pipelines.features.values import DOCUMENTS
    from pipelines.settings import FeaturesConfig, HttpConfig

    config = FeaturesConfig()
    (encoder,) = extractors(config.sentences[:1], DOCUMENTS, config, HttpConfig())

    def encode(texts: Sequence[str]) -> Floats:
        ((vectors,),) = encoder.extract([list(texts)])
        return np.asarray(vectors, np.float32)

    return encode
