"""NaN has no rank: what takes similarities, vectors or probabilities refuses it with a line instead of a score."""

from collections.abc import Callable

import numpy as np
import pytest

from schemas.messages import UsageError
from training.evaluation.evaluate import evaluate_matrices
from training.metrics.calibration import observe
from training.metrics.links import Group, link_scores, score, score_documents
from training.metrics.relations import relation_scores
from training.metrics.retrieval import Pool, retrieval_scores, score_pairs
from training.metrics.spread import analyse_documents
from training.similarity.similarity import Matching, match, predicted_pairs

LINKS = np.array([[0, 0]])


def pool(value: float) -> Pool:
    vectors = np.array([[1.0, 0.0], [value, 1.0]])
    return Pool(texts=vectors, images=np.eye(2), pairs=np.array([[0, 0], [1, 1]]), documents=np.array([0, 1]))


def group(matrix: np.ndarray) -> list[object]:
    rows, links = [np.arange(2)], [LINKS]
    return list(link_scores(Group(kind="language", name="en", rows=rows, links=links), [matrix]))


MEASURES: dict[str, Callable[[float], object]] = {
    "score": lambda odd: score(np.array([[odd, 0.1], [0.2, 0.3]]), LINKS),
    "score_documents": lambda odd: score_documents([np.array([[0.5, odd]])], [LINKS]),
    "evaluate_matrices": lambda odd: evaluate_matrices(["d"], [np.array([[0.5, odd]])], [LINKS], where="x"),
    "link_scores": lambda odd: group(np.array([[0.5, odd], [0.1, 0.2]])),
    "observe": lambda odd: observe([np.array([[0.5, odd]])], [LINKS]),
    "predicted_pairs": lambda odd: predicted_pairs(np.array([[0.5, odd]])),
    "match": lambda odd: match(np.full((20, 20), odd), 20, Matching.EXACT),
    "score_pairs": lambda odd: score_pairs(pool(odd)),
    "retrieval_scores": lambda odd: retrieval_scores(pool(odd)),
    "relation_scores": lambda odd: list(relation_scores(np.array([[odd], [0.5]]), np.array([[1.0], [0.0]]), ["r"])),
    "analyse_documents": lambda odd: analyse_documents(
        np.array([50.0, 60.0, 70.0]), [np.array([[odd, 1.0], [0.5, 0.5]])] * 3, [np.eye(2)] * 3
    ),
}


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", MEASURES)
def test_what_is_not_finite_is_refused(name: str, odd: float) -> None:
    MEASURES[name](0.25)
    with pytest.raises(UsageError, match="expected finite numbers"):
        MEASURES[name](odd)


def test_assignments_tell_apart_what_float32_does_not() -> None:
    """1 and 1 + 1e-9 are one number in float32."""
    size = 24
    weights = np.ones((size, size))
    order = np.random.default_rng(0).permutation(size)
    weights[np.arange(size), order] += 1e-9
    rows, columns = match(weights, size, Matching.EXACT)
    assert columns[rows.argsort()].tolist() == order.tolist()
