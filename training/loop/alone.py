"""Training in this process: what one worker on one machine needs, without Ray's start of ten seconds.

The same loop as under Ray (`training.ray.train`), and the same folder of the run in the lake. A run that was stopped
goes on from its newest checkpoint, here or on several workers.
"""

from __future__ import annotations

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
    following,
    record_epoch,
    record_progress,
    runs_folder,
    store_checkpoint,
    store_model,
)
from training.loop.trainer import TrainResult, train


def train_alone(
    config: TrainConfig,
    *,
    lake: Lake,
    dataset: str,
    run_id: str,
    on_report: OnReport | None = None,
    on_progress: OnProgress | None = None,
) -> TrainResult:
    """Train in this process and return what came of it; `model` is a local folder.

    Arguments as of `training.ray.train.launch`.

    Raises:
        UsageError: data and configuration do not fit together.
        BuildError: a loss or a gradient norm was not finite.
    """
    folder = runs_folder(lake).child(run_id)
    with tempfile.TemporaryDirectory(prefix="multilink-") as scratch, following(folder, on_report, on_progress):
        context = Context(
            device=choose_device(config.training.device),
            on_report=partial(_report, folder),
            find_checkpoint=partial(fetch_checkpoint, folder),
            on_progress=partial(record_progress, folder),
            find_model=partial(fetch_start, folder),
        )
        data = load_training_data(lake, dataset, config)
        result = train(config, data, context, run_directory=Path(scratch))
        store_model(folder, result.model)
    return dataclasses.replace(result, model=fetch_model(folder))


def _report(folder: Folder, metrics: Metrics, checkpoint: Path | None) -> None:
    """Keep an epoch's checkpoint, then tell of the epoch."""
    if checkpoint is not None:
        store_checkpoint(folder, int(metrics[EPOCH]), checkpoint)
    record_epoch(folder, metrics)
