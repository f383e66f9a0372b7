import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from training.data.ragged import Ragged
from training.towers.recurrence import dropped_states, last_states, sentence_states

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


def test_recurrent_dropout_is_a_loop_over_cells_that_see_the_masked_state() -> None:
    gru, inputs = gru_and_inputs(SIZES[0], torch.float64)
    kept = (torch.rand(7, 4) > 0.4).double() / 0.6
    found = dropped_states(gru, inputs, SIZES[0], kept)
    parts, cell = inputs.split(SIZES[0].tolist()), gru_cell(gru)
    for sentence in range(7):
        state = torch.zeros(1, 4, dtype=torch.float64)
        for words in (part for part in parts if sentence < len(part)):
            seen = cell(words[sentence : sentence + 1], state * kept[sentence])
            update = torch.sigmoid(
                words[sentence] @ gru.weight_ih_l0[4:8].T
                + gru.bias_ih_l0[4:8]
                + (state * kept[sentence]) @ gru.weight_hh_l0[4:8].T
                + gru.bias_hh_l0[4:8]
            )
            state = seen + update * (state - state * kept[sentence])  # Keras passes the whole state on
        assert torch.allclose(found[sentence], state[0])
    whole = dropped_states(gru, inputs, SIZES[0], torch.ones(7, 4, dtype=torch.float64))
    assert torch.allclose(whole, gru(PackedSequence(inputs, torch.from_numpy(SIZES[0])))[1][0])


def gru_cell(gru: nn.GRU) -> nn.GRUCell:
    cell = nn.GRUCell(5, 4).double()
    cell.load_state_dict({name.removesuffix("_l0"): value for name, value in gru.state_dict().items()})
    return cell


def test_the_tower_drops_from_the_state_in_training_alone() -> None:
    torch.manual_seed(0)
    gru, dropout, recurrent = nn.GRU(5, 4), nn.Dropout(0.0), nn.Dropout(0.5)
    words, sentences = torch.randn(9, 5), Ragged.of(np.array([4, 2, 3]))

    def states() -> torch.Tensor:
        return sentence_states(gru, dropout, sentences, lambda at: words[at], recurrent)

    torch.manual_seed(7)
    dropped = states()
    torch.manual_seed(7)
    assert torch.equal(states(), dropped)
    recurrent.eval()
    whole = states()
    assert not torch.allclose(whole, dropped, atol=1e-3)
    expected = [gru(words[sentences.rows(row)])[1][0] for row in range(3)]
    assert torch.allclose(whole, torch.stack(expected), atol=1e-5)
