import math

import pytest
import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau

from training.config import ConstantSchedule, LoopConfig, PlateauSchedule, StepsSchedule
from training.loop.state import Plateaus, learning_rate, set_rate


def rates(settings: LoopConfig, steps: int, steps_an_epoch: int = 10) -> list[float]:
    return [
        learning_rate(settings, epoch=1 + step // steps_an_epoch, steps_before=step, plateaus=0)
        for step in range(steps)
    ]


def test_warm_up_is_linear_as_in_li_2022() -> None:
    found = rates(LoopConfig(learning_rate=5e-5, warmup_steps=4000, warmup_from=1e-7), 4002)
    assert found[0] == 1e-7
    assert found[2000] == pytest.approx((1e-7 + 5e-5) / 2)
    assert found[4000] == found[4001] == 5e-5


def test_steps_as_in_liu_2020() -> None:
    found = rates(LoopConfig(epochs=30, learning_rate=1e-3, schedule=StepsSchedule()), 300)
    assert found[99] == 1e-3 and found[100] == pytest.approx(2e-4) and found[299] == pytest.approx(4e-5)


def test_constant_never_falls() -> None:
    settings = LoopConfig(schedule=ConstantSchedule())
    assert {learning_rate(settings, epoch=99, steps_before=10**6, plateaus=7)} == {settings.learning_rate}


def test_plateaus_are_torchs() -> None:
    losses = [1.0, 0.9, 0.95, 0.91, 0.9, 0.92, 0.93, 0.8, 0.81, 0.82, 0.83, 0.84, 0.85, 0.86, 0.87, 0.88, math.nan, 0.9]
    settings = LoopConfig(schedule=PlateauSchedule(epochs=3, factor=5.0), learning_rate=1.0)
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    reference = ReduceLROnPlateau(optimiser, factor=0.2, patience=3, threshold=0.0, threshold_mode="abs", eps=0.0)
    plateaus = Plateaus(patience=3)
    for loss in losses:
        reference.step(loss)
        plateaus.step(loss)
        rate = learning_rate(settings, epoch=1, steps_before=0, plateaus=plateaus.count)
        assert rate == pytest.approx(optimiser.param_groups[0]["lr"])
    assert plateaus.count >= 3


def test_the_optimiser_takes_the_rate() -> None:
    weight = torch.nn.Parameter(torch.zeros(1))
    optimiser = torch.optim.SGD([weight], lr=1.0)
    weight.grad = torch.ones(1)
    set_rate(optimiser, 0.25)
    optimiser.step()
    assert weight.item() == -0.25
