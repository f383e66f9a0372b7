"""One worker of a distributed training test: `worker.py BACKEND MEETING LAKE RANK WORLD_SIZE OPTIMISER JOBS`.

BACKEND is gloo, on the processor, or nccl, each worker on a GPU of its own. OPTIMISER is torch's, in the place of Adam.

Jobs are a JSON list of (run folder, configuration); starting a process is what costs, so one does several. The names of
two recipes ask for a worker unlike the others: `mixed-processors`, and `damaged-RANK`.
"""

import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from schemas.configs import restore
from schemas.lake import Lake
from training.config import TrainConfig
from training.data.loading import load_training_data
from training.loop import trainer
from training.loop.context import TorchDistributed


def run_job(lake: Lake, run: Path, config: TrainConfig) -> None:
    rank = dist.get_rank()
    data = load_training_data(lake, "synthetic", config.reading)
    latest = next(run.glob("checkpoint"), None)
    dist.barrier()  # all have looked before one writes
    device = torch.device("cuda", rank) if dist.get_backend() == "nccl" else torch.device("cpu")
    context = TorchDistributed(device=device, find_checkpoint=lambda: latest)
    result = trainer.train(config, data, context, run_directory=run)
    run.mkdir(parents=True, exist_ok=True)  # the first worker makes it, perhaps later
    (run / f"history-{rank}.json").write_text(json.dumps(result.history))


def _other_signs(matrix: torch.Tensor, _eigh: Any = torch.linalg.eigh) -> tuple[torch.Tensor, torch.Tensor]:
    """Return eigenvalues and eigenvectors, every second one with another sign, as another processor may."""
    values, vectors = _eigh(matrix)
    return values, vectors * (1 - 2 * (torch.arange(len(values)) % 2))


def _damage() -> None:
    """Leave other parameters than the other workers after the second epoch."""
    train_epoch = trainer.train_epoch

    def damaged(state: Any, *arguments: Any) -> dict[str, float]:
        metrics = train_epoch(state, *arguments)
        if state.epoch == 2:
            next(state.model.parameters()).data.flatten()[0] += 0.5
        return metrics

    trainer.train_epoch = damaged


def main(backend: str, meeting: str, lake: str, rank: int, world_size: int, optimiser: str, jobs: str) -> None:
    torch.set_num_threads(1)
    torch.optim.Adam = getattr(torch.optim, optimiser)  # type: ignore[misc]
    method, patience = f"file://{meeting}", timedelta(seconds=300)
    if backend == "nccl":
        torch.cuda.set_device(rank)
    dist.init_process_group(backend, init_method=method, rank=rank, world_size=world_size, timeout=patience)
    try:
        for run, settings in json.loads(jobs):
            config = restore(TrainConfig, settings)
            if config.recipe == "mixed-processors" and rank:
                torch.linalg.eigh = _other_signs
            if config.recipe == f"damaged-{rank}":
                _damage()
            run_job(Lake.at(lake), Path(run), config)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    backend, meeting, lake, rank, world_size, optimiser, jobs = sys.argv[1:]
    main(backend, meeting, lake, int(rank), int(world_size), optimiser, jobs)
