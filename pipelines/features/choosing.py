"""What a user weighs when choosing an extractor: its rate on this machine, and the size of what it gives.

What `multilink features bench` prints; how a rate is measured is in `bench.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from PIL import Image

from pipelines.features.bench import image_speed, sentence_speed
from pipelines.features.columns import values_to_column
from pipelines.features.extractors import (
    IMAGE_EXTRACTORS,
    SENTENCE_EXTRACTORS,
    Entry,
    ImageExtractor,
    SentenceExtractor,
)
from pipelines.features.plan import make_image_extractor, make_sentence_extractor
from pipelines.features.values import Rejected
from pipelines.images.copies import encode_jpeg
from pipelines.settings import FeaturesConfig
from schemas.errors import BuildError
from schemas.features import FeatureColumn

LEAST_PICTURES = 4
_WORDS = ("we", "cut", "sand", "glue", "paint", "two", "long", "panels", "of", "red", "oak", "with", "a", "saw")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """An extractor on this machine.

    Attributes:
        name: the extractor's.
        gives: kind and dimensions in words.
        per_s: images or sentences a second, from stored JPEGs or texts to values.
        bound_share: of the rate of the bare model on what was prepared beforehand, where that can be run.
        value_bytes: of one image's or sentence's value in a data set, before compression, on average.
        licence: of packaged weights; empty where the user brings them.
    """

    name: str
    gives: str
    per_s: float
    bound_share: float | None
    value_bytes: float
    licence: str

    def to_json(self) -> dict[str, Any]:
        """Return the machine-readable row."""
        return asdict(self)


def measured(name: str, config: FeaturesConfig, *, count: int) -> Measured:
    """Return what an extractor does with so many made-up pictures, or sentences.

    Raises:
        ConfigError: the extractor is not known, or its weights are not given.
        BuildError: it rejects the pictures.
    """
    compute = config.compute(workers=1)
    if name in SENTENCE_EXTRACTORS or name in config.sentences:
        return _of_sentences(make_sentence_extractor(name, config, compute), config, count)
    return _of_images(make_image_extractor(name, config, compute), config, max(count, LEAST_PICTURES))


def measurements(rows: Sequence[Measured]) -> list[str]:
    """Return the rows as aligned lines."""
    lines = [f"{'name':27}{'a second':>10}{'of bound':>10}{'bytes':>9}  {'gives':48}licence of the weights"]
    for row in rows:
        share = "-" if row.bound_share is None else f"{row.bound_share:.0%}"
        lines.append(
            f"{row.name:27}{row.per_s:>10.1f}{share:>10}{row.value_bytes:>9.0f}  {row.gives:48}{row.licence or '-'}"
        )
    return lines


def _of_images(extractor: ImageExtractor, config: FeaturesConfig, count: int) -> Measured:
    column = FeatureColumn(
        name=extractor.name, kind=extractor.kind, dimensions=extractor.dimensions, storage=config.storage
    )
    pictures = made_up_pictures(count)
    values = extractor.extract(pictures)
    rejected = next((value for value in values if isinstance(value, Rejected)), None)
    if rejected is not None:
        raise BuildError(f"extractor {extractor.name}: no value of a made-up picture: {rejected.message}")
    stored = values_to_column(values, column)
    speed = image_speed(extractor, pictures)
    return Measured(
        name=extractor.name,
        gives=column.describe(),
        per_s=speed.rate,
        bound_share=speed.share,
        value_bytes=stored.nbytes / len(pictures),
        licence=_licence(extractor.name, IMAGE_EXTRACTORS),
    )


def _of_sentences(extractor: SentenceExtractor, config: FeaturesConfig, count: int) -> Measured:
    column = FeatureColumn(name=extractor.name, dimensions=extractor.dimensions, storage=config.storage)
    texts = made_up_sentences(count)
    stored = values_to_column(list(extractor.extract(texts)), column)
    speed = sentence_speed(extractor, texts)
    return Measured(
        name=extractor.name,
        gives=f"{column.describe()} a sentence",
        per_s=speed.rate,
        bound_share=None,
        value_bytes=stored.nbytes / len(texts),
        licence=_licence(extractor.name, SENTENCE_EXTRACTORS),
    )


def _licence(name: str, entries: Mapping[str, Entry]) -> str:
    return entries[name].licence if name in entries else ""


def made_up_pictures(count: int) -> list[bytes]:
    """Return stored copies of smooth colours with noise, which decode as slowly as photographs."""
    random = np.random.default_rng(0)
    pictures = []
    for coarse in random.integers(0, 256, (count, 7, 9, 3), np.uint8):
        smooth = np.asarray(Image.fromarray(coarse).resize((384, 288), Image.Resampling.BICUBIC), np.float64)
        noisy = np.clip(smooth + random.normal(0, 12, smooth.shape), 0, 255).astype(np.uint8)
        pictures.append(encode_jpeg(Image.fromarray(noisy)))
    return pictures


def made_up_sentences(count: int) -> list[str]:
    """Return sentences of 3 to 24 words."""
    random = np.random.default_rng(0)
    return [" ".join(random.choice(_WORDS, random.integers(3, 25))) for _ in range(count)]
