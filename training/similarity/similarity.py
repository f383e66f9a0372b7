"""What every similarity of a sentence set and an image set is: its settings, and the sets of a batch compared by it.

All start from the cosine matrix of sentences and images (Hessel 2019, 3.2; SPEC 4) and are differentiable: a maximum
passes its gradient to the entry it came from (shared evenly between ties), AP to the selected entries alone.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from torch import Tensor

from schemas.configs import require
from schemas.plugins import SIMILARITIES, Group
from training.data.ragged import Ragged
from training.parts import PartSettings


class Combine(StrEnum):
    """How row and column means are put together: H sums them, L averages."""

    SUM = "sum"
    MEAN = "mean"

    @property
    def weight(self) -> float:
        """Return what the sum of the two means is multiplied with."""
        return 1.0 if self is Combine.SUM else 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class SetSimilarity(PartSettings, ABC):
    """Settings that every similarity has, and its two methods.

    Shape suffixes: B sentence sets, C image sets, N sentences and M images of all sets.
    """

    group: ClassVar[Group] = SIMILARITIES
    part: ClassVar[str] = "objective.similarity"

    @abstractmethod
    def blocks(self, matrix_NM: Tensor, sentences: Ragged, images: Ragged) -> Tensor:
        """Return the B x C similarities of the blocks of a matrix: sentence set `i` (rows) by image set `j` (columns).

        Args:
            matrix_NM: cosines of all sentences with all images, one set after the other.
            sentences: which rows are of which of the B sentence sets; none is empty.
            images: which columns are of which of the C image sets; none is empty.
        """

    @abstractmethod
    def own(self, matrix_NM: Tensor, sentences: Ragged, images: Ragged) -> Tensor:
        """Return the B similarities of the diagonal blocks alone: sentence set `i` by image set `i`.

        The diagonal of `blocks`, at a cost that grows with B and not with its square.
        """


def check_k(k: str, *, field: str) -> None:
    """Raise a `ConfigError` unless `k` says how many edges or maxima count.

    `min` (min(n, m)), `half` (half of it rounded up), a fraction of it such as `0.25`, or a count such as `5`.

    >>> check_k("half", field="similarity.k")
    """
    try:
        value = {"min": 1.0, "half": 1.0}.get(k) or float(k)
    except ValueError:
        value = 0.0
    is_k = 0 < value < 1 or (value >= 1 and value == value // 1)
    require(is_k, field=field, value=k, rule="expected min, half, a fraction such as 0.25, or a count such as 5")
