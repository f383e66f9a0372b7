"""Similarities of a document out of its cosines: steps at link time, which every caller of a model takes alike.

    csls             c_si - (r_s + r_i) / 2 + r, where r_s is the mean cosine of sentence s with its nearest images of
                     the bank, r_i that of image i with its nearest sentences, and r their mean over the banks
    half-sinkhorn    the mean of the similarity and of (log p_si + log max(n, m)) / 10, where p is the soft plan of ten
                     times the similarities (`closed_form.plans`): where all pairs are alike, nothing changes

Both keep the level of cosines, so that zero means what it meant. Shape suffixes: n sentences and m images of a
document, K rows of a bank, d dimensions.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from training.closed_form.plans import soft_plans
from training.data.ragged import Float32, Floats
from training.settings import LinkSettings, LinkStep

SHARPNESS, WEIGHT = 10.0, 0.5  # of the soft plan


class LinkSteps(nn.Module):
    """The steps of a model, with banks of unit vectors that are saved with it; without a bank `csls` changes nothing.

    Args:
        settings: which steps.
        dimensions: d.
    """

    texts: Tensor
    images: Tensor
    counts: Tensor
    level: Tensor

    def __init__(self, settings: LinkSettings, dimensions: int) -> None:
        super().__init__()
        self.settings = settings
        rows = settings.bank if LinkStep.CSLS in settings.steps else 0
        for name in ("texts", "images"):
            self.register_buffer(name, torch.zeros(rows, dimensions))
        self.register_buffer("counts", torch.zeros(2, dtype=torch.int64))
        self.register_buffer("level", torch.zeros(()))

    def fill(self, texts_Nd: Tensor, images_Md: Tensor) -> None:
        """Keep the first rows of unit vectors of each side as banks."""
        for bank, rows, count in zip((self.texts, self.images), (texts_Nd, images_Md), self.counts, strict=True):
            kept = rows[: len(bank)]
            bank.zero_()[: len(kept)] = kept
            count.fill_(len(kept))
        texts, images = self._banks()
        self.level.fill_(float(self._nearness(texts, images).mean() + self._nearness(images, texts).mean()) / 2)

    def similarities(self, texts_nd: Float32, images_md: Float32) -> Float32:
        """Return the n x m similarities of a document's unit vectors."""
        found: Floats = texts_nd @ images_md.T
        for step in LinkStep:
            if step in self.settings.steps and found.size:
                found = self._csls(found, texts_nd, images_md) if step is LinkStep.CSLS else half_sinkhorn(found)
        return found.astype(np.float32)

    def _csls(self, cosines_nm: Floats, texts_nd: Float32, images_md: Float32) -> Floats:
        texts, images = self._banks()
        if not len(texts) or not len(images):
            return cosines_nm
        of_texts, of_images = self._nearness(texts_nd, images), self._nearness(images_md, texts)
        return cosines_nm - (of_texts[:, None] + of_images[None, :]) / 2 + float(self.level)

    def _nearness(self, rows_nd: Float32, bank_Kd: Float32) -> Float32:
        """Return the mean cosine of each row with its nearest rows of a bank."""
        count = min(self.settings.neighbours, len(bank_Kd))
        cosines_nK = rows_nd @ bank_Kd.T
        nearest: Float32 = np.partition(cosines_nK, -count, axis=1)[:, -count:].mean(axis=1)
        return nearest

    def _banks(self) -> tuple[Float32, Float32]:
        texts, images = (
            bank[: int(count)].cpu().numpy() for bank, count in zip((self.texts, self.images), self.counts, strict=True)
        )
        return texts, images


def half_sinkhorn(scores_nm: Floats) -> Floats:
    """Return the mean of similarities and of what their soft plan makes of them."""
    n, m = scores_nm.shape
    scores = torch.from_numpy(SHARPNESS * scores_nm.astype(np.float64))
    plan = soft_plans(scores[None], torch.tensor([n]), torch.tensor([m]))[0].numpy()
    mean: Floats = (1 - WEIGHT) * scores_nm + WEIGHT * (plan + math.log(max(n, m))) / SHARPNESS
    return mean
