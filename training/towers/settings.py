"""Settings that every tower has: they build it, and say what it reads.

A tower stands in one file, settings and code. This module imports no framework: a configuration is made of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from schemas.configs import Probability
from schemas.messages import ConfigError
from schemas.plugins import IMAGE_TOWERS, TEXT_TOWERS, Group
from training.parts import Needs, PartSettings

if TYPE_CHECKING:
    from training.text.vocabulary import Vocabulary
    from training.towers.inputs import Sizes, Tower


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

    @property
    def divisor(self) -> int:
        """Return the number of heads, of which the joint space's dimensions must be a multiple; 1: any will do."""
        return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTowerSettings(TowerSettings):
    """Settings that every text tower has."""

    group: ClassVar[Group] = TEXT_TOWERS
    part: ClassVar[str] = "text"

    @abstractmethod
    def build(self, sizes: Sizes, vocabulary: Vocabulary | None) -> Tower:
        """Return the tower with random weights.

        Raises:
            ConfigError: the data set lacks what it reads, or its package is not installed.
        """

    def vocabulary(self, counts: Counter[str], labels: Collection[str]) -> Vocabulary:
        """Return the words that the tower reads; towers that need words define it.

        Args:
            counts: of the words of the training split, in a language where the tower needs languages.
            labels: words of the labels of regions, which must be in it.

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
    """Settings that every image tower has; by default it reads one vector an image."""

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
            ConfigError: the data set lacks what it reads, or its package is not installed.
        """
