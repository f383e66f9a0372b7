import numpy as np
import pytest
import torch
from torch import nn

from training.towers.dropout import RowDropout, drawing, salt_dropouts

CPU = torch.device("cpu")


def masks(layer: RowDropout, seed: int, numbers: list[int], width: int = 50) -> torch.Tensor:
    with drawing(seed, np.array(numbers), CPU):
        return layer(torch.ones(len(numbers), width))


def test_a_row_s_mask_is_its_own_whatever_is_beside_it() -> None:
    layer = RowDropout(0.4)
    together = masks(layer, 7, [0, 1, 2, 900])
    assert torch.equal(masks(layer, 7, [900, 1]), together[[3, 1]])
    assert not torch.equal(masks(layer, 8, [0, 1, 2, 900]), together)


def test_rate_and_scale() -> None:
    values = masks(RowDropout(0.4), 1, list(range(2000)))
    assert values.unique().tolist() == pytest.approx([0, 1 / 0.6])
    assert float(values.mean()) == pytest.approx(1, abs=0.02)
    by_row, by_column = (values > 0).float().mean(dim=1), (values > 0).float().mean(dim=0)
    assert float(by_column.std()) == pytest.approx((0.24 / 2000) ** 0.5, rel=0.4)
    assert float(by_row.std()) == pytest.approx((0.24 / 50) ** 0.5, rel=0.1)


def test_words_follow_their_sentence_and_place() -> None:
    layer = RowDropout(0.5)
    with drawing(3, np.array([10, 20]), CPU):
        words = layer(torch.ones(3, 40), torch.tensor([0, 1, 0]), torch.tensor([0, 0, 1]))
        padded = layer(torch.ones(2, 4, 40))
    with drawing(3, np.array([20]), CPU):
        alone = layer(torch.ones(1, 40), torch.tensor([0]), torch.tensor([0]))
    assert torch.equal(alone[0], words[1])
    assert torch.equal(padded[0, :2], words[[0, 2]])
    assert not torch.equal(words[0], words[2])


def test_layers_of_a_model_drop_differently_and_a_name_always_alike() -> None:
    one, two = (nn.Sequential(RowDropout(0.5), RowDropout(0.5)) for _ in range(2))
    salt_dropouts(one)
    salt_dropouts(two)
    assert not torch.equal(masks(one[0], 1, [5]), masks(one[1], 1, [5]))
    assert torch.equal(masks(one[1], 1, [5]), masks(two[1], 1, [5]))


def test_nothing_is_dropped_in_evaluation_or_at_probability_zero() -> None:
    rows = torch.randn(4, 3)
    with drawing(1, np.arange(4), CPU):
        assert torch.equal(RowDropout(0.5).eval()(rows), rows)
        assert torch.equal(RowDropout(0.0)(rows), rows)


def test_rows_that_nobody_named_are_an_error() -> None:
    with drawing(1, np.arange(4), CPU), pytest.raises(ValueError, match="expected 4 rows, one a key, found 5"):
        RowDropout(0.5)(torch.ones(5, 3))


def test_gradient_passes_where_values_stay() -> None:
    rows = torch.ones(3, 20, requires_grad=True)
    with drawing(1, np.arange(3), CPU):
        dropped = RowDropout(0.4)(rows)
    dropped.sum().backward()
    assert rows.grad is not None
    assert torch.equal(rows.grad, dropped.detach())
