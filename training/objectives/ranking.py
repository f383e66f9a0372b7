"""Terms that rank whole documents: what their similarities cost as each other's negatives, and how negatives count.

cross-document        Hessel 2019, eq. 1: a document's own sets against the other documents'
dropout-subdocument   Li 2022, eq. 3-4: a random part of a document against whole other documents
nostruct              Hessel 2019, 3.3: one random sentence and one random image stand for a document
intra-document        Li 2022, eq. 2: what belongs together most in a document against what does least

Random draws come from streams keyed by seed, split, document id, epoch and step.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, partial
from typing import Annotated, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from schemas.configs import NonNegativeInt, PositiveFloat, Share
from schemas.plugins import SIMILARITIES
from training.data.ragged import Choice, Documents, Int64, Ragged, draw_rows, to_device
from training.objectives.batch import DrawKey, EncodedBatch
from training.objectives.term import Term
from training.similarity.similarity import Ap, Combine, SetSimilarity, Tk, check_k


class Loss(StrEnum):
    """What a negative costs, by how much more similar it is than the positive (H's code; the paper: hinge)."""

    HINGE = "hinge"
    LOGISTIC = "logistic"
    SOFTMAX = "softmax"


class Negatives(StrEnum):
    """Which negatives of a document count: the hardest, or the mean over all."""

    HARDEST = "hardest"
    MEAN = "mean"


def cross_document_losses(
    similarity_BB: Tensor,
    allowed_BB: Tensor,
    *,
    margin: float,
    negatives: Negatives | str = Negatives.HARDEST,
    loss: Loss | str = Loss.HINGE,
    own_B: Tensor | None = None,
) -> Tensor:
    """Return the B losses of a batch whose documents are each other's negatives.

    Document `i` costs `h(s_ii, s_ij)` over other image sets `j`, plus `h(s_ii, s_ji)` over other sentence sets `j`: the
    largest of each (`hardest`) or the mean of each (`mean`). A document without any negative costs nothing.

        hinge     h(p, q) = max(0, margin - p + q)
        logistic  h(p, q) = log(1 + exp(q - p))
        softmax   not pair by pair: log(1 + sum over j of exp(margin - s_ii + s_ij)), the cross-entropy of the own set
                  among all, its similarity lowered by the margin

    Args:
        similarity_BB: sentence set `i` against image set `j`.
        allowed_BB: symmetric; whether `j` is a negative of `i`.
        margin: see above.
        negatives: how the costs of a document's negatives are put together (`softmax` always counts all).
        loss: which `h`.
        own_B: what stands for `s_ii`; the diagonal unless given.
    """
    negatives, loss = Negatives(negatives), Loss(loss)
    own_B = similarity_BB.diagonal() if own_B is None else own_B
    over_images_B = _over_negatives(similarity_BB - own_B[:, None], allowed_BB, margin, negatives, loss)
    return over_images_B + _over_negatives(similarity_BB.T - own_B[:, None], allowed_BB, margin, negatives, loss)


def _over_negatives(excess_BB: Tensor, allowed_BB: Tensor, margin: float, negatives: Negatives, loss: Loss) -> Tensor:
    """Return per row the cost of its negatives, given by how much more similar they are than the own set."""
    if loss is Loss.SOFTMAX:
        return log_one_plus_sum_exp(excess_BB + margin, allowed_BB)
    costs_BB = torch.relu(margin + excess_BB) if loss is Loss.HINGE else F.softplus(excess_BB)
    costs_BB = costs_BB.masked_fill(~allowed_BB, 0.0)
    if negatives is Negatives.HARDEST:
        return costs_BB.amax(dim=1)
    return costs_BB.sum(dim=1) / allowed_BB.sum(dim=1).clamp(min=1)


def log_one_plus_sum_exp(values_BB: Tensor, counted_BB: Tensor) -> Tensor:
    """Return per row `log(1 + sum of exp(value))` over the counted entries; 0 where none is."""
    kept_BB = values_BB.masked_fill(~counted_BB, -torch.inf)
    return torch.cat([kept_BB.new_zeros((len(kept_BB), 1)), kept_BB], dim=1).logsumexp(dim=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingTerm(Term):
    """What the terms share that set a document against the others of its batch.

    Attributes:
        loss: loss of a negative document.
        negatives: the hardest negative document, or the mean over all.
        mean_epochs: first epochs that use the mean of the negatives in any case: the hardest negative of an untrained
            model is noise.
        margin: alpha of the hinges (H: 0.2).
    """

    loss: Loss = Loss.HINGE
    negatives: Negatives = Negatives.HARDEST
    mean_epochs: NonNegativeInt = 0
    margin: PositiveFloat = 0.2

    def ranked(
        self, similarity_BB: Tensor, batch: EncodedBatch, *, margin: float | None = None, own_B: Tensor | None = None
    ) -> Tensor:
        """Return the B losses of a batch by the similarities of its documents; see `cross_document_losses`."""
        return cross_document_losses(
            similarity_BB,
            batch.allowed,
            margin=self.margin if margin is None else margin,
            negatives=self.negatives_at(batch.draw_key),
            loss=self.loss,
            own_B=own_B,
        )

    def negatives_at(self, draw_key: DrawKey) -> Negatives:
        """Return how negatives count at a step: by their mean in the first `mean_epochs` epochs of training."""
        is_early = draw_key.split == "training" and 1 <= draw_key.epoch <= self.mean_epochs
        return Negatives.MEAN if is_early else self.negatives


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossDocument(RankingTerm):
    """H eq. 1: all sentences and images of each document against those of the others.

    Attributes:
        similarity: of a sentence set and an image set.
    """

    place = 1
    spellings: ClassVar[Mapping[str, str]] = {"cross": "cross-document"}
    name: str = "cross-document"
    similarity: Annotated[SetSimilarity, SIMILARITIES] = field(default_factory=Ap)

    def losses(self, batch: EncodedBatch) -> Tensor:
        return self.ranked(batch.similarity(self.similarity), batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class DropoutSubdocument(CrossDocument):
    """L eq. 3-4: the cross-document loss with a sub-document as the positive, and half the margin.

    Attributes:
        kept_share: p, share of sentences and images in a sub-document (L: 0.6 for story-dii and story-sis, 0.8 for
            mscoco).
    """

    place = 3
    spellings: ClassVar[Mapping[str, str]] = {"dropout": "dropout-subdocument"}
    name: str = "dropout-subdocument"
    kept_share: Share = 0.6

    def losses(self, batch: EncodedBatch) -> Tensor:
        own_B = self._parts_similarity(batch)
        return self.ranked(batch.similarity(self.similarity), batch, margin=self.margin / 2, own_B=own_B)

    def _parts_similarity(self, batch: EncodedBatch) -> Tensor:
        """Return the B similarities of the sub-documents' own sentences and images."""
        parts = sub_documents(batch, np.arange(len(batch)), batch.draw_key, kept_share=self.kept_share)
        rows, columns = (to_device(each, batch.cosines.device) for each in (parts.sentence_rows, parts.image_rows))
        matrix = batch.cosines.index_select(0, rows).index_select(1, columns)
        return self.similarity.own(matrix, parts.sentences, parts.images)


def sub_documents(documents: Documents, chosen: Int64, draw_key: DrawKey, *, kept_share: float) -> Choice:
    """Return `floor(kept_share * n)` sentences and as many of the images of some documents, at least one of each."""
    return draw_rows(
        documents,
        chosen,
        kept=lambda count: max(1, int(np.floor(round(kept_share * count, 9)))),
        numbers_of=partial(draw_key.numbers, "sub-document"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NoStruct(RankingTerm):
    """H 3.3: the cross-document loss over cosines of single rows.

    Negatives count by their mean unless set otherwise (H tables 2 and 3: the hardest collapse).

    Attributes:
        cosine_scale: the document similarity is this times the cosine (paper: 1; H's code: 2).
    """

    place = 4
    name: str = "nostruct"
    negatives: Negatives = Negatives.MEAN
    cosine_scale: PositiveFloat = 1.0

    def choose(self, documents: Documents, chosen: Int64, draw_key: DrawKey) -> Choice:
        draws = np.array([draw_key.numbers("nostruct", documents.ids[row]).random(2) for row in chosen]).reshape(-1, 2)
        one_each = Ragged.of(np.ones(len(chosen), np.int64))
        rows = [
            sets.offsets[chosen] + (draw * sets.counts[chosen]).astype(np.int64)
            for sets, draw in zip((documents.sentences, documents.images), draws.T, strict=True)
        ]
        return Choice(
            ids=tuple(documents.ids[document] for document in chosen),
            sentences=one_each,
            images=one_each,
            sentence_rows=rows[0],
            image_rows=rows[1],
        )

    def losses(self, batch: EncodedBatch) -> Tensor:
        """Return the losses over the drawn rows; of a batch that holds those alone, the draw is the same again."""
        drawn = self.choose(batch, np.arange(len(batch)), batch.draw_key)
        rows, columns = (to_device(each, batch.cosines.device) for each in (drawn.sentence_rows, drawn.image_rows))
        return self.ranked(self.cosine_scale * batch.cosines.index_select(0, rows).index_select(1, columns), batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntraDocument(Term):
    """L eq. 2: `max(0, margin / 2 - TK(M) + NegTK(M))` of each document's own matrix M; `NegTK(M) = -TK(-M)`.

    Attributes:
        margin: alpha (L: 0.2), of which the hinge takes half.
        k: k of TK, as in `objective.similarity.k`.
        combine: whether the two means of TK are summed (H) or averaged (L).
    """

    place = 2
    spellings: ClassVar[Mapping[str, str]] = {"intra": "intra-document"}
    name: str = "intra-document"
    margin: PositiveFloat = 0.2
    k: str = "min"
    combine: Combine = Combine.SUM

    def __post_init__(self) -> None:
        Term.__post_init__(self)
        check_k(self.k, field=f"{self.part}.k")

    def losses(self, batch: EncodedBatch) -> Tensor:
        most = _tk(self.k, self.combine)
        most_B = most.own(batch.cosines, batch.sentences, batch.images)
        least_B = -most.own(-batch.cosines, batch.sentences, batch.images)
        return torch.relu(self.margin / 2 - most_B + least_B)


@cache
def _tk(k: str, combine: Combine) -> Tk:
    """Return TK by these settings, which are checked once and not in every step."""
    return Tk(k=k, combine=combine)
