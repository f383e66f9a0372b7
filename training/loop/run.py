"""A run in its folder of the lake, as one worker trains it; and training with this process as the only worker.

Ray's workers (`training.ray.train`) run the same function. A run that was stopped goes on from its newest checkpoint,
here or on several workers.
"""

import dataclasses
import tempfile
from functools import partial
from pathlib import Path

from schemas.lake import Folder, Lake
from training.config import TrainConfig
from training.data.loading import load_training_data
from training.loop.context import Context, choose_device
from training.loop.run_folder import (
    EPOCH,
    Metrics,
    OnProgress,
    OnReport,
    fetch_checkpoint,
    fetch_model,
    fetch_start,
    runs_folder,
    store_checkpoint,
    store_model,
)
from training.loop.trainer import TrainResult, train


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
