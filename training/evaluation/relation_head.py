"""The relations a model predicts, for every text with every image: what `relations.py` needs of a model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from training.evaluation.relations import DIFFICULT_BELOW, REFINEMENT_WEIGHTS, refine_similarities
from training.evaluation.retrieval import Vectors
from training.model import LinkModel

Float32 = npt.NDArray[np.float32]
DEFAULT_WEIGHT = 0.13


@dataclass(frozen=True, slots=True)
class RelationPredictor:
    """A head (N text vectors, N image vectors -> N x R logits) and the names of its R relations."""

    head: nn.Module
    names: tuple[str, ...]

    def pairs(self, texts: Vectors, images: Vectors) -> Float32:
        """Return N x R probabilities of the relations of N texts with N images, row by row."""
        device = next(self.head.parameters()).device
        with torch.inference_mode():
            left, right = (torch.from_numpy(np.ascontiguousarray(rows)).float().to(device) for rows in (texts, images))
            found: Float32 = torch.sigmoid(self.head(left, right)).cpu().numpy()
        return found

    def crossed(self, texts: Vectors, images: Vectors) -> Float32:
        """Return Q x C x R probabilities of Q texts, each with all C images."""
        rows = [self.pairs(np.repeat(text[None], len(images), axis=0), images) for text in texts]
        return np.stack(rows)


def relation_predictor(model: LinkModel) -> RelationPredictor | None:
    """Return what a model predicts relations by; None for one that was not trained to."""
    return None if model.relations is None else RelationPredictor(model.relations, model.card.relations)


@dataclass(frozen=True, slots=True)
class Refinement:
    """Selective similarity refinement (Alikhani 2022, eq. 4-6) as `retrieval_scores` takes it."""

    predictor: RelationPredictor
    weight: float = DEFAULT_WEIGHT
    difficult_below: float = DIFFICULT_BELOW

    def __call__(self, similarities: Vectors, texts: Vectors, images: Vectors) -> Vectors:
        """Return Q x C refined similarities; relations are predicted for the difficult texts alone."""
        if similarities.shape[1] < 2:
            return similarities
        top = np.partition(similarities, -2, axis=1)[:, -2:]
        rows = np.flatnonzero(top[:, 1] - top[:, 0] < self.difficult_below)
        refined = np.asarray(similarities, dtype=np.float64).copy()
        for row in rows:
            probabilities = self.predictor.crossed(texts[row : row + 1], images)
            refined[row] = refine_similarities(
                refined[row : row + 1], probabilities, weight=self.weight, difficult_below=self.difficult_below
            )[0]
        return refined


def refinement(predictor: RelationPredictor, dataset: str) -> Refinement:
    """Return the refinement with the paper's weight for a data set, or the one of CITE++ for another."""
    return Refinement(predictor, REFINEMENT_WEIGHTS.get(dataset, DEFAULT_WEIGHT))
