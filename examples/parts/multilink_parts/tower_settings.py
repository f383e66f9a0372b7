"""Settings of the text tower `sentence-mlp`; they import no PyTorch, so that a mistyped setting is told at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from training.config import SentenceConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceMlpConfig(SentenceConfig):
    """Two layers over the frozen vectors of a sentence encoder.

    Attributes:
        hidden: width of the first layer.
    """

    tower: ClassVar[str] = "multilink_parts.tower:SentenceMlpTower"
    name: Literal["sentence-mlp"] = "sentence-mlp"  # type: ignore[assignment]
    hidden: int = 256
