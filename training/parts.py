"""Parts of a configuration that are chosen by name: their settings, what they need of the data, and what they make.

A tower or a term of an objective is one file with its settings, its code, and what it needs of the data. The rest asks
a configuration what it needs (`Needs`), and never what it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar

from schemas.configs import Probability, Settings
from schemas.errors import ConfigError
from schemas.plugins import IMAGE_TOWERS, OBJECTIVES, TEXT_TOWERS, Group, requirement

if TYPE_CHECKING:
    from torch import Tensor

    from training.config import TrainConfig
    from training.data.loading import TrainingData
    from training.data.ragged import Int64
    from training.data.sampling import Choice, Documents
    from training.objectives.batch import DrawKey, EncodedBatch, Solver
    from training.similarity.similarity import SetSimilarity
    from training.text.vocabulary import Vocabulary
    from training.towers.inputs import Sizes, Tower, Workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a part reads of a data set beside the documents' texts; several parts need what any of them does.

    Attributes:
        image_vectors: one vector an image.
        regions: detected regions of the images.
        labels: the regions' labels, through the word vectors of the text tower.
        jpegs: the pictures themselves.
        sentence_vectors: one vector a sentence.
        words: a vocabulary of the training split.
        languages: those that words are looked up in; () where the documents' languages are not read.
        sources: roles whose texts are fused to one row a document; () where each sentence is a row.
        relations: relations of links: `all`, or a name; empty: none.
        links: share of the training documents whose links are shown; 0: none.
        pairs: whether every document must be one text and one image.
    """

    image_vectors: bool = False
    regions: bool = False
    labels: bool = False
    jpegs: bool = False
    sentence_vectors: bool = False
    words: bool = False
    languages: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    relations: str = ""
    links: float = 0.0
    pairs: bool = False

    def __or__(self, other: Needs) -> Needs:
        """Return what two parts need together."""
        both = {each.name: getattr(self, each.name) or getattr(other, each.name) for each in fields(self)}
        return Needs(**both)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSettings(Settings):
    """Settings of a part that is chosen by its name.

    Attributes:
        group: of the parts of its kind.
        name: of the part.
    """

    group: ClassVar[Group]
    name: str = ""

    @property
    def needs(self) -> Needs:
        """Return what the part reads of a data set."""
        return Needs()

    @property
    def packages(self) -> tuple[str, ...]:
        """Return the names of the packages that its code needs beside the training core's."""
        return ()

    @property
    def plugin(self) -> str | None:
        """Return the package that brings the part, as a requirement; None for this project's own."""
        return requirement(self.group, self.name)

    def check(self, config: TrainConfig) -> None:
        """Raise a `ConfigError` where the part does not fit the rest of a configuration."""


def parts_in(settings: Settings) -> Iterator[PartSettings]:
    """Yield the parts that settings hold, each before those that it holds itself."""
    for each in fields(settings):
        value = getattr(settings, each.name)
        for inner in value if isinstance(value, tuple) else (value,):
            if isinstance(inner, PartSettings):
                yield inner
            if isinstance(inner, Settings):
                yield from parts_in(inner)


@dataclass(frozen=True, slots=True, kw_only=True)
class TowerSettings(PartSettings, ABC):
    """Settings that every tower has.

    Attributes:
        dropout: dropout probability (H: 0.4, on each tower's input).
    """

    dropout: Probability = 0.4

    @property
    def is_affine(self) -> bool:
        """Return whether the tower is an affine map of vectors, which can be set (`Tower.set_map`)."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTowerSettings(TowerSettings):
    """Settings that every text tower has."""

    group: ClassVar[Group] = TEXT_TOWERS
    part: ClassVar[str] = "text"

    @abstractmethod
    def build(self, sizes: Sizes, vocabulary: Vocabulary | None) -> Tower:
        """Return the tower with random weights.

        Raises:
            ConfigError: it reads what is not given, or its package is not installed.
        """

    def vocabulary(self, counts: Counter[str], labels: Collection[str]) -> Vocabulary:
        """Return the words that the tower knows; towers that need words have their own.

        Args:
            counts: of the words of the training split, in a language where the tower needs languages.
            labels: words of the labels of regions, which must be known.

        Raises:
            ConfigError: the tower has no vocabulary.
        """
        raise ConfigError(f"text.name = '{self.name}': it needs words, but defines no vocabulary")

    @property
    def words_from(self) -> str:
        """Return what its word vectors start from; empty where it reads no words."""
        return ""

    @property
    def trains_words(self) -> bool:
        """Return whether its word vectors are trained."""
        return True

    @property
    def shares_words(self) -> bool:
        """Return whether its word vectors can be read by the image tower, for the labels of regions."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageTowerSettings(TowerSettings):
    """Settings that every image tower has; unless it says otherwise, it reads one vector an image."""

    group: ClassVar[Group] = IMAGE_TOWERS
    part: ClassVar[str] = "image"

    @property
    def needs(self) -> Needs:
        """Return what the tower reads of a data set."""
        return Needs(image_vectors=True)

    @abstractmethod
    def build(self, sizes: Sizes, text: Tower) -> Tower:
        """Return the tower with random weights; it may share modules of the text tower.

        Raises:
            ConfigError: it reads what is not given, or its package is not installed.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Term(PartSettings, ABC):
    """Settings of a term of an objective, and its losses.

    Attributes:
        place: of its name in a sum, from the smallest; equal ones by the alphabet.
        spellings: other names of it, or of a sum with it.
        is_addition: whether the term is added to others, and is no objective alone.
        is_solved: whether maps are solved for, so that the last epoch is a good one without validation documents.
        drops_signs: whether models are trained with vectors that have lost their signs.
    """

    group: ClassVar[Group] = OBJECTIVES
    part: ClassVar[str] = "objective"
    place: ClassVar[int] = 100
    spellings: ClassVar[Mapping[str, str]] = {}
    is_addition: ClassVar[bool] = False
    is_solved: ClassVar[bool] = False
    drops_signs: ClassVar[bool] = False

    @property
    def similarity(self) -> SetSimilarity | None:
        """Return what it compares sentence sets and image sets by; None: it compares none."""
        return None

    @property
    def negatives(self) -> str | None:
        """Return how the negatives of a document count; None: in one way only."""
        return None

    def choose(self, documents: Documents, chosen: Int64, draw_key: DrawKey) -> Choice | None:
        """Return which sentences and images of some documents take part; None: all of them."""
        return None

    @abstractmethod
    def losses(self, batch: EncodedBatch) -> Tensor:
        """Return the B losses, one a document."""

    def solver(self, text: Tower, image: Tower, data: TrainingData, workers: Workers, *, epochs: int) -> Solver | None:
        """Return what sets the maps of two towers, once an epoch; None: steps along the gradient of the losses do."""
        return None
