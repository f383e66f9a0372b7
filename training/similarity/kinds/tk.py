"""TK: the k best images of sentences and the k best sentences of images (Hessel 2019, 3.2)."""

from dataclasses import dataclass

from torch import Tensor

from training.data.ragged import Ragged
from training.similarity.assignment import edge_counts
from training.similarity.segments import own_blocks, segment_max, segment_top_mean, top_mean
from training.similarity.similarity import Combine, SetSimilarity, check_k


@dataclass(frozen=True, slots=True, kw_only=True)
class Tk(SetSimilarity):
    """TK: the mean of the k largest row maxima and the mean of the k largest column maxima.

    Attributes:
        k: how many maxima count: `min` (min(n, m)), `half` (half of it rounded up), a fraction of min(n, m) such as
            `0.25`, or a count such as `5`.
        combine: whether the two means are summed (H) or averaged (L).
    """

    name: str = "tk"
    k: str = "min"
    combine: Combine = Combine.SUM

    def __post_init__(self) -> None:
        SetSimilarity.__post_init__(self)
        check_k(self.k, field=f"{self.part}.k")

    def blocks(self, matrix_NM: Tensor, sentences: Ragged, images: Ragged) -> Tensor:
        counts_BC = edge_counts(sentences.counts[:, None], images.counts[None, :], self.k)
        by_row_BC = segment_top_mean(segment_max(matrix_NM, images), sentences, counts_BC)
        by_column_CB = segment_top_mean(segment_max(matrix_NM.T, sentences), images, counts_BC.T)
        return (by_row_BC + by_column_CB.T) * self.combine.weight

    def own(self, matrix_NM: Tensor, sentences: Ragged, images: Ragged) -> Tensor:
        blocks_Bnm = own_blocks(matrix_NM, sentences, images)
        counts = edge_counts(sentences.counts, images.counts, self.k)
        by_row_B = top_mean(blocks_Bnm.amax(dim=2), counts)
        return (by_row_B + top_mean(blocks_Bnm.amax(dim=1), counts)) * self.combine.weight
