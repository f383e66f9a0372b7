from itertools import combinations, permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from training.config import Combine, Matching, Similarity
from training.data.ragged import Ragged
from training.similarity.assignment import edge_counts
from training.similarity.sets import blocks_similarity, own_similarity, set_similarity

MATRIX = torch.tensor([[0.9, 0.1, -0.2], [0.8, 0.3, -0.4]])
SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=4)


def unit_rows(count: int, seed: int) -> torch.Tensor:
    rows = np.random.default_rng(seed).normal(size=(count, 6))
    return torch.from_numpy(rows / np.linalg.norm(rows, axis=1, keepdims=True)).requires_grad_()


@pytest.mark.parametrize(
    ("kind", "k", "combine", "matching", "expected"),
    [
        # row maxima 0.9 0.8, column maxima 0.9 0.3 -0.2
        (Similarity.DC, "min", Combine.SUM, Matching.EXACT, 1.7 / 2 + 1.0 / 3),
        (Similarity.DC, "min", Combine.MEAN, Matching.EXACT, (1.7 / 2 + 1.0 / 3) / 2),
        (Similarity.TK, "min", Combine.SUM, Matching.EXACT, 1.7 / 2 + 1.2 / 2),
        (Similarity.TK, "half", Combine.SUM, Matching.EXACT, 0.9 + 0.9),
        (Similarity.AP, "min", Combine.SUM, Matching.EXACT, (0.9 + 0.3) / 2),
        (Similarity.AP, "1", Combine.SUM, Matching.EXACT, 0.9),
    ],
)
def test_worked_example(kind: Similarity, k: str, combine: Combine, matching: Matching, expected: float) -> None:
    assert float(set_similarity(MATRIX, kind, k, combine, matching)) == pytest.approx(expected)


def test_at_most_divides_by_what_it_selects() -> None:
    matrix = torch.tensor([[0.6, -0.5], [-0.5, -0.9]])
    assert float(set_similarity(matrix, Similarity.AP, matching=Matching.EXACT)) == pytest.approx(-0.3 / 2)
    assert float(set_similarity(matrix, Similarity.AP, matching=Matching.AT_MOST)) == pytest.approx(0.6)
    assert float(set_similarity(-matrix.abs(), Similarity.AP, matching=Matching.AT_MOST)) == 0.0


def test_negative_top_k_takes_the_smallest_minima() -> None:
    # row minima -0.2 -0.4, column minima 0.8 0.1 -0.4
    expected = (-0.2 - 0.4) / 2 + (-0.4 + 0.1) / 2
    assert float(set_similarity(MATRIX, Similarity.NEG_TK)) == pytest.approx(expected)
    averaged = set_similarity(MATRIX, Similarity.NEG_TK, combine=Combine.MEAN)
    assert float(averaged) == pytest.approx(expected / 2)
    assert float(set_similarity(MATRIX, Similarity.NEG_TK, "1")) == pytest.approx(-0.4 - 0.4)


def test_dc_equals_tk_for_square_matrices_with_all_maxima() -> None:
    matrix = unit_rows(4, 0) @ unit_rows(4, 1).T
    assert torch.allclose(set_similarity(matrix, Similarity.DC), set_similarity(matrix, Similarity.TK))


def best_mean(matrix: np.ndarray, counts: range) -> float:
    """The mean over the edges of the matching with the largest sum, of those with so many edges, by trying them all."""
    n, m = matrix.shape
    found = [
        [matrix[row, column] for row, column in zip(rows, columns, strict=True)]
        for count in counts
        for rows in combinations(range(n), count)
        for columns in permutations(range(m), count)
    ]
    best = max(found, key=sum)
    return sum(best) / max(len(best), 1)


@pytest.mark.parametrize("shape", [(1, 1), (3, 4), (4, 2)])
@pytest.mark.parametrize("k", ["min", "half", "0.3", "1", "2"])
def test_ap_by_trying_all_matchings(shape: tuple[int, int], k: str) -> None:
    for seed in range(5):
        matrix = np.random.default_rng(seed).uniform(-1, 1, shape)
        count = int(edge_counts(*shape, k))
        exact = set_similarity(torch.from_numpy(matrix), Similarity.AP, k, matching=Matching.EXACT)
        at_most = set_similarity(torch.from_numpy(matrix), Similarity.AP, k, matching=Matching.AT_MOST)
        assert float(exact) == pytest.approx(best_mean(matrix, range(count, count + 1)))
        assert float(at_most) == pytest.approx(best_mean(matrix, range(count + 1)))


@settings(max_examples=60)
@given(
    sentences=SIZES,
    images=SIZES,
    kind=st.sampled_from(Similarity),
    k=st.sampled_from(["min", "half", "0.3", "2"]),
    combine=st.sampled_from(Combine),
    matching=st.sampled_from(Matching),
    seed=st.integers(0, 1000),
)
def test_batch_equals_one_pair_at_a_time(
    *,
    sentences: list[int],
    images: list[int],
    kind: Similarity,
    k: str,
    combine: Combine,
    matching: Matching,
    seed: int,
) -> None:
    text, image = unit_rows(sum(sentences), seed), unit_rows(sum(images), seed + 1)
    sentence_sets, image_sets = Ragged.of(sentences), Ragged.of(images)
    whole = blocks_similarity(text @ image.T, sentence_sets, image_sets, kind, k=k, combine=combine, matching=matching)
    weights = torch.linspace(-1, 2, whole.numel(), dtype=torch.float64).view_as(whole)
    pairs = torch.stack(
        [
            set_similarity(rows @ columns.T, kind, k, combine, matching)
            for rows in text.split(sentences)
            for columns in image.split(images)
        ]
    ).view_as(whole)
    assert torch.allclose(whole, pairs)
    for tower in (text, image):
        expected = torch.autograd.grad((pairs * weights).sum(), tower, retain_graph=True)[0]
        found = torch.autograd.grad((whole * weights).sum(), tower, retain_graph=True)[0]
        assert torch.allclose(found, expected)


@settings(max_examples=40)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=4),
    kind=st.sampled_from(Similarity),
    k=st.sampled_from(["min", "half", "0.3", "2"]),
    combine=st.sampled_from(Combine),
    matching=st.sampled_from(Matching),
)
def test_own_pairs_are_the_diagonal(
    *, sizes: list[tuple[int, int]], kind: Similarity, k: str, combine: Combine, matching: Matching
) -> None:
    sentences, images = [n for n, _ in sizes], [m for _, m in sizes]
    text, image = unit_rows(sum(sentences), 1), unit_rows(sum(images), 2)
    sets = Ragged.of(sentences), Ragged.of(images)
    own = own_similarity(text @ image.T, *sets, kind, k=k, combine=combine, matching=matching)
    expected = blocks_similarity(text @ image.T, *sets, kind, k=k, combine=combine, matching=matching).diagonal()
    assert torch.allclose(own, expected)
    weights = torch.linspace(1, 2, len(own), dtype=torch.float64)
    for tower in (text, image):
        found = torch.autograd.grad((own * weights).sum(), tower, retain_graph=True)[0]
        assert torch.allclose(found, torch.autograd.grad((expected * weights).sum(), tower, retain_graph=True)[0])


@pytest.mark.parametrize("kind", list(Similarity))
def test_gradient_is_the_derivative(kind: Similarity) -> None:
    text, image = unit_rows(7, 3), unit_rows(6, 4)
    sentence_sets, image_sets = Ragged.of([3, 4]), Ragged.of([2, 4])

    def similarity(rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        return blocks_similarity(rows @ columns.T, sentence_sets, image_sets, kind, k="half")

    assert torch.autograd.gradcheck(similarity, (text, image))


def test_ap_gradient_reaches_selected_entries_alone() -> None:
    matrix = MATRIX.clone().requires_grad_()
    set_similarity(matrix, Similarity.AP).backward()
    assert matrix.grad is not None
    assert torch.equal(matrix.grad, torch.tensor([[0.5, 0.0, 0.0], [0.0, 0.5, 0.0]]))


@pytest.mark.parametrize("kind", Similarity)
def test_plain_names_are_taken_and_others_refused(kind: Similarity) -> None:
    matrix = torch.from_numpy(np.random.default_rng(0).normal(size=(4, 3)))
    sets = Ragged.of([4]), Ragged.of([3])
    expected = set_similarity(matrix, kind, "2", Combine.MEAN, Matching.AT_MOST)
    assert torch.equal(set_similarity(matrix, kind.value, "2", "mean", "at_most"), expected)
    for of_blocks in (blocks_similarity, own_similarity):
        found = of_blocks(matrix, *sets, kind.value, k="2", combine="mean", matching="at_most")
        assert torch.allclose(found.flatten(), expected[None])
    with pytest.raises(ValueError, match="'best' is not a valid Similarity"):
        set_similarity(matrix, "best")
