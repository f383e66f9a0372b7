"""The row of Hessel 2019's table 1 for a split, from the sizes of its documents."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from schemas.documents import Document
from schemas.manifest import SplitStatistics


@dataclass(frozen=True, slots=True)
class DocumentSize:
    """Sentences, images and links of one document (`links` is None where they are unknown)."""

    sentences: int
    images: int
    links: int | None


def size_of(document: Document) -> DocumentSize:
    links = None if document.links is None else len({(link.sentence, link.image) for link in document.links})
    return DocumentSize(len(document.sentences), len(document.images), links)


def summarise(sizes: Sequence[DocumentSize], image_hashes: Iterable[str]) -> SplitStatistics:
    """Return the statistics of a split; density is averaged over the documents whose links are known."""
    n = [size.sentences for size in sizes]
    m = [size.images for size in sizes]
    densities = [size.links / (size.sentences * size.images) for size in sizes if size.links is not None]
    return SplitStatistics(
        documents=len(sizes),
        images=sum(m),
        sentences=sum(n),
        unique_images=len(set(image_hashes)),
        median_sentences=statistics.median(n) if n else 0,
        median_images=statistics.median(m) if m else 0,
        mean_sentences=round(statistics.fmean(n), 6) if n else 0,
        mean_images=round(statistics.fmean(m), 6) if m else 0,
        max_sentences=max(n, default=0),
        max_images=max(m, default=0),
        links=sum(size.links or 0 for size in sizes),
        documents_with_known_links=len(densities),
        density=round(statistics.fmean(sorted(densities)), 6) if densities else None,
    )
