"""What a checkpoint holds, and writing and reading one.

    checkpoint/
        state.pt      optimiser (none of a solved model), schedule, position, history, settings, data set identity
        model/        the model after this epoch
        best/         the model of the epoch kept so far, where that is an earlier one

There is no random state to save: every draw of the core comes from a stream keyed by seed and position
(`training.data.ragged`), so seed, epoch and step *are* the random state. A checkpoint is written in a folder of the
process, in place of that of the epoch before; `trainer.py` keeps it in the lake, whole.

The learning rate of a step is a pure function of the settings, the step, the epoch and the plateaus so far:

    warm-up    L: linear from `warmup_from` to `learning_rate` over `warmup_steps` steps, then
    plateau    H, L: divided by `factor` when the validation loss has not improved for more than `epochs`
    steps      N: divided by `factor` after every `epochs`
    constant   A

With K batches a step the rate is multiplied by a power of K (`rate_scaling`).
"""

import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from schemas.configs import Json, resolve, restore
from schemas.messages import BuildError, ConfigError, IntegrityError
from schemas.overrides import flatten
from training.config import LoopConfig, TrainConfig
from training.loop.context import Context
from training.model import LinkModel, ModelCard


@dataclass(slots=True)
class Plateaus:
    """The plateau rule: how often the validation loss has stopped improving.

    Attributes:
        patience: epochs without improvement that are accepted.
        best: lowest loss so far; None before the first.
        waited: epochs since then, or since the last plateau.
        count: plateaus so far.
    """

    patience: int
    best: float | None = None
    waited: int = 0
    count: int = 0

    def step(self, loss: float) -> None:
        """Take an epoch's validation loss into account; one that is no number is no improvement."""
        if self.best is None or loss < self.best:
            self.best, self.waited = loss, 0
            return
        self.waited += 1
        if self.waited > self.patience:
            self.count, self.waited = self.count + 1, 0


def learning_rate(settings: LoopConfig, *, epoch: int, steps_before: int, plateaus: int) -> float:
    """Return the learning rate of a step.

    Args:
        settings: of the run.
        epoch: of the step, from 1.
        steps_before: steps taken before this one, in all epochs.
        plateaus: of the validation loss so far.
    """
    scale: float = settings.batches_per_step**settings.rate_scaling.exponent
    return scale * _unscaled(settings, epoch, steps_before, plateaus)


def _unscaled(settings: LoopConfig, epoch: int, steps_before: int, plateaus: int) -> float:
    if steps_before < settings.warmup_steps:
        share = steps_before / settings.warmup_steps
        return settings.warmup_from + share * (settings.learning_rate - settings.warmup_from)
    return settings.schedule.rate(settings.learning_rate, epoch=epoch, plateaus=plateaus)


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """Make an optimiser's next step use a rate."""
    for group in optimiser.param_groups:
        group["lr"] = rate


CHECKPOINT, STATE, MODEL, BEST = "checkpoint", "state.pt", "model", "best"
STATE_FORMAT = 2
ROUNDING = 1e-3  # of the largest number of a tensor
MAY_CHANGE = ("training.epochs", "training.device")


@dataclass(slots=True, kw_only=True)
class RunState:
    """A run between two epochs.

    Attributes:
        model: being trained.
        optimiser: of its parameters; None of a model that is solved for.
        schedule: plateau rule on the validation loss.
        epoch: epochs completed; the next one is `epoch + 1`.
        best: the model of the epoch kept so far, on the CPU; None before the first. Only rank 0 needs it.
        best_epoch: that epoch, 0 before the first.
        best_value: what it was kept for (smaller is better).
        best_validation_loss: its validation loss.
        history: metrics of each completed epoch.
    """

    model: LinkModel
    optimiser: torch.optim.Optimizer | None
    schedule: Plateaus
    epoch: int = 0
    best: LinkModel | None = None
    best_epoch: int = 0
    best_value: float | None = None
    best_validation_loss: float | None = None
    history: list[dict[str, float]] = field(default_factory=list)


def start(model: LinkModel) -> RunState:
    """Return the state of a run that has not begun: Adam, and no plateau yet (`learning_rate` gives the rate).

    The first optimiser of a process imports PyTorch's compiler: a second that a solved model does not take.
    """
    config = model.card.config
    rate, patience = config.training.learning_rate, config.training.schedule.patience
    optimiser = None if config.is_solved else torch.optim.Adam(model.parameters(), lr=rate, fused=True)
    return RunState(model=model, optimiser=optimiser, schedule=Plateaus(patience=patience))


def save(state: RunState, run_directory: Path) -> Path:
    """Write the state as the run's checkpoint, in place of the one before, and return its folder."""
    folder = run_directory / CHECKPOINT
    shutil.rmtree(folder, ignore_errors=True)
    state.model.save(folder / MODEL)
    if state.best is not None and state.best_epoch < state.epoch:
        state.best.save(folder / BEST)
    torch.save(_values(state), folder / STATE)
    return folder


def resume(checkpoint: Path, card: ModelCard, context: Context) -> RunState:
    """Return the state a checkpoint holds, on the context's device.

    Raises:
        ConfigError: it belongs to another configuration (epochs and device may differ) or data set version.
        IntegrityError: it is not a checkpoint of this code.
    """
    path = checkpoint / STATE
    if not path.is_file():
        raise IntegrityError(f"{checkpoint}: expected a checkpoint, found no {STATE}")
    values: Mapping[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    if values["format"] != STATE_FORMAT:
        raise IntegrityError(f"{path}: checkpoint format is {values['format']!r}, this code reads {STATE_FORMAT}")
    _check_same(checkpoint, values, card)
    model = LinkModel.load(checkpoint / MODEL, context.device)
    model.card = replace(card, relations=model.card.relations)
    state = start(model)
    if state.optimiser is not None:
        state.optimiser.load_state_dict(values["optimiser"])
    state.schedule = Plateaus(**values["schedule"])
    for name in _POSITION:
        setattr(state, name, values[name])
    state.best = LinkModel.load(checkpoint / (BEST if state.best_epoch < state.epoch else MODEL))
    state.best.card = replace(model.card, epoch=state.best_epoch)
    return state


def check_alike(state: RunState, context: Context) -> None:
    """Compare the parameters of all workers; where they differ by rounding, all take those of the first.

    Processors of other kinds round otherwise, though all take steps along the same gradients.

    Raises:
        BuildError: those of some workers differ by more.
    """
    if context.world_size == 1:
        return
    digest = torch.frombuffer(bytearray.fromhex(state.model.digest()), dtype=torch.uint8)
    rows = context.gather(digest[None].to(context.device))
    if all(torch.equal(row, rows[0]) for row in rows):
        return
    is_other = torch.zeros((1, 1), dtype=torch.uint8, device=context.device)
    for value in state.model.state_dict().values():
        local = value.to(context.device)
        first = context.of_first(local)
        apart = (local.double() - first.double()).abs()
        is_other |= ~(apart <= ROUNDING * first.double().abs().max()).all() if value.numel() else False
        value.copy_(first)
    others = [rank for rank, row in enumerate(context.gather(is_other)) if row]
    like_first = [rank for rank in range(len(rows)) if rank not in others]
    if others:
        few = min(others, like_first, key=len) if len(others) != len(like_first) else range(len(rows))
        raise BuildError(
            f"after epoch {state.epoch} the parameters of worker {' and '.join(map(str, few))} of {len(rows)} are not "
            "those of the others; check hardware and libraries, and resume the run from its last checkpoint"
        )


_POSITION = ("epoch", "best_epoch", "best_value", "best_validation_loss", "history")


def _values(state: RunState) -> dict[str, Any]:
    return {
        "format": STATE_FORMAT,
        "optimiser": None if state.optimiser is None else state.optimiser.state_dict(),
        "schedule": asdict(state.schedule),
        "config": resolve(state.model.card.config),
        "data": resolve(state.model.card.data),
        **{name: getattr(state, name) for name in _POSITION},
    }


def _check_same(checkpoint: Path, values: Mapping[str, Any], card: ModelCard) -> None:
    """Raise unless a checkpoint's configuration and data are those of the run that resumes."""
    then = restore(TrainConfig, values["config"])
    for title, saved, expected in (
        ("configuration", lasting_settings(resolve(then)), lasting_settings(resolve(card.config))),
        ("data", flatten(values["data"]), flatten(resolve(card.data))),
    ):
        for key in sorted({*saved, *expected}):
            if saved.get(key) != expected.get(key):
                raise ConfigError(
                    f"{checkpoint}: its {title} has {key} = {saved.get(key)!r}, this run {expected.get(key)!r}; "
                    "resume with the same settings or start in a fresh folder"
                )


def lasting_settings(config: Mapping[str, Json]) -> dict[str, Json]:
    """Return the settings of a resolved configuration, by dotted key, that a resumed run may not change."""
    return {key: value for key, value in flatten(config).items() if key not in MAY_CHANGE}
