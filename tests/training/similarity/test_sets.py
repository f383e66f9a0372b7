from itertools import combinations, permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from set_similarity import KINDS, set_similarity

from schemas.errors import ConfigError
from schemas.plugins import SIMILARITIES, find_part
from training.data.ragged import Ragged
from training.similarity.assignment import Matching
from training.similarity.similarity import Combine, SetSimilarity, Tk, edge_counts

MATRIX = torch.tensor([[0.9, 0.1, -0.2], [0.8, 0.3, -0.4]])
SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=4)


def unit_rows(count: int, seed: int) -> torch.Tensor:
    rows = np.random.default_rng(seed).normal(size=(count, 6))
    return torch.from_numpy(rows / np.linalg.norm(rows, axis=1, keepdims=True)).requires_grad_()


def similarity_of(kind: str, k: str = "min", combine: str = "sum", matching: str = "exact") -> SetSimilarity:
    """Return a similarity with those of the settings that it has."""
    settings = {"k": k, "combine": combine, "matching": matching}
    part = find_part(SIMILARITIES, kind)
    found = part(**{name: value for name, value in settings.items() if hasattr(part, name)})
    return found


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


def test_dc_equals_tk_for_square_matrices_with_all_maxima() -> None:
    matrix = unit_rows(4, 0) @ unit_rows(4, 1).T
    assert torch.allclose(set_similarity(matrix, "dc"), set_similarity(matrix, "tk"))


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
        exact = set_similarity(torch.from_numpy(matrix), "ap", k, matching=Matching.EXACT)
        at_most = set_similarity(torch.from_numpy(matrix), "ap", k, matching=Matching.AT_MOST)
        assert float(exact) == pytest.approx(best_mean(matrix, range(count, count + 1)))
        assert float(at_most) == pytest.approx(best_mean(matrix, range(count + 1)))


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


def test_ap_gradient_reaches_selected_entries_alone() -> None:
    matrix = MATRIX.clone().requires_grad_()
    set_similarity(matrix, "ap").backward()
    assert torch.equal(matrix.grad, torch.tensor([[0.5, 0.0, 0.0], [0.0, 0.5, 0.0]]))


@pytest.mark.parametrize(("kind", "setting"), [("tk", {"k": "0"}), ("ap", {"k": "1.5"}), ("tk", {"combine": "best"})])
def test_settings_of_no_meaning_are_refused(kind: str, setting: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"objective\.similarity\.(k|combine) = '"):
        find_part(SIMILARITIES, kind)(**setting)
