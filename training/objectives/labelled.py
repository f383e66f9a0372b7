"""Terms that read labels of the training split, which no other term does.

supervised   links of `labelled_share` of the documents: what objectives without links could reach at most (Li 2022,
             figure 5). `EncodedBatch.links` is None unless this term is named.
coherence    relations of a pair, predicted from its two vectors (Alikhani 2022, eq. 2-3). The head that predicts them
             is part of the model (`training.model`); here is its loss alone, the second summand of eq. 3.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from schemas.configs import PositiveFloat, Share
from training.data.ragged import Int64, to_device
from training.objectives.batch import EncodedBatch, Relations, check_pairs
from training.objectives.term import Term
from training.parts import Needs


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervised(Term):
    """An upper bound: each shown link against the unlinked pairs; a document whose links are not shown costs nothing.

    Attributes:
        margin: of the hinges.
        labelled_share: share of the training documents whose links are shown (L figure 5). A smaller share's documents
            are among a larger one's.
    """

    place = 11
    name: str = "supervised"
    margin: PositiveFloat = 0.2
    labelled_share: Share = 1.0

    @property
    def needs(self) -> Needs:
        return Needs(links=self.labelled_share)

    def losses(self, batch: EncodedBatch) -> Tensor:
        blocks = zip(batch.sentences, batch.images, batch.links or (None,) * len(batch), strict=True)
        return torch.stack([self._loss(batch.cosines[rows, columns], links) for rows, columns, links in blocks])

    def _loss(self, matrix_nm: Tensor, links: Int64 | None) -> Tensor:
        return matrix_nm.new_zeros(()) if links is None else link_loss(matrix_nm, links, margin=self.margin)


def link_loss(matrix_nm: Tensor, links: Int64, *, margin: float) -> Tensor:
    """Return a document's loss: each link against the unlinked pairs of its row and of its column; a scalar.

    A link `(i, j)` costs `max(0, margin - M_ij + M_ih)` for the hardest image `h` that sentence `i` is not linked to,
    plus `max(0, margin - M_ij + M_hj)` for the hardest sentence `h` that image `j` is not linked to; the loss is the
    mean over links. Li 2022 does not give the loss of its supervised model: this is that of eq. 1, pair by pair.

    Args:
        matrix_nm: similarities of sentences and images.
        links: L x 2 (sentence, image); without any, the loss is 0.
        margin: of the hinges.
    """
    if not len(links):
        return matrix_nm.new_zeros(())
    rows_L, columns_L = to_device(links, matrix_nm.device).unbind(dim=1)
    linked_nm = torch.zeros(matrix_nm.shape, dtype=torch.bool, device=matrix_nm.device)
    linked_nm[rows_L, columns_L] = True
    unlinked_nm = matrix_nm.masked_fill(linked_nm, -torch.inf)
    own_L = matrix_nm[rows_L, columns_L]
    over_images_L = torch.relu(margin - own_L + unlinked_nm.amax(dim=1)[rows_L])
    return (over_images_L + torch.relu(margin - own_L + unlinked_nm.amax(dim=0)[columns_L])).mean()


@dataclass(frozen=True, slots=True, kw_only=True)
class Coherence(Term):
    """A eq. 2, added to a retrieval objective; 0 where a split's relations are not read (validation).

    Attributes:
        relations: `all`, or the only relation that is predicted (A's CMCM_c).
        relation_weight: lambda_cls, factor of the loss (A: 0.1).
    """

    is_addition = True
    place = 10
    spellings: ClassVar[Mapping[str, str]] = {"coherence-aware": "triplet-hardest+coherence"}
    name: str = "coherence"
    relations: str = "all"
    relation_weight: PositiveFloat = 0.1

    @property
    def needs(self) -> Needs:
        return Needs(relations=self.relations, pairs=True)

    def losses(self, batch: EncodedBatch) -> Tensor:
        check_pairs(batch, self.name)
        if batch.relations is None:
            return batch.cosines.new_zeros(len(batch))
        return self.relation_weight * relation_losses(batch.relations)


def relation_losses(relations: Relations) -> Tensor:
    """Return per pair the sum over relations of weight times binary cross-entropy; an unknown label costs nothing.

    The paper's eq. 2 omits the minus sign.
    """
    unknown_BR = relations.labels.isnan()
    labels_BR = relations.labels.masked_fill(unknown_BR, 0.0)
    costs_BR = F.binary_cross_entropy_with_logits(relations.logits, labels_BR, reduction="none")
    return torch.sum(relations.weights * costs_BR.masked_fill(unknown_BR, 0.0), dim=1)
