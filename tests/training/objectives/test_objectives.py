"""Which negatives count, what is drawn, and the supervised loss against loops over links."""

from collections import Counter

import numpy as np
import pytest
import torch

from training.data.documents import DocumentSet
from training.data.ragged import Ragged
from training.objectives.batch import DrawKey, EncodedBatch
from training.objectives.labelled import Supervised, link_loss
from training.objectives.ranking import Negatives, NoStruct, cross_document_losses

SIMILARITY = torch.tensor([[0.5, 0.4, 0.1], [0.6, 0.7, 0.2], [0.0, 0.3, 0.9]])
OTHERS = ~torch.eye(3, dtype=torch.bool)


def test_a_version_of_the_same_image_set_is_no_negative() -> None:
    allowed = OTHERS.clone()
    allowed[0, 1] = allowed[1, 0] = False
    assert cross_document_losses(SIMILARITY, allowed, margin=0.2).tolist() == pytest.approx([0.0, 0.0, 0.0])
    loose = cross_document_losses(SIMILARITY, allowed, margin=1.0, negatives=Negatives.MEAN)
    assert loose[0] == pytest.approx(0.6 + 0.5)
    nothing = torch.zeros((3, 3), dtype=torch.bool)
    for negatives in Negatives:
        assert not cross_document_losses(SIMILARITY, nothing, margin=1.0, negatives=negatives).any()


def documents(count: int = 30) -> DocumentSet:
    sentences, images = [1 + i % 4 for i in range(count)], [1 + i % 3 for i in range(count)]
    return DocumentSet(
        ids=tuple(f"d{i}" for i in range(count)),
        texts=("",) * sum(sentences),
        sentences=Ragged.of(sentences),
        sentence_numbers=Ragged.of(sentences).numbers,
        sentence_vectors=None,
        image_rows=np.zeros(sum(images), np.int64),
        images=Ragged.of(images),
        image_hashes=("x",),
        image_bank=np.zeros((1, 2), np.float16),
    )


def draw_key(step: int = 0) -> DrawKey:
    return DrawKey(split="training", epoch=1, step=step)


def test_nostruct_draws_one_of_each_document_s_own() -> None:
    given = documents()
    term = NoStruct()
    rows = np.arange(30)
    choice = term.choose(given, rows, draw_key())
    assert (choice.sentence_rows >= given.sentences.offsets[rows]).all()
    assert (choice.sentence_rows < given.sentences.offsets[rows + 1]).all()
    assert (choice.image_rows >= given.images.offsets[rows]).all()
    assert (choice.image_rows < given.images.offsets[rows + 1]).all()
    assert choice.sentences.counts.tolist() == choice.images.counts.tolist() == [1] * 30


def test_nostruct_draws_depend_on_the_document_and_the_moment_alone() -> None:
    term = NoStruct()
    given = documents()
    together = term.choose(given, np.arange(30), draw_key())
    for row in (3, 17):
        alone = term.choose(given, np.array([row]), draw_key())
        assert alone.sentence_rows[0] == together.sentence_rows[row]
        assert alone.image_rows[0] == together.image_rows[row]
    other = term.choose(given, np.arange(30), draw_key(step=1))
    assert (other.sentence_rows != together.sentence_rows).any()
    assert term.choose(given, np.array([], np.int64), draw_key()).sentence_rows.shape == (0,)


def test_nostruct_draws_are_uniform() -> None:
    term = NoStruct()
    drawn = Counter(
        int(term.choose(documents(4), np.array([3]), draw_key(step)).sentence_rows[0] - 6) for step in range(2000)
    )
    assert sorted(drawn) == [0, 1, 2, 3]
    assert all(abs(count - 500) < 100 for count in drawn.values())


@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_nostruct_compares_scaled_cosines(scale: float) -> None:
    term = NoStruct(cosine_scale=scale)
    text, image = torch.eye(3), torch.tensor([[0.6, 0.8, 0.0], [0.8, 0.6, 0.0], [0.0, 0.0, 1.0]])
    ones = Ragged.of([1, 1, 1])
    batch = EncodedBatch(
        ids=("a", "b", "c"), text_vectors=text, image_vectors=image, sentences=ones, images=ones, allowed=OTHERS
    )
    expected = cross_document_losses(scale * text @ image.T, OTHERS, margin=0.2, negatives=Negatives.MEAN)
    assert torch.allclose(term.losses(batch), expected)


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
