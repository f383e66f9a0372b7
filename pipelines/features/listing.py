"""The extractors a user can choose from, and what each still needs: what `multilink features list` prints."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from pipelines.features.extractors import (
    IMAGE_EXTRACTORS,
    PACKAGED,
    SENTENCE_EXTRACTORS,
    Entry,
    Extractor,
    ImageExtractor,
    SentenceExtractor,
    own_networks,
)
from pipelines.features.plan import make_image_extractor, make_sentence_extractor
from pipelines.features.weights import parse_weights
from pipelines.settings import FeaturesConfig
from schemas.errors import MultilinkError

AVAILABLE = "available"
OWN = "your own"
IMAGES, SENTENCES = "features.images", "features.sentences"
SENTENCE_KIND = "sentence vector"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedExtractor:
    """An extractor as a user sees it.

    Attributes:
        name: of its column.
        setting: that it is named in: `features.images` or `features.sentences`.
        kind: what it gives for an image, or `sentence vector`.
        dimensions: of a vector, or of a region's vector; 0 where there is none, or where it is not known yet.
        weights: where its weights come from.
        licence: of packaged weights.
        state: `available`, or what is missing.
    """

    name: str
    setting: str
    kind: str
    dimensions: int
    weights: str
    licence: str
    state: str

    def to_json(self) -> dict[str, Any]:
        """Return the machine-readable row."""
        return asdict(self)


def listed_extractors(config: FeaturesConfig) -> list[ListedExtractor]:
    """Return every extractor known by name, and the networks of the user's own among the configured weights.

    Raises:
        ConfigError: the weights of the configuration are not `NAME=URI`.
    """
    given = parse_weights(config.weights)
    compute = config.compute(workers=1)
    image = partial(make_image_extractor, config=config, compute=compute)
    sentence = partial(make_sentence_extractor, config=config, compute=compute)
    return [
        *_known(IMAGES, IMAGE_EXTRACTORS, image, given),
        *_known(SENTENCES, SENTENCE_EXTRACTORS, sentence, given),
        *(_own(name, image, sentence) for name in own_networks(given)),
    ]


def listing(rows: list[ListedExtractor]) -> list[str]:
    """Return the rows as aligned lines."""
    lines = [f"{'name':27}{'kind':17}{'dimensions':>10}  {'weights':24}state"]
    return [
        *lines,
        *(
            f"{row.name:27}{row.kind:17}{row.dimensions or '-':>10}  {row.weights:24}{row.state}"
            + (f" ({row.licence})" if row.licence else "")
            for row in rows
        ),
    ]


def _known(
    setting: str, entries: Mapping[str, Entry], make: Callable[[str], Extractor], given: Collection[str]
) -> Iterator[ListedExtractor]:
    for name, entry in entries.items():
        yield ListedExtractor(
            name=name,
            setting=setting,
            kind=str(entry.kind) if setting == IMAGES else SENTENCE_KIND,
            dimensions=entry.dimensions,
            weights=entry.weights,
            licence=entry.licence,
            state=_state(name, make) if entry.weights in {PACKAGED, *given} else f"needs {_option(entry.weights)}",
        )


def _own(
    name: str, image: Callable[[str], ImageExtractor], sentence: Callable[[str], SentenceExtractor]
) -> ListedExtractor:
    """Return the row of a user's own network, which is of images or of sentences."""
    row = partial(ListedExtractor, name=name, weights=OWN, licence="")
    try:
        picture = image(name)
        return row(setting=IMAGES, kind=str(picture.kind), dimensions=picture.dimensions, state=AVAILABLE)
    except (MultilinkError, ImportError) as problem:
        why = str(problem)
    try:
        text = sentence(name)
        return row(setting=SENTENCES, kind=SENTENCE_KIND, dimensions=text.dimensions, state=AVAILABLE)
    except (MultilinkError, ImportError):
        return row(setting=IMAGES, kind="-", dimensions=0, state=why)


def _option(weights: str) -> str:
    return f"--set features.weights={weights}=FILE"


def _state(name: str, make: Callable[[str], Extractor]) -> str:
    try:
        make(name)
    except (MultilinkError, ImportError) as problem:
        return str(problem)
    return AVAILABLE
