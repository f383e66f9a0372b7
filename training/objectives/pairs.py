"""Terms of documents that are one text and one image each: the other pairs of a batch are negatives.

triplet-hardest        Alikhani 2022, eq. 1; VSE++: Liu 2020, eq. 4
triplet-sum            Liu 2020, eq. 1
hal                    Liu 2020, eq. 5: every negative is weighed by how hard it is
order                  Vendrov et al. 2016: order embeddings
euclidean-batch-hard   the loss of Alikhani 2022's code

`cosines_BB[i, j]` is text `i` with image `j`; `allowed_BB[i, j]` whether pair `j` is a negative of pair `i`.
"""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from schemas.configs import PositiveFloat
from training.objectives.batch import EncodedBatch, check_pairs
from training.objectives.ranking import cross_document_losses, log_one_plus_sum_exp
from training.objectives.term import Term
from training.parts import Needs


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTerm(Term):
    """A term of documents that are one text and one image each."""

    @property
    def needs(self) -> Needs:
        return Needs(pairs=True)

    def losses(self, batch: EncodedBatch) -> Tensor:
        check_pairs(batch, self.name)
        return self.pair_losses(batch)

    @abstractmethod
    def pair_losses(self, batch: EncodedBatch) -> Tensor:
        """Return the B losses of the pairs."""


def triplet_sum_losses(cosines_BB: Tensor, allowed_BB: Tensor, *, margin: float) -> Tensor:
    """Return the sum of the hinges of all negatives, in both directions (Liu 2020, eq. 1)."""
    own_B = cosines_BB.diagonal()
    over_images_BB = torch.relu(margin - own_B[:, None] + cosines_BB).masked_fill(~allowed_BB, 0.0)
    over_texts_BB = torch.relu(margin - own_B[None, :] + cosines_BB).masked_fill(~allowed_BB, 0.0)
    return over_images_BB.sum(dim=1) + over_texts_BB.sum(dim=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TripletHardest(PairTerm):
    """The hinge of each text's hardest image plus that of each image's hardest text.

    Alikhani 2022 writes `min` where `max` of the negated triplet is meant.

    Attributes:
        margin: alpha of the hinges (A: 0.3).
    """

    place = 5
    name: str = "triplet-hardest"
    margin: PositiveFloat = 0.2

    def pair_losses(self, batch: EncodedBatch) -> Tensor:
        return cross_document_losses(batch.cosines, batch.allowed, margin=self.margin)


@dataclass(frozen=True, slots=True, kw_only=True)
class TripletSum(PairTerm):
    """The sum of the hinges of all negatives, in both directions.

    Attributes:
        margin: alpha of the hinges.
    """

    place = 6
    name: str = "triplet-sum"
    margin: PositiveFloat = 0.2

    def pair_losses(self, batch: EncodedBatch) -> Tensor:
        return triplet_sum_losses(batch.cosines, batch.allowed, margin=self.margin)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hal(PairTerm):
    """N eq. 5.

    Attributes:
        alpha: scale of the negatives (N: 20).
        beta: scale of the positives (N: 30).
        epsilon: similarity above which a negative costs much (N: 0.2).
    """

    place = 7
    name: str = "hal"
    alpha: PositiveFloat = 20.0
    beta: PositiveFloat = 30.0
    epsilon: float = 0.2

    def pair_losses(self, batch: EncodedBatch) -> Tensor:
        return hal_losses(batch.cosines, batch.allowed, alpha=self.alpha, beta=self.beta, epsilon=self.epsilon)


def hal_losses(cosines_BB: Tensor, allowed_BB: Tensor, *, alpha: float, beta: float, epsilon: float) -> Tensor:
    """Return HAL (Liu 2020, eq. 5), which weighs every negative by how hard it is.

    `log(1 + sum of exp(alpha (s - epsilon))) / alpha` over the negatives, both ways, less `log(1 + beta s_ii)`.

    A negative `s_ii`, for which the formula may have no value, counts as 0, as in the code of HAL's authors.
    """
    hardness_BB = alpha * (cosines_BB - epsilon)
    over_images_B = log_one_plus_sum_exp(hardness_BB, allowed_BB)
    over_texts_B = log_one_plus_sum_exp(hardness_BB.T, allowed_BB)
    return (over_images_B + over_texts_B) / alpha - torch.log1p(beta * torch.relu(cosines_BB.diagonal()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Order(PairTerm):
    """Vendrov et al. 2016, eq. 2 and 3, over unit vectors without negative coordinates.

    Attributes:
        margin: alpha of the hinges (Vendrov et al. 2016: 0.05).
    """

    drops_signs = True
    place = 8
    name: str = "order"
    margin: PositiveFloat = 0.2

    def pair_losses(self, batch: EncodedBatch) -> Tensor:
        return order_losses(batch.text_vectors, batch.image_vectors, batch.allowed, margin=self.margin)


def order_losses(texts_BD: Tensor, images_BD: Tensor, allowed_BB: Tensor, *, margin: float) -> Tensor:
    """Return the sum of the hinges of order embeddings in both directions (Vendrov et al. 2016, eq. 2 and 3).

    A text is more abstract than its image, and so below it in every coordinate; a pair's similarity is minus the
    squared length of what the text has above the image. The vectors are unit vectors without negative coordinates
    (`LinkModel`): the violations of both directions add up to 2 (1 - cosine), and by the cosine models are judged here.
    """
    violations_BB = torch.relu(texts_BD[:, None] - images_BD[None]).square().sum(dim=2)
    return triplet_sum_losses(-violations_BB, allowed_BB, margin=margin)


SMALLEST_SQUARE = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class EuclideanBatchHard(PairTerm):
    """Batch-hard triplets over the Euclidean distances of the 2B joint embeddings.

    Attributes:
        margin: alpha of the hinges (A: 0.3).
    """

    place = 9
    name: str = "euclidean-batch-hard"
    margin: PositiveFloat = 0.2

    def pair_losses(self, batch: EncodedBatch) -> Tensor:
        vectors = batch.text_vectors, batch.image_vectors
        return euclidean_batch_hard_losses(*vectors, batch.allowed, margin=self.margin)


def euclidean_batch_hard_losses(texts_BD: Tensor, images_BD: Tensor, allowed_BB: Tensor, *, margin: float) -> Tensor:
    """Return the batch-hard triplet loss over the 2B joint embeddings, what Alikhani 2022's code trained.

    Each text and each image is an anchor: its positive is the other half of its pair, its negative the nearest text or
    image of another pair. A pair costs the mean of its two anchors; one without a negative costs nothing.
    """
    all_AD = torch.cat([texts_BD, images_BD])
    distances_AA = (2 - 2 * (all_AD @ all_AD.T)).clamp(min=SMALLEST_SQUARE).sqrt()
    pairs = len(texts_BD)
    to_own_A = distances_AA.diagonal(pairs).repeat(2)
    nearest_A = distances_AA.masked_fill(~allowed_BB.repeat(2, 2), torch.inf).amin(dim=1)
    return torch.relu(margin + to_own_A - nearest_A).view(2, pairs).mean(dim=0)
