"""What a model reads of raw documents: the pipeline's own steps extract it, so the same bytes give the same vectors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from schemas.errors import ConfigError, UsageError
from schemas.failures import Failure
from schemas.lake import Folder, Lake

if TYPE_CHECKING:
    from pipelines.documents_for_linking import Extraction, VectorDocument
    from training.data.documents import GivenDocument
    from training.model import ModelCard


def extraction_for(card: ModelCard, settings: list[str], scratch: Folder, *, is_drawn: bool = False) -> Extraction:
    """Return what a model was trained on, with the weights and limits of the settings; values are kept in `scratch`.

    Where the links are drawn, the pictures are wanted, too.
    """
    from pipelines.config import recipe
    from pipelines.documents_for_linking import Extraction
    from pipelines.features.extraction import plan_features
    from schemas.configs import override

    data, config = card.data, override(recipe("documents"), settings)
    images = tuple(name for name in (data.image_features, data.region_features) if name)
    texts = (data.sentence_features,) if data.sentence_features else ()
    try:
        features = replace(config.features, images=images, sentences=texts)
        plan = plan_features(features, config.images, config.http, given=None, lake=Lake(scratch), workers=1)
        return Extraction(
            plan=plan,
            vectors=data.image_features,
            regions=data.region_features,
            pictures=card.config.needs.jpegs or is_drawn,
        )
    except ConfigError as problem:
        raise UsageError(
            f"the model reads features that cannot be made from raw documents here: {problem}"
        ) from problem


def given_documents(found: Iterable[VectorDocument | Failure], failures: list[Failure]) -> Iterator[GivenDocument]:
    """Yield what can be linked; what cannot goes to `failures`."""
    from training.data.documents import GivenDocument
    from training.data.lake import region_bank

    for item in found:
        if isinstance(item, Failure):
            failures.append(item)
            continue
        yield GivenDocument(
            id=item.document.id,
            texts=[sentence.text for sentence in item.document.sentences],
            image_vectors=item.image_vectors,
            sentence_vectors=item.sentence_vectors,
            roles=[sentence.role for sentence in item.document.sentences],
            language=item.document.language,
            regions=None if item.regions is None else region_bank(item.regions),
            jpegs=item.jpegs,
            sources=[image.source or image.hash for image in item.document.images],
        )
