from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import lakes
import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from training.config import LoopConfig, TrainConfig, objective
from training.data.loading import TrainingData, load_training_data
from training.loop import epoch, step
from training.loop.context import Context
from training.loop.encoding import prepare_batch
from training.loop.setup import new_model
from training.loop.state import start
from training.loop.step import FinishedStep, StepGuard, Stepper, clip
from training.objectives.batch import DrawKey
from training.towers.multi_source import SubwordAttentionSettings
from training.towers.recurrence import GruSettings
from training.towers.settings import TextTowerSettings
from training.towers.transformer import TransformerSettings
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
    draw_key = DrawKey(split="training", epoch=1, step=0)
    batch = prepare_batch(run.model, data.training, np.arange(6), draw_key)
    stepper = Stepper(run.model, run.optimiser, context, guard)
    with NothingWaits():
        return stepper.step([batch], count=1)


def test_a_step_of_many_batches_holds_a_few_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All batches of three steps were prepared before the first was taken."""
    prepared, seen = list[int](), list[int]()
    config = replace(CONFIG, training=replace(CONFIG.training, negative_documents=1, batches_per_step=8))
    made = lakes.splits(train=40)
    data = load_training_data(lakes.write_lake(tmp_path, made), "synthetic", config.reading)
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
