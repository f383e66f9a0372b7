"""One training run, in order: set up or resume, then per epoch train, validate, keep, checkpoint, report.

`train` has the order alone. Set-up is in `setup.py`, an epoch and its validation in `epoch.py`, one step in `step.py`,
what is saved in `state.py`. A data set without validation documents trains with `select = "last"`.

What is left in the folder of a run:

    <lake>/runs/<run>/start/...              copies of the registry's models that the run starts from
    <lake>/runs/<run>/model/                 the kept model (`LinkModel.load`), written at the end
    <lake>/runs/<run>/checkpoints/00003/     the state after epoch 3, the newest

Ray's workers (`training.ray.train`) run the same function. A run that was stopped goes on from its newest checkpoint,
here or on several workers.
"""

import copy
import dataclasses
import logging
import math
import tempfile
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from schemas.lake import Folder, Lake
from schemas.messages import BuildError, UsageError
from training.config import Select, TrainConfig
from training.data.loading import TrainingData, check_pairs, load_training_data
from training.data.threads import one_thread
from training.loop import state as states
from training.loop.context import Context, choose_device
from training.loop.epoch import ENOUGH_TO_RANK, Validation, can_rank, solve_epoch, train_epoch, validate
from training.loop.link_steps import order_of, settle_steps
from training.loop.setup import new_model
from training.loop.state import STATE, RunState, check_alike
from training.loop.step import learning_norms
from training.model import CARD, LinkModel, ModelCard

logger = logging.getLogger(__name__)
MODEL = "model"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """What a run gives, equal on every worker but for `model`, which rank 0 wrote.

    Attributes:
        epochs: epochs trained, resumed ones included.
        best_epoch: the epoch that was kept, from 1.
        best_validation_loss: its validation loss, or None without a validation split.
        history: per epoch, the metrics that were reported (a metric that could not be computed is absent): epoch,
            train_loss, validation_loss, validation_auc, validation_precision_at_1, validation_precision_at_5,
            validation_rank, validation_median_rank, learning_rate, documents_per_second. Validation's are of cosines:
            steps at link time are chosen when training is over.
        model: folder of the kept model (`LinkModel.load`).
    """

    epochs: int
    best_epoch: int
    best_validation_loss: float | None
    history: tuple[Mapping[str, float], ...]
    model: Path


def train(config: TrainConfig, data: TrainingData, context: Context, *, run_directory: Path) -> TrainResult:
    """Train, and return what came of it; the kept model is in `run_directory / "model"`.

    Resumes from `context.find_checkpoint()` where that is not None, with the same final weights as an uninterrupted
    run.

    Raises:
        UsageError: there is no validation document and `training.select` is not `last`, or the objective does not fit
            the documents.
        ConfigError: the checkpoint to resume from belongs to another configuration or data set version.
        BuildError: a loss or a gradient norm was not finite, or a worker's parameters are not those of the others.
    """
    with one_thread() if config.is_solved else nullcontext():
        return _trained(config, data, context, run_directory)


def _trained(config: TrainConfig, data: TrainingData, context: Context, run_directory: Path) -> TrainResult:
    config.check_workers(context.world_size)
    _check_selectable(config, data, context)
    for split in (data.training, data.validation):
        if split is not None:
            check_pairs(config.reading, data.identity.reference, split)
    run = _begin(config, data, context)
    if len(data.training.index.usable) == 1 and learning_norms(run.model.train()):
        raise UsageError(
            f"{data.identity.reference}: a tower normalises by the batch (batch norm), and there is one training "
            "document; expected at least two"
        )
    towers = run.model.text, run.model.image
    order, epochs = order_of(run.model, data), config.training.epochs
    solvers = (
        term.solver(*towers, data, context, dimensions=config.dimensions, epochs=epochs, order=order)
        for term in config.objective
    )
    solver = next((each for each in solvers if each is not None), None)
    while run.epoch < config.training.epochs:
        run.epoch += 1
        if solver is None:
            metrics = train_epoch(run, data.training, context)
        else:
            metrics = solve_epoch(run, solver, context, documents=len(data.training.index.usable))
        check_alike(run, context)
        judged = None
        if data.validation is not None:
            judged = validate(run.model, data.validation, context, epoch=run.epoch)
            run.schedule.step(judged.loss)
        metrics |= _metrics(judged)
        is_choice = not config.is_solved or (data.validation is not None and can_rank(data.validation))
        _keep(run, judged, context, select=config.training.select if is_choice else Select.LAST)
        run.history.append(metrics)
        context.on_report(metrics, states.save(run, run_directory) if context.rank == 0 else None)
    return _finish(run, data, context, run_directory)


def _check_selectable(config: TrainConfig, data: TrainingData, context: Context) -> None:
    select, documents = config.training.select, 0 if data.validation is None else len(data.validation.index.usable)
    if config.is_solved:
        if documents < ENOUGH_TO_RANK and select is not Select.LAST:
            few = f"{documents or 'no'} validation document{'s' * (documents > 1)}"
            context.say(f"{data.identity.reference} has {few}, too few to choose an epoch: the last one is kept")
        return
    if data.validation is None and select is not Select.LAST:
        raise UsageError(
            f"training.select = '{select}': {data.identity.reference} has no validation document to choose an epoch "
            "by; use --set training.select=last"
        )
    if documents == 1:
        logger.warning(
            "%s has a single validation document: it has no negative, so loss and rank judge nothing; "
            "use --set training.select=last",
            data.identity.reference,
        )


def _begin(config: TrainConfig, data: TrainingData, context: Context) -> RunState:
    checkpoint = context.find_checkpoint()
    if checkpoint is not None:
        return states.resume(checkpoint, ModelCard(config=config, data=data.identity), context)
    model = new_model(config, data, context)
    for value in model.state_dict().values():
        value.copy_(context.of_first(value.to(context.device)))
    return states.start(model)


def _metrics(judged: Validation | None) -> dict[str, float]:
    if judged is None:
        return {}
    values = {
        "validation_loss": judged.loss,
        "validation_rank": judged.rank,
        "validation_median_rank": judged.median_rank,
        "validation_auc": judged.auc,
        "validation_precision_at_1": judged.precision_at_1,
        "validation_precision_at_5": judged.precision_at_5,
    }
    return {name: value for name, value in values.items() if value is not None}


def _keep(run: RunState, judged: Validation | None, context: Context, *, select: Select) -> None:
    """Keep this epoch's model if it is better than the one kept so far, or as good: it has seen more."""
    value = _value(select, judged, run.epoch)
    if run.best_value is not None and value > run.best_value:
        return
    run.best_value, run.best_epoch = value, run.epoch
    run.best_validation_loss = None if judged is None else judged.loss
    if context.rank == 0:
        run.best = copy.deepcopy(run.model).cpu()
        run.best.card = replace(run.model.card, epoch=run.epoch)


def _value(select: Select, judged: Validation | None, epoch: int) -> float:
    """Return what an epoch is kept for: smaller is better, and a number that is none is worst."""
    if judged is None or select is Select.LAST:
        return -float(epoch)
    value = {Select.LOSS: judged.loss, Select.RETRIEVAL: judged.rank, Select.MEDIAN_RANK: judged.median_rank}[select]
    return math.inf if math.isnan(value) else value


def _finish(run: RunState, data: TrainingData, context: Context, run_directory: Path) -> TrainResult:
    if run.best_value == math.inf:
        raise BuildError("no epoch had a validation loss or rank that is a number; lower training.learning_rate")
    target = run_directory / MODEL
    if context.rank == 0:
        kept: LinkModel = (run.best or run.model).to(context.device)
        settle_steps(kept, data)
        kept.save(target)
    return TrainResult(
        epochs=run.epoch,
        best_epoch=run.best_epoch,
        best_validation_loss=run.best_validation_loss,
        history=tuple(run.history),
        model=target,
    )


RUNS = "runs"
START = "start"
CHECKPOINTS = "checkpoints"
ADDRESSES = ("models:/", "runs:/")
EPOCH = "epoch"

_fetched: list[tempfile.TemporaryDirectory[str]] = []  # removed when this process ends
Metrics = Mapping[str, float]
OnReport = Callable[[Metrics], None]
OnProgress = Callable[[str], None]


def runs_folder(lake: Lake) -> Folder:
    """Return where the lake keeps its runs."""
    return lake.root.child(RUNS)


def store_checkpoint(run: Folder, epoch: int, checkpoint: Path) -> None:
    """Copy an epoch's checkpoint into the run's folder; those of earlier epochs go once it is whole."""
    folder = run.child(CHECKPOINTS)
    earlier = folder.names()
    name = f"{epoch:05d}"
    _store(folder.child(name), checkpoint, last=STATE)
    for other in earlier:
        if other != name:
            folder.child(other).remove()


def fetch_checkpoint(run: Folder) -> Path | None:
    """Return the newest whole checkpoint as a local folder, or None where there is none."""
    whole = checkpoints(run)
    return _fetch(run.child(CHECKPOINTS, max(whole))) if whole else None


def checkpoints(run: Folder) -> list[str]:
    """Return the names of the run's whole checkpoints."""
    folder = run.child(CHECKPOINTS)
    return [name for name in folder.names() if folder.child(name).exists(STATE)]


def store_model(run: Folder, model: Path) -> None:
    """Copy a saved model into the run's folder."""
    _store(run.child(MODEL), model, last=CARD)


def fetch_model(run: Folder) -> Path:
    """Return the run's kept model as a local folder: in place on a local lake, else a temporary copy."""
    return _fetch(run.child(MODEL))


def is_address(model: str) -> bool:
    """Return whether a model is named by its address in the registry or of its run, and not by a folder."""
    return model.startswith(ADDRESSES)


def store_start(run: Folder, address: str, model: Path) -> None:
    """Copy a saved model that the run starts from into the run's folder, under its address."""
    _store(_start(run, address), model, last=CARD)


def has_start(run: Folder, address: str) -> bool:
    return CARD in _start(run, address).names()


def fetch_start(run: Folder, model: str) -> Path:
    """Return a model that the run starts from as a local folder: itself, or of an address the copy that was stored."""
    return _fetch(_start(run, model)) if is_address(model) else Path(model)


def _start(run: Folder, address: str) -> Folder:
    return run.child(START, *address.partition(":/")[2].split("/"))


def _store(target: Folder, folder: Path, *, last: str) -> None:
    """Write the files of a folder, last the one that says it is whole."""
    names = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    for name in sorted(names, key=lambda name: (name == last, name)):
        target.write(name, (folder / name).read_bytes())


def _fetch(source: Folder) -> Path:
    if source.local is not None:
        return source.local
    scratch = tempfile.TemporaryDirectory(prefix="multilink-model-")
    _fetched.append(scratch)
    target = Path(scratch.name)
    for name in source.files():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(source.read(name))
    return target


def train_run(config: TrainConfig, context: Context, *, lake: Lake, dataset: str, folder: Folder) -> TrainResult:
    """Train as one worker of a run, whose model is left in the run's folder.

    Raises:
        UsageError: data and configuration do not fit together.
        BuildError: a loss or a gradient norm was not finite.
    """
    with tempfile.TemporaryDirectory(prefix="multilink-") as scratch:
        data = load_training_data(lake, dataset, config.reading)
        result = train(config, data, context, run_directory=Path(scratch))
        if context.rank == 0:
            store_model(folder, result.model)
    return result


def train_alone(
    config: TrainConfig,
    *,
    lake: Lake,
    dataset: str,
    run_id: str,
    on_report: OnReport,
    on_progress: OnProgress,
) -> TrainResult:
    """Train in this process, without Ray's start of ten seconds; `model` of what is returned is a local folder.

    Args:
        config: what to train.
        lake: holds the data set and takes the run's folder.
        dataset: NAME@VERSION.
        run_id: names the run's folder. A folder that holds a checkpoint is continued.
        on_report: called with the metrics of each epoch, once its checkpoint is kept.
        on_progress: called with a line of progress now and then.

    Raises:
        UsageError: as `train_run`.
        BuildError: likewise.
    """
    folder = runs_folder(lake).child(run_id)
    context = Context(
        device=choose_device(config.training.device),
        on_report=partial(keep_epoch, folder, on_report),
        find_checkpoint=partial(fetch_checkpoint, folder),
        on_progress=on_progress,
        find_model=partial(fetch_start, folder),
    )
    result = train_run(config, context, lake=lake, dataset=dataset, folder=folder)
    return dataclasses.replace(result, model=fetch_model(folder))


def keep_epoch(folder: Folder, on_report: OnReport, metrics: Metrics, checkpoint: Path | None) -> None:
    """Store an epoch's checkpoint, which the first worker has, in the run's folder, and hand over its metrics."""
    if checkpoint is not None:
        store_checkpoint(folder, int(metrics[EPOCH]), checkpoint)
    on_report(metrics)
