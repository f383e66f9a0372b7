"""A worker like `worker.py`'s that one rank leaves with other parameters after an epoch: its last argument is the rank.

What it raises is its last line; all workers raise the same.
"""

import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from schemas.configs import restore
from schemas.errors import BuildError
from schemas.lake import Lake
from training.config import TrainConfig
from training.data.loading import load_training_data
from training.loop import trainer
from training.loop.context import TorchDistributed


def main(meeting: str, lake: str, rank: int, world_size: int, run: str, config: str, odd: int) -> None:
    torch.set_num_threads(1)
    patience = timedelta(seconds=300)
    dist.init_process_group("gloo", f"file://{meeting}", patience, rank=rank, world_size=world_size)
    train_epoch = trainer.train_epoch

    def damaged(state: Any, *arguments: Any) -> dict[str, float]:
        metrics = train_epoch(state, *arguments)
        if rank == odd and state.epoch == 2:
            next(state.model.parameters()).data.flatten()[0] += 0.5
        return metrics

    trainer.train_epoch = damaged
    settings = restore(TrainConfig, json.loads(config))
    try:
        data = load_training_data(Lake.at(lake), "synthetic", settings.reading)
        trainer.train(settings, data, TorchDistributed(), run_directory=Path(run))
    except BuildError as problem:
        print(problem)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    meeting, lake, rank, world_size, run, config, odd = sys.argv[1:]
    main(meeting, lake, int(rank), int(world_size), run, config, int(odd))
