"""One gloo worker of a distributed training test: `worker.py LAKE RUN RANK WORLD_SIZE CONFIG`."""

import json
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from schemas.configs import restore
from schemas.lake import Lake
from training.config import TrainConfig
from training.data.loading import load_training_data
from training.loop import state
from training.loop.context import TorchDistributed
from training.loop.trainer import train


def main(lake: str, run: str, rank: int, world_size: int, config: TrainConfig) -> None:
    torch.set_num_threads(1)
    directory = Path(run)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{directory}/meeting-{config.training.epochs}",
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=60),
    )
    data = load_training_data(Lake.at(lake), "synthetic", config, rank=rank, world_size=world_size)
    latest = state.latest(directory)
    context = TorchDistributed(device=torch.device("cpu"), find_checkpoint=lambda: latest)
    result = train(config, data, context, run_directory=directory)
    (directory / f"history-{rank}.json").write_text(json.dumps(result.history))
    dist.destroy_process_group()


if __name__ == "__main__":
    lake, run, rank, world_size, config = sys.argv[1:]
    main(lake, run, int(rank), int(world_size), restore(TrainConfig, json.loads(config)))
