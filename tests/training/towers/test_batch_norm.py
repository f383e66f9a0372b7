"""Running moments of batch norms over several workers, against torch's in one process that computes all batches."""

import copy

import pytest
import torch
from torch import Tensor, nn

from training.loop.step import StepMoments, learning_norms

BATCHES = 5


def two_norms() -> nn.Sequential:
    return nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2), nn.BatchNorm1d(2, momentum=0.3))


@pytest.mark.parametrize("workers", [1, 2, 4, 5])
def test_moments_of_a_step_are_folded_in_the_order_of_its_batches(workers: int) -> None:
    torch.manual_seed(0)
    alone, steps = two_norms(), torch.randn(2, BATCHES, 9, 3) + torch.arange(BATCHES)[:, None, None]
    together = [copy.deepcopy(alone) for _ in range(workers)]
    for batches in steps:
        for batch in batches:
            alone(batch)
        moments = [StepMoments(model) for model in together]
        for number, batch in enumerate(batches):
            together[number % workers](batch)
            moments[number % workers].note()
        noted = [torch.stack(each.noted) for each in moments]
        for each in moments:
            each.fold(BATCHES, lambda rows, noted=noted: noted)
    for model in together:
        for name, value in alone.state_dict().items():
            assert torch.allclose(model.state_dict()[name], value, atol=1e-6), name
        assert [norm.momentum for norm in learning_norms(model)] == [0.1, 0.3]


def test_norms_that_keep_their_moments_and_models_without_any_are_left_alone() -> None:
    held = two_norms().eval()
    before = copy.deepcopy(held.state_dict())

    def unexpected(rows: Tensor) -> list[Tensor]:
        raise AssertionError("nothing is gathered")

    for model in (held, nn.Linear(3, 2)):
        moments = StepMoments(model)
        model(torch.randn(4, 3))
        moments.note()
        moments.fold(1, unexpected)
    assert all(torch.equal(value, before[name]) for name, value in held.state_dict().items())
