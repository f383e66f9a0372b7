"""The row of Hessel 2019's table 1 for a split, from the sizes of its documents."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import NamedTuple

from schemas.documents import Document
from schemas.manifest import SplitStatistics


class DocumentSize(NamedTuple):
    """Sentences, images and links of one document (`links` is None where they are unknown)."""

    sentences: int
    images: int
    links: int | None


def size_of(document: Document) -> DocumentSize:
    links = None if document.links is None else len({(link.sentence, link.image) for link in document.links})
    return DocumentSize(len(document.sentences), len(document.images), links)


def summarise(sizes: Mapping[DocumentSize, int], unique_images: int) -> SplitStatistics:
    """Return the statistics of a split; density is averaged over the documents whose links are known.

    Args:
        sizes: how many documents have each size.
        unique_images: how many different images they show.
    """
    every = [size for size, documents in sizes.items() for _ in range(documents)]
    n, m = [size.sentences for size in every], [size.images for size in every]
    links = [size.links for size in every if size.links is not None]
    densities = [size.links / (size.sentences * size.images) for size in every if size.links is not None]
    return SplitStatistics(
        documents=len(every),
        images=sum(m),
        sentences=sum(n),
        unique_images=unique_images,
        median_sentences=statistics.median(n or [0]),
        median_images=statistics.median(m or [0]),
        mean_sentences=round(statistics.fmean(n or [0]), 6),
        mean_images=round(statistics.fmean(m or [0]), 6),
        max_sentences=max(n, default=0),
        max_images=max(m, default=0),
        links=sum(links),
        documents_with_known_links=len(densities),
        density=round(statistics.fmean(densities), 6) if densities else None,  # summed exactly: in any order
    )
