"""Two affine maps without gradients: directions of sentences and of images that go together in documents, by turns.

    P_d  <- how much of each sentence of document d goes to each of its images: all alike at the start of a path, later
            the soft plan of the maps' cosines, times a sharpness that rises from pass to pass
    C    =  sum over documents of X_d^T P_d V_d, each document's plan of weight 1
    U, S, V = SVD of Wx C Wv, where W is the inverse root of a covariance with a regularisation that falls
    maps <- Wx U g and Wv V g with g = sqrt(S / S[0])

A pass reads every document once and adds up one small matrix (`passes.py`). What a pass needs of those before is in the
maps alone, so that a run resumes from its model; the sums of the vectors themselves are made once a process.

Shape suffixes: N sentences, M images, V numbers of a vector, K of an input (`inputs.py`), D of the joint space, B
documents, n and m sentences and images of the largest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from training.closed_form.inputs import Column, Inputs, inputs_from, inverse_root, sums_of
from training.closed_form.passes import Sets, on, sentence_vectors, shared, summed
from training.closed_form.plans import pair_weights
from training.data.ragged import to_device
from training.data.split import TrainingSplit
from training.similarity.segments import padding
from training.towers.inputs import Tower, VectorRows, Workers

Watch = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """What a pass over the data is made with.

    Attributes:
        regularisation: what is added to covariances, in mean eigenvalues.
        sharpness: what cosines are multiplied with before the plan; None: plans are all alike.
    """

    regularisation: float
    sharpness: float | None


@dataclass(slots=True, kw_only=True)
class Solver:
    """Solves for the maps of two towers.

    Attributes:
        text: an affine map of sentence vectors.
        image: an affine map of image vectors.
        split: training documents.
        workers: share the work.
        components: how many principal components are read of sentence and of image vectors.
        pass_of: gives what an epoch (from 1) is made with.
    """

    text: Tower
    image: Tower
    split: TrainingSplit
    workers: Workers
    components: tuple[int, int]
    pass_of: Callable[[int], Pass]
    _inputs: tuple[Inputs, Inputs] | None = field(default=None, init=False)

    def take(self, epoch: int, watch: Watch) -> dict[str, float]:
        """Take one pass and set the towers' maps; return its loss, regularisation and sharpness.

        The loss is that of the maps before the pass: the mean over documents of minus the weighted cosine of its pairs.
        """
        step = self.pass_of(epoch)
        self.text.eval()
        self.image.eval()
        texts, images = self.inputs
        sizes = (texts.whitening.shape[1], images.whitening.shape[1])

        def of_documents(sets: Sets) -> Tensor:
            watch(len(sets.sentences))
            return self._products(sets, step)

        like = torch.zeros(2 + sizes[0] * sizes[1], dtype=torch.float64, device=self.workers.device)
        total = summed(self.split, self.workers, of_documents, like)
        self._solve(total[2:].view(sizes), step.regularisation)
        known = {"train_loss": -float(total[1] / total[0]), "regularisation": step.regularisation}
        return known if step.sharpness is None else known | {"sharpness": step.sharpness}

    @property
    def inputs(self) -> tuple[Inputs, Inputs]:
        """Return the inputs of sentences and of images, from a pass of their own the first time."""
        if self._inputs is None:
            example = self.split.documents(self.split.index.usable[:1])
            sizes = (sentence_vectors(example).shape[1], example.image_bank.shape[1])
            counts = [(1 + size) ** 2 for size in sizes]
            like = torch.zeros(sum(counts), dtype=torch.float64, device=self.workers.device)
            sums = torch.split(summed(self.split, self.workers, self._moments, like), counts)
            text, image = (
                inputs_from(each.view(1 + size, 1 + size), [Column(size=size, components=kept)], what=what)
                for each, size, kept, what in zip(sums, sizes, self.components, ("sentences", "images"), strict=True)
            )
            self._inputs = (text, image)
        return self._inputs

    def _moments(self, sets: Sets) -> Tensor:
        both = (sums_of(on(rows, self.workers)) for rows in (sets.texts, sets.places))
        return torch.cat([sums.flatten() for sums in both])

    def _products(self, sets: Sets, step: Pass) -> Tensor:
        """Return the number of documents, the sum of their weighted cosines, and K x K of `x_s^T P_si v_i`."""
        with torch.inference_mode():
            text_ND, image_MD = self.text(VectorRows(sets.texts)), self.image(VectorRows(sets.places))
        text_places, _ = padding(sets.sentences, self.workers.device)
        image_places, _ = padding(sets.images, self.workers.device)
        cosines_Bnm = text_ND[text_places] @ image_MD[image_places].transpose(1, 2)
        weights_Bnm = pair_weights(cosines_Bnm, sets.sentences, sets.images, step.sharpness)
        texts, images = self.inputs
        x_NK, v_MK = texts.of(on(sets.texts, self.workers)), images.of(on(sets.places, self.workers))
        partners_BnK = weights_Bnm @ v_MK[image_places]
        n_B = to_device(sets.sentences.counts, self.workers.device)
        is_row_Bn = torch.arange(text_places.shape[1], device=n_B.device)[None, :] < n_B[:, None]
        product_KK = x_NK.T @ partners_BnK[is_row_Bn]
        known = torch.stack([n_B.new_tensor(len(n_B)).float(), (weights_Bnm * cosines_Bnm).sum()])
        return torch.cat([known, product_KK.flatten()]).double()

    def _solve(self, product_KK: Tensor, regularisation: float) -> None:
        """Set the maps of both towers from the sum of the documents' products."""
        texts, images = self.inputs
        roots = [inverse_root(each.covariance, regularisation) for each in (texts, images)]
        u, s, vt = torch.linalg.svd(roots[0] @ product_KK @ roots[1], full_matrices=False)
        strength = (s / s[0].clamp(min=torch.finfo(s.dtype).tiny)).sqrt()
        for tower, inputs, root, sides in zip((self.text, self.image), (texts, images), roots, (u, vt.T), strict=True):
            weights_VD = shared(inputs.whitening @ root @ (sides * strength), self.workers)
            tower.set_map(weights_VD.T, -(inputs.mean @ weights_VD))
