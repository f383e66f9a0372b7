"""Similarities of a document out of its cosines: steps at link time, which every caller of a model takes alike.

    csls             c_si - (r_s + r_i) / 2 + r, where r_s is the mean cosine of sentence s with its nearest images of
                     the bank, r_i that of image i with its nearest sentences, and r their mean over the banks
    class-names      + w (z_si - z), where z_si is the cosine of sentence s with the names of the classes of image i
                     (the mean over columns of names), z its mean over the banks, and w the weight times the deviation
                     of cosines over that of z_si
    order            + log w_b / 10, where w_b is the weight of the pair's bin, learnt in training (`closed_form.plans`)
    half-sinkhorn    the mean of the similarity and of (log p_si + log max(n, m)) / 10, where p is the soft plan of ten
                     times the similarities (`closed_form.plans`): where all pairs are alike, nothing changes

All keep the level of cosines, so that zero means what it meant. Shape suffixes: n sentences and m images of a document,
K and L rows of the banks, d dimensions.
"""

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from training.closed_form.plans import BINS, SHARPNESS, Order, bins_of, plan_of, relative_places
from training.data.documents import DocumentSet
from training.data.loading import NamedColumns
from training.data.ragged import Float32, Floats, Int64, unit_rows
from training.parts import LinkSettings, LinkStep

SHARE = 0.5  # of the soft plan
COSINE, PLAN = "cosine", "the document's other pairs"  # names of terms of a similarity
Namer = Callable[[Any, Int64], Float32 | None]
Binner = Callable[[slice, slice], Int64 | None]


class LinkSteps(nn.Module):
    """The steps of a model, with banks of unit vectors that are saved with it; it stays on the CPU.

    Args:
        settings: which steps.
        dimensions: d.
        columns: where sentences and class names stand in the vectors that the model reads; None where they do not.

    Attributes:
        weights: how much `csls` (0 or 1) and class names count (`w` above); 0 until training is over.
        order: logarithms of the weights of the bins of places; there is none where `link.order` is off.
    """

    texts: Tensor
    images: Tensor
    counts: Tensor
    levels: Tensor
    weights: Tensor
    order: Tensor | None

    def __init__(self, settings: LinkSettings, dimensions: int, columns: NamedColumns | None = None) -> None:
        super().__init__()
        self.settings = settings
        self.columns = columns if LinkStep.CLASS_NAMES in settings.steps else None
        rows = settings.bank if LinkStep.CSLS in settings.steps else 0
        for name in ("texts", "images"):
            self.register_buffer(name, torch.zeros(rows, dimensions))
        self.register_buffer("counts", torch.zeros(2, dtype=torch.int64))
        self.register_buffer("levels", torch.zeros(2))
        self.register_buffer("weights", torch.zeros(2))
        self.register_buffer("order", None if settings.order == "off" else torch.zeros(BINS))

    def _apply(self, *arguments: Any, **named: Any) -> Self:
        return self

    def fill(self, texts_Kd: Float32, images_Ld: Float32, names_KL: Float32 | None) -> float:
        """Keep unit vectors as banks and the levels of both steps; return what a weight of class names of 1 is.

        Args:
            texts_Kd: sentences, at most as many as a bank has rows, where there are banks.
            images_Ld: images, likewise.
            names_KL: cosines of those sentences with the class names of those images.
        """
        if len(self.texts):
            for bank, rows, count in zip((self.texts, self.images), (texts_Kd, images_Ld), self.counts, strict=True):
                bank.zero_()[: len(rows)] = torch.from_numpy(rows)
                count.fill_(len(rows))
            texts, images = self._banks()
            self.levels[0] = float(self._near(texts_Kd, images).mean() + self._near(images_Ld, texts).mean()) / 2
        if names_KL is None:
            return 0.0
        self.levels[1] = float(names_KL.mean())
        return float((texts_Kd @ images_Ld.T).std() / max(float(names_KL.std()), np.finfo(np.float32).tiny))

    def similarities(
        self, texts_nd: Float32, images_md: Float32, names_nm: Float32 | None, bins_nm: Int64 | None = None
    ) -> Float32:
        """Return the n x m similarities of a document's unit vectors, by all steps."""
        scores = _total(self.terms(texts_nd, images_md, names_nm, bins_nm))
        if LinkStep.HALF_SINKHORN in self.settings.steps and scores.size:
            scores = half_sinkhorn(scores)
        return scores.astype(np.float32)

    def weighted(
        self, texts_nd: Float32, images_md: Float32, names_nm: Float32 | None, weights: tuple[float, ...]
    ) -> Floats:
        """Return the n x m similarities by the steps that have weights; documents do not matter to them."""
        return _total(self.terms(texts_nd, images_md, names_nm, weights=weights))

    def terms(
        self,
        texts_nd: Float32,
        images_md: Float32,
        names_nm: Float32 | None,
        bins_nm: Int64 | None = None,
        *,
        weights: tuple[float, ...] | None = None,
    ) -> dict[str, Floats]:
        """Return what is added up to n x m similarities before the soft plan, by its name."""
        hubs, names = self.weights.tolist() if weights is None else weights
        terms: dict[str, Floats] = {COSINE: texts_nd @ images_md.T}
        if hubs and terms[COSINE].size:
            bank_texts, bank_images = self._banks()
            near_nm = (self._near(texts_nd, bank_images)[:, None] + self._near(images_md, bank_texts)[None, :]) / 2
            terms["csls"] = -hubs * (near_nm - float(self.levels[0]))
        if names and names_nm is not None:
            terms["class names"] = names * (names_nm - float(self.levels[1]))
        if self.order is not None and bins_nm is not None:
            terms["order"] = self.order.numpy()[bins_nm] / SHARPNESS
        return terms

    def described(self) -> str:
        """Return the steps that are done, with the weights that training chose, for cards and reports; "" of none."""
        hubs, names = self.weights.tolist()
        done = {
            LinkStep.CSLS: "csls" * bool(hubs),
            LinkStep.CLASS_NAMES: f"class names of weight {names:.2g}" * bool(names),
            LinkStep.HALF_SINKHORN: "half Sinkhorn",
        }
        steps = [done[step] for step in self.settings.steps]
        if self.order is not None and self.order.any():
            steps.append(f"order ({Order(log_weights=self.order, is_tested=False).words})")
        return ", ".join(filter(None, steps)) or ("none helped" if self.settings.steps else "")

    def binner(self, documents: DocumentSet) -> Binner:
        """Return what gives the bins of some rows and image places of documents; None where order does not count."""
        if self.order is None or not self.order.any() or documents.sources is not None:
            return lambda rows, places: None
        texts, images = map(torch.from_numpy, relative_places(documents))

        def bins(rows: slice, places: slice) -> Int64:
            found: Int64 = bins_of(texts[rows], images[places]).numpy()
            return found

        return bins

    def namer(self, documents: DocumentSet) -> Namer:
        """Return what gives the cosines of some rows of documents with the class names of some of their images.

        It gives None where the model reads no class names.
        """
        if self.columns is None or documents.sentence_vectors is None:
            return lambda rows, images: None
        of_texts, of_images = self.columns
        texts, images = documents.sentence_vectors, documents.image_bank

        def named(rows: Any, shown: Int64) -> Float32:
            names = np.mean([unit_rows(images[shown, part], np.float32) for part in of_images], axis=0)
            cosines: Float32 = unit_rows(texts[rows, of_texts], np.float32) @ names.T
            return cosines

        return named

    def _near(self, rows_nd: Float32, bank_Kd: Tensor) -> Float32:
        """Return the mean cosine of each row with its nearest rows of a bank."""
        cosines_nK = torch.from_numpy(rows_nd) @ bank_Kd.T  # torch's threads are limited where documents are linked
        nearest: Float32 = (
            cosines_nK.topk(min(self.settings.neighbours, len(bank_Kd)), dim=1).values.mean(dim=1).numpy()
        )
        return nearest

    def _banks(self) -> tuple[Tensor, Tensor]:
        texts, images = (bank[: int(count)] for bank, count in zip((self.texts, self.images), self.counts, strict=True))
        return texts, images


def _total(terms: dict[str, Floats]) -> Floats:
    first, *others = terms.values()
    return sum(others, start=first)


def half_sinkhorn(scores_nm: Floats) -> Floats:
    """Return the mean of similarities and of what their soft plan makes of them."""
    mean: Floats = (1 - SHARE) * scores_nm + SHARE * plan_of(scores_nm) / SHARPNESS
    return mean
