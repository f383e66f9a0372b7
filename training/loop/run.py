"""A run and its folder in the lake: what is left there, a worker's training, and training with this process alone.

    <lake>/runs/<run>/start/...              copies of the registry's models that the run starts from
    <lake>/runs/<run>/model/                 the kept model (`LinkModel.load`), written at the end
    <lake>/runs/<run>/checkpoints/00003/     the state after epoch 3, the newest

Ray's workers (`training.ray.train`) run the same function. A run that was stopped goes on from its newest checkpoint,
here or on several workers.
"""

import dataclasses
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from schemas.lake import Folder, Lake
from training.config import TrainConfig
from training.data.loading import load_training_data
from training.loop.context import Context, choose_device
from training.loop.state import STATE
from training.loop.trainer import TrainResult, train
from training.model import CARD

RUNS = "runs"
MODEL = "model"
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
