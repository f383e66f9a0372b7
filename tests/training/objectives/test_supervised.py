"""The supervised loss against loops over links."""

import numpy as np
import pytest
import torch

from training.data.ragged import Ragged
from training.objectives.batch import EncodedBatch
from training.objectives.labelled import Supervised, link_loss


def by_loops(matrix: np.ndarray, links: list[tuple[int, int]], margin: float) -> float:
    n, m = matrix.shape
    costs = []
    for i, j in links:
        images = [max(0.0, margin - matrix[i, j] + matrix[i, h]) for h in range(m) if (i, h) not in links]
        sentences = [max(0.0, margin - matrix[i, j] + matrix[h, j]) for h in range(n) if (h, j) not in links]
        costs.append(max(images, default=0.0) + max(sentences, default=0.0))
    return float(np.mean(costs))


@pytest.mark.parametrize(
    "links", [[(0, 0)], [(0, 0), (0, 1), (0, 2)], [(0, 1), (2, 1), (3, 0)], [(i, 2) for i in range(4)]]
)
def test_every_link_against_the_unlinked_of_its_row_and_column(links: list[tuple[int, int]]) -> None:
    matrix = np.random.default_rng(len(links)).uniform(-1, 1, (4, 3))
    found = link_loss(torch.from_numpy(matrix), np.array(links, np.int64), margin=0.2)
    assert float(found) == pytest.approx(by_loops(matrix, links, 0.2))


@pytest.mark.parametrize(("shape", "links"), [((2, 2), []), ((1, 2), [(0, 0), (0, 1)])], ids=["none", "all"])
def test_a_document_without_unlinked_or_linked_pairs_costs_nothing(shape: tuple[int, int], links: list) -> None:
    matrix = torch.ones(shape, requires_grad=True)
    loss = link_loss(matrix, np.array(links, np.int64).reshape(-1, 2), margin=0.2)
    assert float(loss.detach()) == 0
    if loss.requires_grad:
        torch.autograd.backward(loss)
        assert matrix.grad is not None and not matrix.grad.any()


def test_documents_whose_links_are_not_shown_cost_nothing_and_get_no_gradient() -> None:
    texts = torch.eye(4)[:4].clone().requires_grad_()
    images = torch.eye(4)[[1, 0, 3, 2]]
    batch = EncodedBatch(
        ids=("a", "b"),
        text_vectors=texts,
        image_vectors=images,
        sentences=Ragged.of(np.array([2, 2])),
        images=Ragged.of(np.array([2, 2])),
        allowed=~torch.eye(2, dtype=torch.bool),
        links=(np.array([[0, 0]]), None),
    )
    losses = Supervised(margin=0.2).losses(batch)
    assert losses.tolist() == pytest.approx([2.4, 0.0])  # the link's cosine is 0, its rivals' 1
    torch.autograd.backward(losses.sum())
    assert texts.grad is not None and texts.grad[:2].any() and not texts.grad[2:].any()
