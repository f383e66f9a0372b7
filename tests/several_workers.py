"""Trains with several real processes, by `training/loop/worker.py`, and compares what they make with what one makes."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import uuid4

import pytest
import torch
from forked import ROOT, clean_environment, start

from schemas.configs import resolve
from schemas.lake import Lake
from training.config import TrainConfig
from training.data.loading import load_training_data
from training.loop.context import Context
from training.loop.trainer import TrainResult, train
from training.model import LinkModel
from training.towers.inputs import CPU

WORKER = ROOT / "tests" / "training" / "loop" / "worker.py"
ADAM_TOLERANCE = 1e-4  # where a gradient is rounding alone, Adam takes a step of the full rate along it


def run_workers(
    lake: Lake, world_size: int, jobs: Mapping[Path, TrainConfig], *, backend: str = "gloo", optimiser: str = "Adam"
) -> None:
    """Do the jobs, one after the other, with `world_size` processes; each leaves its history in the run folder."""
    environment = clean_environment(OMP_NUM_THREADS="1")
    meeting = f"{lake.root.uri}.{uuid4().hex}"  # never that of an earlier run, whose file may not be gone yet
    text = json.dumps([(str(run), resolve(config)) for run, config in jobs.items()])
    workers = [
        start(
            *(backend, meeting, lake.root.uri, str(rank), str(world_size), optimiser, text),
            folder=WORKER.parent,
            environment=environment,
            program=WORKER,
        )
        for rank in range(world_size)
    ]
    ended = [worker.finish() for worker in workers]
    assert all(each.status == 0 for each in ended), "\n".join(each.err for each in ended)


def train_alone(lake: Lake, run: Path, config: TrainConfig, device: torch.device = CPU) -> TrainResult:
    data = load_training_data(lake, "synthetic", config.reading)
    return train(config, data, Context(device=device), run_directory=run)


def assert_same_metrics(found: dict[str, float], expected: dict[str, float], tolerance: float) -> None:
    assert found.keys() == expected.keys()
    for name in expected.keys() - {"documents_per_second"}:
        assert found[name] == pytest.approx(expected[name], rel=tolerance, abs=tolerance), name


def assert_same_run(run: Path, alone: TrainResult, world_size: int, tolerance: float = ADAM_TOLERANCE) -> None:
    """Compare every worker's history, and the kept model, with those of one process."""
    for rank in range(world_size):
        assert_same_history(json.loads((run / f"history-{rank}.json").read_text()), alone, tolerance)
    assert_same_model(run / "model", alone, tolerance)


def assert_same_history(history: Sequence[Mapping[str, float]], alone: TrainResult, tolerance: float) -> None:
    assert len(history) == len(alone.history)
    for found, expected in zip(history, alone.history, strict=True):
        assert_same_metrics(dict(found), dict(expected), tolerance)


def assert_same_model(model: Path, alone: TrainResult, tolerance: float) -> None:
    one, other = LinkModel.load(alone.model), LinkModel.load(model)
    assert other.card == one.card
    for name, value in one.state_dict().items():
        assert torch.allclose(other.state_dict()[name], value, atol=tolerance), name
