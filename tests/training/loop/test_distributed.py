import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

from schemas.configs import resolve
from schemas.documents import Split
from schemas.lake import Lake
from training.config import (
    BilstmAttentionConfig,
    GruConfig,
    LinearBnConfig,
    LinearConfig,
    LoopConfig,
    MultiSourceConfig,
    ObjectiveConfig,
    ObjectiveName,
    Select,
    SentenceConfig,
    Similarity,
    StepsSchedule,
    TrainConfig,
)
from training.data.loading import load_training_data
from training.loop.context import Context
from training.loop.trainer import TrainResult, train
from training.model import LinkModel

WORKER = Path(__file__).with_name("worker.py")
FROZEN = TrainConfig(
    dimensions=16,
    text=SentenceConfig(dropout=0.3),
    image=LinearConfig(dropout=0.3, standardise=True),
    objective=ObjectiveConfig(name="cross+intra+dropout", similarity=Similarity.AP),
    training=LoopConfig(epochs=2, learning_rate=1e-2, negative_documents=4),
)
WORDS = replace(
    FROZEN,
    recipe="words",
    text=GruConfig(dropout=0.3, word_dimensions=8, min_word_count=2),
    image=LinearConfig(dropout=0.3),
    objective=ObjectiveConfig(similarity=Similarity.TK),
)
COHERENT = replace(
    FROZEN,
    recipe="coherent",
    objective=ObjectiveConfig(name="coherence-aware", margin=0.3, relation_weight=1.0),
)
NORMALISED = replace(
    WORDS,
    recipe="normalised",
    text=BilstmAttentionConfig(dropout=0.3, word_dimensions=8, min_word_count=2),
    image=LinearBnConfig(dropout=0.3),
    training=replace(WORDS.training, max_rows=2, warmup_steps=5, schedule=StepsSchedule(epochs=1)),
)
FUSED = replace(
    WORDS,
    recipe="fused",
    text=MultiSourceConfig(
        dropout=0.3,
        word_dimensions=8,
        min_word_count=2,
        sources=("headline", "caption"),
        source_drop=0.5,
        heads=2,
        head_dimensions=4,
        hidden_dimensions=16,
        buckets=50,
    ),
)
SHOWN = replace(
    FROZEN, recipe="shown", objective=ObjectiveConfig(name="cross+supervised", labelled_share=0.5, mean_epochs=1)
)
FEW_SHOWN = replace(
    FROZEN,
    recipe="few-shown",
    objective=ObjectiveConfig(name="supervised", labelled_share=0.2),
    training=replace(FROZEN.training, learning_rate=1e-2, negative_documents=2, select=Select.LAST),
)
SINGLES = replace(WORDS, recipe="singles", objective=ObjectiveConfig(name=ObjectiveName.NOSTRUCT))


def make_lake(lakes: ModuleType, folder: Path) -> Lake:
    made = {
        split: lakes.with_roles(lakes.make_documents(split, count, lakes.World()), ("headline", "caption"))
        for split, count in zip(Split, (20, 8), strict=False)
    }
    return lakes.write_lake(str(folder / "lake"), made, shards=3)


def run_workers(lake: Lake, world_size: int, jobs: Mapping[Path, TrainConfig]) -> None:
    """Do the jobs, one after the other, with `world_size` processes; each leaves its history in the run folder."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    meeting = f"{lake.root.uri}.meeting"
    text = json.dumps([(str(run), resolve(config)) for run, config in jobs.items()])
    workers = [
        subprocess.Popen(
            [sys.executable, str(WORKER), meeting, lake.root.uri, str(rank), str(world_size), text],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world_size)
    ]
    ended = [(worker.communicate(timeout=600)[1], worker.returncode) for worker in workers]
    assert all(status == 0 for _, status in ended), "\n".join(error for error, _ in ended)


def train_alone(lake: Lake, run: Path, config: TrainConfig) -> TrainResult:
    return train(config, load_training_data(lake, "synthetic", config), Context(), run_directory=run)


def assert_same_metrics(found: dict[str, float], expected: dict[str, float], tolerance: float) -> None:
    assert found.keys() == expected.keys()
    for name in expected.keys() - {"documents_per_second"}:
        assert found[name] == pytest.approx(expected[name], rel=tolerance, abs=tolerance), name


def assert_same_run(run: Path, alone: TrainResult, world_size: int) -> None:
    """Compare every worker's history, and the kept model, with those of one process."""
    for rank in range(world_size):
        history = json.loads((run / f"history-{rank}.json").read_text())
        assert len(history) == len(alone.history)
        for found, expected in zip(history, alone.history, strict=True):
            assert_same_metrics(found, dict(expected), 1e-4)
    one, many = LinkModel.load(alone.model), LinkModel.load(run / "model")
    assert many.card == one.card
    for name, value in one.state_dict().items():
        assert torch.allclose(many.state_dict()[name], value, atol=1e-4), name


def test_two_workers_train_and_resume_as_one_does(lakes: ModuleType, tmp_path: Path) -> None:
    lake = make_lake(lakes, tmp_path)
    alone = train_alone(lake, tmp_path / "alone", FROZEN)
    train_alone(lake, tmp_path / "cut", replace(FROZEN, training=replace(FROZEN.training, epochs=1)))
    run_workers(lake, 2, {tmp_path / "together": FROZEN, tmp_path / "cut": FROZEN})
    assert_same_run(tmp_path / "together", alone, 2)
    assert_same_run(tmp_path / "cut", alone, 2)


def test_four_workers_of_which_one_holds_nothing(lakes: ModuleType, tmp_path: Path) -> None:
    lake = make_lake(lakes, tmp_path)
    jobs = {tmp_path / config.recipe: config for config in (WORDS, SINGLES, NORMALISED, FUSED, SHOWN, FEW_SHOWN)}
    alone = {run: train_alone(lake, tmp_path / f"{config.recipe}-alone", config) for run, config in jobs.items()}
    run_workers(lake, 4, jobs)
    for run, result in alone.items():
        assert_same_run(run, result, 4)


def test_relations_are_learnt_alike_by_any_number_of_workers(lakes: ModuleType, tmp_path: Path) -> None:
    world = lakes.World(sentences=(1, 1), images=(1, 1))
    made = {
        split: lakes.with_relations(lakes.make_documents(split, count, world))
        for split, count in ((Split.TRAIN, 20), (Split.VAL, 8))
    }
    lake = lakes.write_lake(str(tmp_path / "lake"), made, shards=2)
    alone = train_alone(lake, tmp_path / "alone", COHERENT)
    train_alone(lake, tmp_path / "cut", replace(COHERENT, training=replace(COHERENT.training, epochs=1)))
    run_workers(lake, 2, {tmp_path / "together": COHERENT, tmp_path / "cut": COHERENT})
    assert_same_run(tmp_path / "together", alone, 2)
    assert_same_run(tmp_path / "cut", alone, 2)
    assert LinkModel.load(alone.model).card.relations == ("action", "story")
