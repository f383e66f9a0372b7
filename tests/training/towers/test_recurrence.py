import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from training.towers.recurrence import last_states

SIZES = [np.array([7, 6, 6, 3, 1]), np.array([3]), np.array([1, 1, 1, 1]), np.array([2, 2])]


def gru_and_inputs(batch_sizes: np.ndarray, dtype: torch.dtype) -> tuple[nn.GRU, torch.Tensor]:
    torch.manual_seed(0)
    return nn.GRU(5, 4).to(dtype), torch.randn(int(batch_sizes.sum()), 5, dtype=dtype, requires_grad=True)


@pytest.mark.parametrize("batch_sizes", SIZES, ids=["many", "one word", "one sentence", "equal"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_states_and_gradients_are_those_of_torch(batch_sizes: np.ndarray, dtype: torch.dtype, tolerance: float) -> None:
    gru, inputs = gru_and_inputs(batch_sizes, dtype)
    expected = gru(PackedSequence(inputs, torch.from_numpy(batch_sizes)))[1][0]
    found = last_states(gru, inputs, batch_sizes)
    assert torch.allclose(found, expected, atol=tolerance)
    weights = torch.randn_like(expected)
    wanted = [inputs, *gru.parameters()]
    expected_gradients = torch.autograd.grad((expected * weights).sum(), wanted)
    found_gradients = torch.autograd.grad((found * weights).sum(), wanted)
    for one, other in zip(found_gradients, expected_gradients, strict=True):
        assert torch.allclose(one, other, atol=tolerance)


def test_inputs_without_gradient_and_no_gradient_at_all() -> None:
    gru, inputs = gru_and_inputs(SIZES[0], torch.float32)
    found = last_states(gru, inputs.detach(), SIZES[0])
    found.sum().backward()
    assert all(parameter.grad is not None for parameter in gru.parameters())
    with torch.inference_mode():
        assert torch.equal(last_states(gru, inputs, SIZES[0]), found)


def test_autocast_computes_in_bfloat16_and_trains_float32_weights() -> None:
    gru, inputs = gru_and_inputs(SIZES[0], torch.float32)
    exact = last_states(gru, inputs, SIZES[0])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = last_states(gru, inputs, SIZES[0])
    assert rounded.dtype is torch.float32
    assert 0 < float((rounded - exact).detach().abs().max()) < 0.02
    expected = torch.autograd.grad(exact.sum(), list(gru.parameters()))
    found = torch.autograd.grad(rounded.sum(), list(gru.parameters()))
    for one, other in zip(found, expected, strict=True):
        assert one.dtype is torch.float32
        assert torch.allclose(one, other, atol=0.05, rtol=0.05)
