import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

from schemas.configs import resolve
from schemas.documents import Split
from schemas.lake import Lake
from training.config import (
    EncoderConfig,
    LoopConfig,
    ObjectiveConfig,
    ObjectiveName,
    Similarity,
    TextEncoder,
    TrainConfig,
)
from training.data.loading import load_training_data
from training.loop.context import SingleProcess
from training.loop.trainer import train
from training.model import LinkModel

WORKER = Path(__file__).with_name("worker.py")
FROZEN = TrainConfig(
    encoder=EncoderConfig(text=TextEncoder.SENTENCE, dimensions=16, dropout=0.0),
    objective=ObjectiveConfig(similarity=Similarity.AP),
    training=LoopConfig(epochs=2, learning_rate=1e-2, negative_documents=4),
)
WORDS = replace(
    FROZEN,
    encoder=EncoderConfig(dimensions=16, dropout=0.0, word_dimensions=8, min_word_count=2),
    objective=ObjectiveConfig(name=ObjectiveName.NOSTRUCT),
)


def run_workers(lake: Lake, run: Path, world_size: int, config: TrainConfig) -> list[list[dict[str, float]]]:
    """Train with `world_size` processes and return each worker's history."""
    run.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    arguments = [
        [lake.root.uri, str(run), str(rank), str(world_size), json.dumps(resolve(config))] for rank in range(world_size)
    ]
    workers = [
        subprocess.Popen([sys.executable, str(WORKER), *each], env=environment, stderr=subprocess.PIPE, text=True)
        for each in arguments
    ]
    ended = [(worker.communicate(timeout=120)[1], worker.returncode) for worker in workers]
    assert all(status == 0 for _, status in ended), "\n".join(error for error, _ in ended)
    return [json.loads((run / f"history-{rank}.json").read_text()) for rank in range(world_size)]


def assert_same_metrics(found: dict[str, float], expected: dict[str, float], tolerance: float) -> None:
    assert found.keys() == expected.keys()
    for name in expected.keys() - {"documents_per_second"}:
        assert found[name] == pytest.approx(expected[name], rel=tolerance, abs=tolerance), name


@pytest.mark.parametrize(("config", "world_size"), [(FROZEN, 2), (WORDS, 4)], ids=["ap", "nostruct"])
def test_any_number_of_workers_trains_the_same_model(
    lakes: ModuleType, tmp_path: Path, config: TrainConfig, world_size: int
) -> None:
    """Loss, gradients and so weights do not depend on the workers, not even on one that holds no document."""
    made = {
        split: lakes.make_documents(split, count, lakes.World()) for split, count in zip(Split, (20, 8), strict=False)
    }
    lake = lakes.write_lake(str(tmp_path / "lake"), made, shards=3)
    data = load_training_data(lake, "synthetic", config)
    alone = train(config, data, SingleProcess(), run_directory=tmp_path / "alone")
    histories = run_workers(lake, tmp_path / "together", world_size, config)
    for history in histories:
        assert len(history) == 2
        for found, expected in zip(history, alone.history, strict=True):
            assert_same_metrics(found, dict(expected), 1e-4)
    one, many = LinkModel.load(alone.model), LinkModel.load(tmp_path / "together" / "model")
    assert many.card == one.card
    for name, value in one.state_dict().items():
        assert torch.allclose(many.state_dict()[name], value, atol=1e-4), name


def test_resuming_with_another_number_of_workers(lakes: ModuleType, tmp_path: Path) -> None:
    made = {split: lakes.make_documents(split, 12, lakes.World()) for split in (Split.TRAIN, Split.VAL)}
    lake = lakes.write_lake(str(tmp_path / "lake"), made)
    whole = train(FROZEN, load_training_data(lake, "synthetic", FROZEN), SingleProcess(), run_directory=tmp_path / "a")
    first = replace(FROZEN, training=replace(FROZEN.training, epochs=1))
    train(first, load_training_data(lake, "synthetic", first), SingleProcess(), run_directory=tmp_path / "b")
    histories = run_workers(lake, tmp_path / "b", 2, FROZEN)
    assert [row["epoch"] for row in histories[1]] == [1, 2]
    assert_same_metrics(histories[0][1], dict(whole.history[1]), 1e-4)
