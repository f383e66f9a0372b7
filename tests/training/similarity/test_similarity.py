"""Assignments by trying them all; similarities of a batch beside those of one pair at a time."""

from itertools import combinations, permutations, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from lapjv import lapjv
from scipy.optimize import linear_sum_assignment
from set_similarity import KINDS, set_similarity

from schemas.messages import ConfigError
from schemas.plugins import SIMILARITIES, find_part
from training.data.ragged import Ragged
from training.similarity.similarity import (
    Combine,
    Matching,
    SetSimilarity,
    Tk,
    edge_counts,
    match,
    match_pairs,
    predicted_pairs,
)

SHAPES = st.tuples(st.integers(1, 5), st.integers(1, 5))
WEIGHTS = SHAPES.flatmap(lambda shape: arrays(np.float64, shape, elements=st.integers(-8, 8).map(lambda x: x / 8)))


def best_sum(weights: np.ndarray, edges: int) -> float:
    """The largest sum of exactly `edges` entries, no two in a row or column, by trying them all."""
    n, m = weights.shape
    return max(
        sum(weights[row, column] for row, column in zip(rows, columns, strict=True))
        for rows in combinations(range(n), edges)
        for columns in permutations(range(m), edges)
    )


@given(WEIGHTS, st.data())
def test_exact_matching_has_the_largest_sum_of_exactly_k_edges(weights: np.ndarray, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, min(weights.shape)))
    rows, columns = match(weights, k, Matching.EXACT)
    assert len(set(rows)) == len(set(columns)) == len(rows) == k
    assert weights[rows, columns].sum() == pytest.approx(best_sum(weights, k))


@given(WEIGHTS, st.data())
def test_at_most_matching_has_the_largest_sum_of_up_to_k_edges(weights: np.ndarray, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, min(weights.shape)))
    rows, columns = match(weights, k, Matching.AT_MOST)
    assert len(set(rows)) == len(set(columns)) == len(rows) <= k
    assert (weights[rows, columns] >= 0).all()
    assert weights[rows, columns].sum() == pytest.approx(max(best_sum(weights, edges) for edges in range(k + 1)))


@pytest.mark.parametrize("size", [12, 33, 64])
@pytest.mark.parametrize("decimals", [1, 9])
def test_a_matching_is_as_good_as_that_of_the_solver_of_hessel_et_al(size: int, decimals: int) -> None:
    weights = np.random.default_rng(0).uniform(-1, 1, (size, size)).round(decimals)
    rows, columns = match(weights, size, Matching.EXACT)
    theirs = lapjv(-weights, force_doubles=True)[0]
    assert len(set(rows)) == len(set(columns)) == size
    assert weights[rows, columns].sum() == pytest.approx(weights[np.arange(size), theirs].sum())


RANDOM = np.random.default_rng(0)
ODD = {
    "equal": np.full((40, 44), 0.3),
    "of rank one": np.outer(RANDOM.random(100), RANDOM.random(100)),
    "of many orders of magnitude": 10.0 ** RANDOM.uniform(-18, 18, (40, 40)) * RANDOM.choice([-1, 1], (40, 40)),
    "huge": RANDOM.choice([1e300, -1e300, 0, 1e-300], (15, 17)),
    "denormal": RANDOM.integers(0, 5, (16, 16)) * 5e-324,
}


@pytest.mark.parametrize("kind", ODD)
def test_a_matching_of_odd_weights_ends_with_the_edges_that_were_asked_for(kind: str) -> None:
    weights = ODD[kind]
    most = min(weights.shape)
    for edges in (most, most // 2):
        rows, columns = match(weights, edges, Matching.EXACT)
        assert len(set(rows)) == len(set(columns)) == len(rows) == edges
    best = weights[linear_sum_assignment(weights, maximize=True)].sum()
    rows, columns = match(weights, most, Matching.EXACT)
    assert weights[rows, columns].sum() >= best - 1e-9 * abs(weights).max()


def test_at_most_leaves_out_what_is_below_zero_and_keeps_zero() -> None:
    """The number of edges is what the sum is divided by."""
    rows, columns = match(np.array([[0.0, -1.0, -1.0], [-1.0, -0.5, -1.0], [-1.0, -1.0, 0.5]]), 3, "at_most")
    assert (rows.tolist(), columns.tolist()) == ([0, 2], [0, 2])


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0)])
def test_a_document_without_sentences_or_images_has_no_links(shape: tuple[int, int]) -> None:
    rows, columns = predicted_pairs(np.zeros(shape))
    assert rows.tolist() == columns.tolist() == [] and rows.dtype == columns.dtype == np.int64


def test_equal_similarities_do_not_go_by_the_order_of_sentences_and_images() -> None:
    """A model that knows nothing would be right wherever documents are in order."""
    on_diagonal = [np.equal(*predicted_pairs(np.zeros((count, count)))).mean() for count in range(2, 40)]
    assert np.mean(on_diagonal) < 0.3


@pytest.mark.parametrize("odd", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize(("others", "expected"), [([0.2, 0.3, 0.1], [1, 2]), ([-0.2, -0.3, 0.1], [0, 3])])
def test_what_is_not_finite_counts_as_zero(odd: float, others: list[float], expected: list[int]) -> None:
    weights = torch.tensor([odd, *others]).reshape(2, 2)
    for matrix in (weights, weights.double(), weights.bfloat16()):
        edges = match_pairs(matrix, [(slice(0, 2), slice(0, 2))], np.array([2]), Matching.EXACT)
        assert edges.entries.tolist() == expected


@settings(max_examples=25)
@given(
    sizes=st.tuples(*[st.lists(st.integers(1, 5), min_size=1, max_size=4)] * 2),
    k=st.sampled_from(["min", "half", "0.01"]),
    matching=st.sampled_from(Matching),
    seed=st.integers(0, 1000),
)
def test_each_pair_of_a_batch_is_matched_as_its_block_is(
    sizes: tuple[list[int], list[int]], k: str, matching: Matching, seed: int
) -> None:
    sentences, images = map(Ragged.of, sizes)
    weights = np.random.default_rng(seed).uniform(-1, 1, (sentences.total, images.total))
    pairs = list(product(sentences, images))
    counts = edge_counts(sentences.counts[:, None], images.counts, k).ravel()
    found = match_pairs(torch.from_numpy(weights), pairs, counts, matching)
    for number, (block, count) in enumerate(zip(pairs, counts.tolist(), strict=True)):
        rows, columns = match(weights[block], count, matching)
        expected = (block[0].start + rows) * images.total + block[1].start + columns
        assert sorted(found.entries[found.pairs == number].tolist()) == expected.tolist()


@pytest.mark.parametrize(
    ("k", "n", "m", "expected"),
    [
        ("min", 5, 3, 3),
        ("half", 5, 3, 2),
        ("half", 4, 4, 2),
        ("half", 1, 9, 1),
        ("0.25", 8, 9, 2),
        ("0.3", 10, 10, 3),
        ("0.01", 5, 5, 1),
        ("2", 5, 3, 2),
        ("9", 5, 3, 3),
        ("1", 5, 3, 1),
    ],
)
def test_edge_counts(k: str, n: int, m: int, expected: int) -> None:
    assert edge_counts(n, m, k) == expected


MATRIX = torch.tensor([[0.9, 0.1, -0.2], [0.8, 0.3, -0.4]])
SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=4)


def unit_rows(count: int, seed: int) -> torch.Tensor:
    rows = np.random.default_rng(seed).normal(size=(count, 6))
    return torch.from_numpy(rows / np.linalg.norm(rows, axis=1, keepdims=True)).requires_grad_()


def similarity_of(kind: str, k: str = "min", combine: str = "sum", matching: str = "exact") -> SetSimilarity:
    """Return a similarity with those of the settings that it has."""
    settings = {"k": k, "combine": combine, "matching": matching}
    part = find_part(SIMILARITIES, kind)
    return part(**{name: value for name, value in settings.items() if hasattr(part, name)})


@pytest.mark.parametrize(
    ("kind", "k", "combine", "matching", "expected"),
    [
        # row maxima 0.9 0.8, column maxima 0.9 0.3 -0.2
        ("dc", "min", Combine.SUM, Matching.EXACT, 1.7 / 2 + 1.0 / 3),
        ("dc", "min", Combine.MEAN, Matching.EXACT, (1.7 / 2 + 1.0 / 3) / 2),
        ("tk", "min", Combine.SUM, Matching.EXACT, 1.7 / 2 + 1.2 / 2),
        ("tk", "half", Combine.SUM, Matching.EXACT, 0.9 + 0.9),
        ("ap", "min", Combine.SUM, Matching.EXACT, (0.9 + 0.3) / 2),
        ("ap", "1", Combine.SUM, Matching.EXACT, 0.9),
    ],
)
def test_worked_example(kind: str, k: str, combine: Combine, matching: Matching, expected: float) -> None:
    assert float(set_similarity(MATRIX, kind, k, combine, matching)) == pytest.approx(expected)


def test_at_most_divides_by_what_it_selects() -> None:
    matrix = torch.tensor([[0.6, -0.5], [-0.5, -0.9]])
    assert float(set_similarity(matrix, "ap", matching=Matching.EXACT)) == pytest.approx(-0.3 / 2)
    assert float(set_similarity(matrix, "ap", matching=Matching.AT_MOST)) == pytest.approx(0.6)
    assert float(set_similarity(-matrix.abs(), "ap", matching=Matching.AT_MOST)) == 0.0


def test_the_opposite_of_top_k_takes_the_smallest_minima() -> None:
    """NegTK of Li 2022, as the intra-document term has it: -TK(-M)."""
    sets = Ragged.of([2]), Ragged.of([3])

    def negative(**settings: str) -> float:
        return -float(Tk(**settings).own(-MATRIX, *sets))  # type: ignore[arg-type]

    # row minima -0.2 -0.4, column minima 0.8 0.1 -0.4
    expected = (-0.2 - 0.4) / 2 + (-0.4 + 0.1) / 2
    assert negative() == pytest.approx(expected)
    assert negative(combine="mean") == pytest.approx(expected / 2)
    assert negative(k="1") == pytest.approx(-0.4 - 0.4)


@settings(max_examples=60)
@given(
    sentences=SIZES,
    images=SIZES,
    kind=st.sampled_from(KINDS),
    k=st.sampled_from(["min", "half", "0.3", "2"]),
    combine=st.sampled_from(Combine),
    matching=st.sampled_from(Matching),
    seed=st.integers(0, 1000),
)
def test_batch_equals_one_pair_at_a_time(
    *,
    sentences: list[int],
    images: list[int],
    kind: str,
    k: str,
    combine: Combine,
    matching: Matching,
    seed: int,
) -> None:
    text, image = unit_rows(sum(sentences), seed), unit_rows(sum(images), seed + 1)
    sentence_sets, image_sets = Ragged.of(sentences), Ragged.of(images)
    whole = similarity_of(kind, k, combine, matching).blocks(text @ image.T, sentence_sets, image_sets)
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
    kind=st.sampled_from(KINDS),
    k=st.sampled_from(["min", "half", "0.3", "2"]),
    combine=st.sampled_from(Combine),
    matching=st.sampled_from(Matching),
)
def test_own_pairs_are_the_diagonal(
    *, sizes: list[tuple[int, int]], kind: str, k: str, combine: Combine, matching: Matching
) -> None:
    sentences, images = [n for n, _ in sizes], [m for _, m in sizes]
    text, image = unit_rows(sum(sentences), 1), unit_rows(sum(images), 2)
    sets = Ragged.of(sentences), Ragged.of(images)
    similarity = similarity_of(kind, k, combine, matching)
    own, expected = similarity.own(text @ image.T, *sets), similarity.blocks(text @ image.T, *sets).diagonal()
    assert torch.allclose(own, expected)
    weights = torch.linspace(1, 2, len(own), dtype=torch.float64)
    for tower in (text, image):
        found = torch.autograd.grad((own * weights).sum(), tower, retain_graph=True)[0]
        assert torch.allclose(found, torch.autograd.grad((expected * weights).sum(), tower, retain_graph=True)[0])


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_is_the_derivative(kind: str) -> None:
    text, image = unit_rows(7, 3), unit_rows(6, 4)
    sentence_sets, image_sets = Ragged.of([3, 4]), Ragged.of([2, 4])

    def similarity(rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        return similarity_of(kind, "half").blocks(rows @ columns.T, sentence_sets, image_sets)

    assert torch.autograd.gradcheck(similarity, (text, image))


@pytest.mark.parametrize(("kind", "setting"), [("tk", {"k": "0"}), ("ap", {"k": "1.5"}), ("tk", {"combine": "best"})])
def test_settings_of_no_meaning_are_refused(kind: str, setting: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"objective\.similarity\.(k|combine) = '"):
        find_part(SIMILARITIES, kind)(**setting)
