"""Predicted relations of texts with images, and refinement that predicts them for difficult texts alone."""

import numpy as np
import torch
from torch import nn

from training.evaluation.relation_head import Refinement, RelationPredictor, refinement
from training.evaluation.relations import refine_similarities


class Head(nn.Module):
    """One affine map of both vectors, as the models' own."""

    def __init__(self, dimensions, relations):
        super().__init__()
        self.affine = nn.Linear(2 * dimensions, relations)
        self.rows = 0

    def forward(self, texts, images):
        self.rows += len(texts)
        return self.affine(torch.cat([texts, images], dim=1))


def made(texts=6, images=5):
    torch.manual_seed(0)
    numbers = np.random.default_rng(0)
    vectors = (numbers.normal(size=(count, 4)).astype(np.float32) for count in (texts, images))
    text, image = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in vectors)
    return RelationPredictor(Head(4, 3), ("a", "b", "c")), text, image


def test_crossed_probabilities_are_those_of_every_pair():
    predictor, texts, images = made()
    crossed = predictor.crossed(texts, images)
    assert crossed.shape == (6, 5, 3) and (crossed > 0).all() and (crossed < 1).all()
    assert np.allclose(crossed[2, 3], predictor.pairs(texts[2:3], images[3:4])[0])


def test_refinement_is_the_formula_on_difficult_rows_and_predicts_no_others():
    predictor, texts, images = made()
    similarities = texts @ images.T
    expected = refine_similarities(similarities, predictor.crossed(texts, images), weight=0.12, difficult_below=0.2)
    predictor.head.rows = 0
    found = Refinement(predictor, weight=0.12, difficult_below=0.2)(similarities, texts, images)
    assert np.allclose(found, expected)
    changed = int((expected != similarities).any(axis=1).sum())
    assert 0 < changed < 6 and predictor.head.rows == changed * 5


def test_the_papers_weights():
    predictor, _, _ = made()
    assert [refinement(predictor, name).weight for name in ("cite", "clue", "mine")] == [0.13, 0.12, 0.13]
