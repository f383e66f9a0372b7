"""AP: the maximum-weight matching of sentences and images (Hessel 2019, 3.2)."""

from dataclasses import dataclass

from torch import Tensor

from training.data.ragged import Ragged
from training.similarity.assignment import Edges, Matching, match_batch, match_own
from training.similarity.similarity import SetSimilarity, check_k


@dataclass(frozen=True, slots=True, kw_only=True)
class Ap(SetSimilarity):
    """AP: the mean of the entries of the best matching.

    Attributes:
        k: how many edges it has: `min` (min(n, m)), `half` (half of it rounded up), a fraction of min(n, m) such as
            `0.25`, or a count such as `5`.
        matching: `exact`: exactly k edges (H's code); `at_most`: an edge that would lower the sum is left out (H's
            paper); without any edge the similarity is 0.
    """

    name: str = "ap"
    k: str = "min"
    matching: Matching = Matching.EXACT

    def __post_init__(self) -> None:
        SetSimilarity.__post_init__(self)
        check_k(self.k, field=f"{self.part}.k")

    def blocks(self, matrix_NM: Tensor, sentences: Ragged, images: Ragged) -> Tensor:
        shape = len(sentences), len(images)
        edges = match_batch(matrix_NM, sentences, images, k=self.k, matching=self.matching)
        return _selected_means(matrix_NM, edges, shape[0] * shape[1]).view(shape)

    def own(self, matrix_NM: Tensor, sentences: Ragged, images: Ragged) -> Tensor:
        edges = match_own(matrix_NM, sentences, images, k=self.k, matching=self.matching)
        return _selected_means(matrix_NM, edges, len(sentences))


def _selected_means(matrix_NM: Tensor, edges: Edges, pairs: int) -> Tensor:
    """Return per pair of sets the mean of the entries that AP selects; without any, 0."""
    zeros = matrix_NM.new_zeros(pairs)
    counts = zeros.index_add(0, edges.pairs, edges.is_selected.to(zeros))
    entries = matrix_NM.flatten().index_select(0, edges.entries).masked_fill(~edges.is_selected, 0.0)
    return zeros.index_add(0, edges.pairs, entries) / counts.clamp(min=1)
