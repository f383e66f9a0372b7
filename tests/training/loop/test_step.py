"""A step: what it waits for and holds, its gradients, its rates, the moments of batch norms over several workers."""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import lakes
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils._python_dispatch import TorchDispatchMode

from training.config import (
    ConstantSchedule,
    LoopConfig,
    PlateauSchedule,
    RateScaling,
    StepsSchedule,
    TrainConfig,
    objective,
)
from training.data.loading import TrainingData, load_training_data
from training.loop import epoch, step
from training.loop.context import Context
from training.loop.encoding import prepare_batch
from training.loop.setup import new_model
from training.loop.state import Plateaus, learning_rate, set_rate, start
from training.loop.step import FinishedStep, StepGuard, StepMoments, Stepper, clip, learning_norms
from training.objectives.batch import DrawKey
from training.towers.multi_source import SubwordAttentionSettings
from training.towers.recurrence import GruSettings
from training.towers.region_concept import TransformerSettings
from training.towers.settings import TextTowerSettings
from training.towers.vectors import LinearSettings

WAITING = frozenset({"aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::unique_dim"})
WORDS: dict[str, Any] = {"word_dimensions": 6, "dropout": 0.1, "min_word_count": 1}
CONFIG = TrainConfig(
    dimensions=12,
    text=GruSettings(word_dimensions=6, dropout=0.1, min_word_count=1),
    image=LinearSettings(dropout=0.1),
    training=LoopConfig(epochs=1, clip_norm=1.0),
)


class NothingWaits(TorchDispatchMode):
    """Fails at every operation whose answer, or its size, the host must wait for.

    Where PyTorch's own code for CPUs reads a number of the host's (an LSTM its batch sizes), it fails as well.
    """

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        name = func.name().partition(".")[0]  # type: ignore[attr-defined]
        assert name not in WAITING, f"{name} inside a step"
        return func(*args, **(kwargs or {}))


class LateGuard(StepGuard):
    """Looks at no step, as on a GPU, where the last ones have not been computed yet."""

    def add(self, step: FinishedStep) -> None:
        self.taken.append(step)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> TrainingData:
    made = lakes.splits(train=8)
    return load_training_data(lakes.write_lake(tmp_path_factory.mktemp("lake"), made), "synthetic", CONFIG.reading)


def step_without_waiting(config: TrainConfig, data: TrainingData, guard: StepGuard) -> torch.Tensor:
    context = Context()
    run = start(new_model(config, data, context))
    batch = prepare_batch(run.model, data.training, np.arange(6), DrawKey(split="training", epoch=1, step=0))
    stepper = Stepper(run.model, run.optimiser, context, guard)
    with NothingWaits():
        return stepper.step([batch], count=1)


def test_a_step_of_many_batches_holds_a_few_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All batches of three steps were prepared before the first was taken."""
    prepared, seen = list[int](), list[int]()
    config = replace(CONFIG, training=replace(CONFIG.training, negative_documents=1, batches_per_step=8))
    data = load_training_data(lakes.write_lake(tmp_path, lakes.splits(train=40)), "synthetic", config.reading)
    run = start(new_model(config, data, Context()))
    run.epoch = 1

    def noted(call: Callable[..., Any], note: Callable[[], None]) -> Callable[..., Any]:
        def wrapped(*arguments: Any) -> Any:
            note()
            return call(*arguments)

        return wrapped

    monkeypatch.setattr(epoch, "prepare_batch", noted(epoch.prepare_batch, lambda: prepared.append(1)))
    monkeypatch.setattr(step, "encode_batch", noted(step.encode_batch, lambda: seen.append(len(prepared))))
    epoch.train_epoch(run, data.training, Context())
    assert len(prepared) == len(seen) == 20
    assert all(ahead <= number + 2 + epoch.BATCHES_AHEAD for number, ahead in enumerate(seen))


def test_looking_at_a_step_is_waiting(data: TrainingData) -> None:
    with pytest.raises(AssertionError, match="_local_scalar_dense inside a step"):
        step_without_waiting(CONFIG, data, StepGuard())


@pytest.mark.parametrize(
    ("name", "similarity", "text"),
    [
        ("cross-document", "dc", CONFIG.text),
        ("cross-document", "ap", CONFIG.text),
        ("cross+intra+dropout", "tk", TransformerSettings(layers=1, heads=2, **WORDS)),
        ("cross+intra+dropout", "ap", SubwordAttentionSettings(heads=2, buckets=64, **WORDS)),
        ("nostruct", "ap", CONFIG.text),
    ],
)
def test_nothing_in_a_step_waits_for_the_device(
    data: TrainingData, name: str, similarity: str, text: TextTowerSettings
) -> None:
    settings = {} if name == "nostruct" else {"similarity": similarity}
    config = replace(CONFIG, text=text, objective=objective(name, **settings))
    guard = LateGuard()
    loss = step_without_waiting(config, data, guard)
    guard.check()
    assert float(loss) > 0


@pytest.mark.parametrize(("limit", "expected"), [(0.0, [3.0, 4.0]), (10.0, [3.0, 4.0]), (1.0, [0.6, 0.8])])
def test_gradients_are_scaled_down_to_the_limit_alone(limit: float, expected: list[float]) -> None:
    parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in range(3)]
    parameters[0].grad, parameters[1].grad = torch.tensor([3.0]), torch.tensor([4.0])
    assert float(clip(parameters, limit)) == pytest.approx(5.0)
    assert [float(each.grad) for each in parameters[:2] if each.grad is not None] == pytest.approx(expected)


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


@pytest.mark.parametrize(("scaling", "factor"), [*zip(RateScaling, (1, 2, 4), strict=True)])
def test_a_constant_rate_never_falls_and_is_scaled_by_the_batches_of_a_step(scaling: RateScaling, factor: int) -> None:
    settings = LoopConfig(schedule=ConstantSchedule(), batches_per_step=4, rate_scaling=scaling, learning_rate=0.1)
    assert learning_rate(settings, epoch=99, steps_before=10**6, plateaus=7) == 0.1 * factor


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
