"""Losses of documents that are one text and one image each: the other pairs of a batch are the negatives.

`cosines_BB[i, j]` is text `i` with image `j`; `allowed_BB[i, j]` whether pair `j` is a negative of pair `i`. Each
function returns the B losses of the pairs.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from schemas.errors import UsageError
from training.config import ObjectiveName
from training.objectives.batch import EncodedBatch, Objective
from training.objectives.cross_document import cross_document_losses, log_one_plus_sum_exp

SMALLEST_SQUARE = 1e-12


def triplet_hardest_losses(cosines_BB: Tensor, allowed_BB: Tensor, *, margin: float) -> Tensor:
    """Return the hinge of each text's hardest image plus that of each image's hardest text (Alikhani 2022, eq. 1).

    VSE++ is the same (Liu 2020, eq. 4). Alikhani 2022 writes `min` where `max` of the negated triplet is meant.
    """
    return cross_document_losses(cosines_BB, allowed_BB, margin=margin)


def triplet_sum_losses(cosines_BB: Tensor, allowed_BB: Tensor, *, margin: float) -> Tensor:
    """Return the sum of the hinges of all negatives, in both directions (Liu 2020, eq. 1)."""
    own_B = cosines_BB.diagonal()
    over_images_BB = torch.relu(margin - own_B[:, None] + cosines_BB).masked_fill(~allowed_BB, 0.0)
    over_texts_BB = torch.relu(margin - own_B[None, :] + cosines_BB).masked_fill(~allowed_BB, 0.0)
    return over_images_BB.sum(dim=1) + over_texts_BB.sum(dim=0)


def hal_losses(cosines_BB: Tensor, allowed_BB: Tensor, *, alpha: float, beta: float, epsilon: float) -> Tensor:
    """Return HAL (Liu 2020, eq. 5), which weighs every negative by how hard it is.

    `log(1 + sum of exp(alpha (s - epsilon))) / alpha` over the negatives, both ways, less `log(1 + beta s_ii)`.

    A negative `s_ii`, for which the formula may have no value, counts as 0, as in the code of HAL's authors.
    """
    hardness_BB = alpha * (cosines_BB - epsilon)
    over_images_B = log_one_plus_sum_exp(hardness_BB, allowed_BB)
    over_texts_B = log_one_plus_sum_exp(hardness_BB.T, allowed_BB)
    return (over_images_B + over_texts_B) / alpha - torch.log1p(beta * torch.relu(cosines_BB.diagonal()))


def order_losses(texts_BD: Tensor, images_BD: Tensor, allowed_BB: Tensor, *, margin: float) -> Tensor:
    """Return the sum of the hinges of order embeddings in both directions (Vendrov et al. 2016, eq. 2 and 3).

    A text is more abstract than its image, and so below it in every coordinate; a pair's similarity is minus the
    squared length of what the text has above the image. The vectors are unit vectors without negative coordinates
    (`LinkModel`): the violations of both directions add up to 2 (1 - cosine), and by the cosine models are judged here.
    """
    violations_BB = torch.relu(texts_BD[:, None] - images_BD[None]).square().sum(dim=2)
    return triplet_sum_losses(-violations_BB, allowed_BB, margin=margin)


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


def check_pairs(batch: EncodedBatch, name: ObjectiveName) -> None:
    """Raise a `UsageError` unless every document of a batch is one text and one image."""
    for id_, n, m in zip(batch.ids, batch.sentences.counts.tolist(), batch.images.counts.tolist(), strict=True):
        if (n, m) != (1, 1):
            raise UsageError(f"objective '{name}': document {id_} has {n} texts and {m} images, expected one of each")


class _PairObjective(Objective):
    """An objective of documents that are one text and one image each."""

    name: ClassVar[ObjectiveName]

    def losses(self, batch: EncodedBatch) -> Tensor:
        check_pairs(batch, self.name)
        return self._losses(batch)

    @abstractmethod
    def _losses(self, batch: EncodedBatch) -> Tensor: ...


class TripletHardest(_PairObjective):
    name = ObjectiveName.TRIPLET_HARDEST

    def _losses(self, batch: EncodedBatch) -> Tensor:
        return triplet_hardest_losses(batch.cosines, batch.allowed, margin=self.config.margin)


class TripletSum(_PairObjective):
    name = ObjectiveName.TRIPLET_SUM

    def _losses(self, batch: EncodedBatch) -> Tensor:
        return triplet_sum_losses(batch.cosines, batch.allowed, margin=self.config.margin)


class Hal(_PairObjective):
    name = ObjectiveName.HAL

    def _losses(self, batch: EncodedBatch) -> Tensor:
        config = self.config
        scales = {"alpha": config.hal_alpha, "beta": config.hal_beta, "epsilon": config.hal_epsilon}
        return hal_losses(batch.cosines, batch.allowed, **scales)


class Order(_PairObjective):
    name = ObjectiveName.ORDER

    def _losses(self, batch: EncodedBatch) -> Tensor:
        return order_losses(batch.text_vectors, batch.image_vectors, batch.allowed, margin=self.config.margin)


class EuclideanBatchHard(_PairObjective):
    name = ObjectiveName.EUCLIDEAN_BATCH_HARD

    def _losses(self, batch: EncodedBatch) -> Tensor:
        vectors = batch.text_vectors, batch.image_vectors
        return euclidean_batch_hard_losses(*vectors, batch.allowed, margin=self.config.margin)
