"""Published retrieval results, for reports to print beside ours; tests and training never read them.

As for links (`published.py`), they were measured on the papers' own splits and features. Alikhani 2022 ranks 500
images for a text; Liu 2020 both directions over its test split, of which table 1 gives recall at 10 alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

TEXT_TO_IMAGE, IMAGE_TO_TEXT = "text to image", "image to text"
CAPTIONS = "Liu et al. 2020, table 1, captions"
FOUR_SOURCES = "Liu et al. 2020, table 2, four sources"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRetrieval:
    """One direction of one row of a paper's table, recall in percent; None where the paper does not give a number."""

    model: str
    source: str
    direction: str
    recall_at_10: float
    recall_at_1: float | None = None
    recall_at_5: float | None = None
    median_rank: float | None = None


def published_retrieval(dataset: str) -> tuple[PublishedRetrieval, ...]:
    """Return the published rows for a data set; none for other data."""
    return PUBLISHED_RETRIEVAL.get(dataset, ())


def published_source(dataset: str, role: str) -> tuple[PublishedRetrieval, ...]:
    """Return the published rows of a model that reads the texts of one role alone; none for other data or roles."""
    return PUBLISHED_SOURCES.get((dataset, role), ())


def _alikhani(model: str, table: int, *, median_rank: float, recall: tuple[float, float, float]) -> PublishedRetrieval:
    return PublishedRetrieval(
        model=model,
        source=f"Alikhani et al. 2022, table {table}, among 500",
        direction=TEXT_TO_IMAGE,
        recall_at_1=recall[0],
        recall_at_5=recall[1],
        recall_at_10=recall[2],
        median_rank=median_rank,
    )


def _liu(
    model: str, *, image_to_text: float, text_to_image: float, source: str = CAPTIONS
) -> tuple[PublishedRetrieval, ...]:
    recall = {TEXT_TO_IMAGE: text_to_image, IMAGE_TO_TEXT: image_to_text}
    return tuple(
        PublishedRetrieval(model=model, source=source, direction=direction, recall_at_10=value)
        for direction, value in recall.items()
    )


PUBLISHED_RETRIEVAL: Mapping[str, tuple[PublishedRetrieval, ...]] = {
    "cite": (
        _alikhani("CMCA", 4, median_rank=5.4, recall=(46.0, 50.1, 53.8)),
        _alikhani("CMCM", 4, median_rank=4.2, recall=(46.5, 51.4, 53.9)),
    ),
    "clue": (
        _alikhani("CMCA", 5, median_rank=19.3, recall=(13.2, 30.6, 40.0)),
        _alikhani("CMCM", 5, median_rank=18.7, recall=(13.8, 31.6, 40.6)),
    ),
    "news": (
        *_liu("VSE++", image_to_text=39.7, text_to_image=41.2),
        *_liu("VSE", image_to_text=42.4, text_to_image=42.0),
        *_liu("HAL", image_to_text=49.8, text_to_image=49.9),
        *_liu("full model", image_to_text=54.2, text_to_image=52.0),
        PublishedRetrieval(
            model="attention fuser",
            source=FOUR_SOURCES,
            direction=TEXT_TO_IMAGE,
            recall_at_1=18.2,
            recall_at_5=46.8,
            recall_at_10=62.7,
            median_rank=6.0,
        ),
        PublishedRetrieval(
            model="attention fuser",
            source=FOUR_SOURCES,
            direction=IMAGE_TO_TEXT,
            recall_at_1=24.3,
            recall_at_5=54.8,
            recall_at_10=70.6,
            median_rank=5.0,
        ),
    ),
}
SINGLE_SOURCE = "Liu et al. 2020, table 1, this source alone"
PUBLISHED_SOURCES: Mapping[tuple[str, str], tuple[PublishedRetrieval, ...]] = {
    ("news", "caption"): _liu("full model", image_to_text=54.2, text_to_image=52.0, source=SINGLE_SOURCE),
    ("news", "body"): _liu("full model", image_to_text=37.2, text_to_image=36.8, source=SINGLE_SOURCE),
    ("news", "headline"): _liu("full model", image_to_text=24.2, text_to_image=22.9, source=SINGLE_SOURCE),
    ("news", "lead"): _liu("full model", image_to_text=35.4, text_to_image=32.2, source=SINGLE_SOURCE),
}
