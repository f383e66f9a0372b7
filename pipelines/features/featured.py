"""Documents that know where the values of their images and sentences are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pipelines.documents.settle import SettledDocument, without_images
from pipelines.images.packed import PackedImage
from pipelines.packs import PackRef
from pipelines.settings import DocumentsConfig
from schemas.documents import Document
from schemas.failures import Failure, Stage
from schemas.tables import travels

FeatureRefs = tuple[PackRef, ...]  # one for each computed column, in the order of the plan


@travels
@dataclass(frozen=True, slots=True)
class FeaturedImage:
    packed: PackedImage
    features: FeatureRefs = ()


@travels
@dataclass(frozen=True, slots=True)
class FeaturedDocument:
    """A document with its images in the order of `document.images`, and where its sentences' vectors are."""

    document: Document
    images: tuple[FeaturedImage, ...]
    sentences: FeatureRefs = ()


def add_features(
    settled: SettledDocument, outcomes: Mapping[str, FeaturedImage | Failure], config: DocumentsConfig
) -> Iterator[FeaturedDocument | Failure]:
    """Yield a failure row for each image that an extractor rejected, then the document of the others, if it stays."""
    rejected = {key: found for key, found in outcomes.items() if isinstance(found, Failure)}
    for kept in without_images(settled, rejected, config, stage=Stage.FEATURES):
        if isinstance(kept, Failure):
            yield kept
        else:
            images = (outcomes[image.hash] for image in kept.document.images)
            yield FeaturedDocument(kept.document, tuple(each for each in images if isinstance(each, FeaturedImage)))
