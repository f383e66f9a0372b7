"""What is read of a data set version: all that `data/` knows of a training run or of a model."""

from __future__ import annotations

from dataclasses import dataclass

from training.parts import Needs
from training.settings import DataConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a run or a model reads of a data set version.

    Attributes:
        needs: of its parts.
        data: which columns, and which sentences by their roles.
        seed: of the run, by which the documents are drawn whose links are shown.
        max_rows: sentences and images of a document that take part in a step at most; 0: all.
        objective: name of what is minimised, for messages.
        places: whether the order of sentences and images counts.
    """

    needs: Needs
    data: DataConfig
    seed: int = 0
    max_rows: int = 0
    objective: str = ""
    places: bool = False
