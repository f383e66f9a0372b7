"""What every fuser of sources is: built from its settings, then from the sources' vectors to one vector a document."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from schemas.plugins import FUSERS, Group
from training.parts import PartSettings


class Fuser(nn.Module):
    """N x S x d vectors of S sources -> N x d."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FuserSettings(PartSettings, ABC):
    """Settings that every fuser has."""

    group: ClassVar[Group] = FUSERS
    part: ClassVar[str] = "text.fuser"

    @abstractmethod
    def build(self, *, sources: int, dimensions: int, head_dimensions: int) -> Fuser:
        """Return the fuser with random weights.

        Args:
            sources: S.
            dimensions: d.
            head_dimensions: size of an attention head of the text tower.
        """
