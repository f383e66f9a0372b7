"""DC: every sentence with its best image and every image with its best sentence (Hessel 2019, 3.2)."""

from dataclasses import dataclass

from torch import Tensor

from training.data.ragged import Ragged
from training.similarity.segments import own_blocks, segment_max, segment_mean, top_mean
from training.similarity.similarity import Combine, SetSimilarity


@dataclass(frozen=True, slots=True, kw_only=True)
class Dc(SetSimilarity):
    """DC: the mean of the row maxima and the mean of the column maxima.

    Attributes:
        combine: whether the two means are summed (H) or averaged (L).
    """

    name: str = "dc"
    combine: Combine = Combine.SUM

    def blocks(self, matrix_NM: Tensor, sentences: Ragged, images: Ragged) -> Tensor:
        by_row_BC = segment_mean(segment_max(matrix_NM, images), sentences)
        by_column_CB = segment_mean(segment_max(matrix_NM.T, sentences), images)
        return (by_row_BC + by_column_CB.T) * self.combine.weight

    def own(self, matrix_NM: Tensor, sentences: Ragged, images: Ragged) -> Tensor:
        blocks_Bnm = own_blocks(matrix_NM, sentences, images)
        by_row_B = top_mean(blocks_Bnm.amax(dim=2), sentences.counts)
        return (by_row_B + top_mean(blocks_Bnm.amax(dim=1), images.counts)) * self.combine.weight
