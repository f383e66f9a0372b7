import json
import subprocess
import sys
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import lakes
import numpy as np
import pytest
import torch
import torch.distributed as dist
from forked import ROOT, clean_environment, start
from several_workers import WORKER, assert_same_history, assert_same_model, assert_same_run, run_workers, train_alone

from schemas.configs import resolve
from schemas.documents import Split
from schemas.lake import Lake
from schemas.overrides import override
from training.closed_form.solver import Solver
from training.config import LoopConfig, Precision, RateScaling, Select, StepsSchedule, TrainConfig, objective
from training.data.loading import load_training_data
from training.loop.context import Context, TorchDistributed
from training.loop.trainer import TrainResult, train
from training.model import LinkModel
from training.recipes import recipe
from training.towers import inputs
from training.towers.inputs import CPU
from training.towers.multi_source import MultiSourceSettings
from training.towers.recurrence import BilstmAttentionSettings, GruSettings
from training.towers.vectors import LinearBnSettings, LinearSettings, SentenceSettings

FROZEN = TrainConfig(
    dimensions=16,
    text=SentenceSettings(dropout=0.3),
    image=LinearSettings(dropout=0.3, standardise=True),
    objective=objective("cross+intra+dropout", similarity="ap"),
    training=LoopConfig(epochs=2, learning_rate=1e-2, negative_documents=4),
)
WORDS = replace(
    FROZEN,
    recipe="words",
    text=GruSettings(dropout=0.3, word_dimensions=8, min_word_count=2),
    image=LinearSettings(dropout=0.3),
    objective=objective("cross", similarity="tk"),
)
COHERENT = replace(
    FROZEN,
    recipe="coherent",
    text=SentenceSettings(dropout=0.3),
    image=LinearSettings(dropout=0.3),
    objective=objective("coherence-aware", margin=0.3, relation_weight=1.0),
    training=replace(FROZEN.training, batches_per_step=2),
)
NORMALISED = replace(
    WORDS,
    recipe="normalised",
    text=BilstmAttentionSettings(dropout=0.3, word_dimensions=8, min_word_count=2),
    image=LinearBnSettings(dropout=0.3),
    training=replace(WORDS.training, max_rows=2, warmup_steps=5, schedule=StepsSchedule(epochs=1)),
)
FUSED = replace(
    WORDS,
    recipe="fused",
    text=MultiSourceSettings(
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
SHOWN = replace(FROZEN, recipe="shown", objective=objective("cross+supervised", labelled_share=0.5, mean_epochs=1))
FEW_SHOWN = replace(
    FROZEN,
    recipe="few-shown",
    objective=objective("supervised", labelled_share=0.2),
    training=replace(FROZEN.training, learning_rate=1e-2, negative_documents=2, select=Select.LAST),
)
SOLVED = override(
    recipe("closed-form"),
    ["dimensions=16", "objective.passes=3", "objective.regularisation=8,2", "training.epochs=6"],
)
GPU = torch.device("cuda")
NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
TOLERANCE = 1e-6  # of steps along the gradient
GPU_TOLERANCE = 1e-3  # float32 sums in another order, over the steps of two epochs
SINGLES = replace(WORDS, recipe="singles", objective=objective("nostruct"))


def make_lake(folder: Path) -> Lake:
    made = {
        split: lakes.with_roles(lakes.make_documents(split, count, lakes.World()), ("headline", "caption"))
        for split, count in zip(Split, (20, 8), strict=False)
    }
    return lakes.write_lake(folder / "lake", made, shards=3)


def steps_of(config: TrainConfig, batches: int) -> TrainConfig:
    """Return a configuration whose steps are of several batches."""
    training = replace(config.training, batches_per_step=batches, rate_scaling=RateScaling.SQUARE_ROOT)
    return replace(config, recipe=f"{config.recipe}-{batches}", training=training)


def without_dropout(config: TrainConfig) -> TrainConfig:
    """Return a configuration that a GPU and the processor train alike: their generators draw other numbers."""
    return replace(config, text=replace(config.text, dropout=0.0), image=replace(config.image, dropout=0.0))


# `test_recipes.py` has every recipe with two, three and four workers.
ANY_NUMBER = [
    *(steps_of(config, 2) for config in (FROZEN, WORDS, NORMALISED, SINGLES, FUSED, SHOWN, FEW_SHOWN)),
    *(steps_of(config, 4) for config in (FROZEN, NORMALISED)),
]


@pytest.fixture(scope="module")
def one_lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return make_lake(tmp_path_factory.mktemp("lake"))


@pytest.fixture(scope="module")
def by_one(one_lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> dict[str, TrainResult]:
    """Return what one process made of each configuration, by steps along the gradient."""
    folder = tmp_path_factory.mktemp("alone")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim, "Adam", torch.optim.SGD)
        return {config.recipe: train_alone(one_lake, folder / config.recipe, config) for config in ANY_NUMBER}


def test_two_workers_train_as_one_does(one_lake: Lake, by_one: Mapping[str, TrainResult], tmp_path: Path) -> None:
    """Two workers of two batches sum two gradients, in one order as in the other: the same bits."""
    run_workers(one_lake, 2, {tmp_path / config.recipe: config for config in ANY_NUMBER}, optimiser="SGD")
    for config in ANY_NUMBER:
        alone, run = by_one[config.recipe], tmp_path / config.recipe
        assert_same_run(run, alone, 2, TOLERANCE)
        if config.training.batches_per_step == 2:
            assert LinkModel.load(run / "model").digest() == LinkModel.load(alone.model).digest(), config.recipe


def test_a_run_goes_on_with_another_number_of_workers(one_lake: Lake, tmp_path: Path) -> None:
    config = steps_of(FROZEN, 4)
    alone = train_alone(one_lake, tmp_path / "alone", config)
    run = tmp_path / "cut"
    train_alone(one_lake, run, replace(config, training=replace(config.training, epochs=1)))
    run_workers(one_lake, 4, {run: config})
    assert_same_run(run, alone, 4)


@pytest.fixture(scope="module")
def named_lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return lakes.write_lake(tmp_path_factory.mktemp("named") / "lake", lakes.splits(train=20, val=24), is_named=True)


@pytest.mark.parametrize(("workers", "order"), [(4, "off"), (2, "on")])
def test_the_closed_form_has_the_same_bits_for_any_number_of_workers(
    named_lake: Lake, tmp_path: Path, workers: int, order: str
) -> None:
    config = override(SOLVED, [f"link.order={order}", "objective.passes=4", "training.epochs=8"])
    alone = train_alone(named_lake, tmp_path / "alone", config)
    run_workers(named_lake, workers, {tmp_path / "together": config})
    assert LinkModel.load(alone.model).card.data.named_columns is not None
    assert_same_run(tmp_path / "together", alone, workers, TOLERANCE)
    assert LinkModel.load(tmp_path / "together" / "model").digest() == LinkModel.load(alone.model).digest()


def test_processors_whose_components_have_other_signs_solve_as_one(named_lake: Lake, tmp_path: Path) -> None:
    config = replace(SOLVED, recipe="mixed-processors")
    alone = train_alone(named_lake, tmp_path / "alone", config)
    run_workers(named_lake, 2, {tmp_path / "together": config})
    assert_same_model(tmp_path / "together" / "model", alone, TOLERANCE)


def test_the_closed_form_computes_in_one_thread(
    named_lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, before, take = [], torch.get_num_threads(), Solver.take
    monkeypatch.setattr(Solver, "take", lambda *given: (threads.append(torch.get_num_threads()), take(*given))[1])
    torch.set_num_threads(2)
    try:
        train_alone(named_lake, tmp_path, SOLVED)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert threads == [1] * 6


def test_sums_of_workers_are_gathered_a_part_at_a_time(
    named_lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, largest = train_alone(named_lake, tmp_path / "whole", SOLVED), []
    monkeypatch.setattr(inputs, "GATHERED_AT_ONCE", 50)
    gather = Context.gather
    monkeypatch.setattr(
        Context, "gather", lambda self, rows, *more: (largest.append(rows.numel()), gather(self, rows))[1]
    )
    parts = train_alone(named_lake, tmp_path / "parts", SOLVED)
    assert LinkModel.load(parts.model).digest() == LinkModel.load(whole.model).digest()
    assert sorted(largest)[len(largest) // 2] == 50  # what validation gathers is larger


@pytest.mark.trial
@pytest.mark.parametrize(
    ("workers", "odd", "named"), [(2, 0, "0 and 1 of 2"), (2, 1, "0 and 1 of 2"), (3, 0, "0 of 3"), (3, 2, "2 of 3")]
)
def test_a_worker_with_other_parameters_ends_the_run(
    one_lake: Lake, tmp_path: Path, workers: int, odd: int, named: str
) -> None:
    """Of two nobody knows which one is wrong."""
    training = replace(FROZEN.training, epochs=3, batches_per_step=3)
    config = replace(FROZEN, recipe=f"damaged-{odd}", training=training)
    with pytest.raises(AssertionError) as ended:
        run_workers(one_lake, workers, {tmp_path / "run": config})
    words = f"after epoch 2 the parameters of worker {named} are not those of the others"
    assert str(ended.value).count(words) == workers
    assert torch.load(tmp_path / "run" / "checkpoint" / "state.pt", weights_only=True)["epoch"] == 1


@pytest.mark.trial  # one of the workers imports PyTorch anew
@pytest.mark.parametrize("config", [FROZEN, NORMALISED], ids=lambda config: config.recipe)
def test_processors_that_round_otherwise_train_as_one_does(
    one_lake: Lake, by_one: Mapping[str, TrainResult], tmp_path: Path, config: TrainConfig
) -> None:
    """The second worker's kernels are those of a processor without AVX, whose last bits are others."""
    own, run = steps_of(config, 2), tmp_path / "together"
    jobs = json.dumps([(str(run), resolve(own))])
    workers = [["gloo", tmp_path / "meeting", one_lake.root.uri, rank, "2", "SGD", jobs] for rank in "01"]
    environment = clean_environment(OMP_NUM_THREADS="1")
    first = start(*workers[0], folder=tmp_path, environment=environment, program=WORKER)
    kernels = {"ATEN_CPU_CAPABILITY": "default", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2", "PYTHONPATH": str(ROOT)}
    command, environment = [sys.executable, WORKER, *workers[1]], environment | kernels  # read once, at the start
    second = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    ended = first.finish()
    assert ended.status == second.returncode == 0, ended.err + second.stderr
    assert_same_run(run, by_one[own.recipe], 2, TOLERANCE)


def test_relations_are_learnt_alike_by_any_number_of_workers(tmp_path: Path) -> None:
    world = lakes.World(sentences=(1, 1), images=(1, 1))
    made = {
        split: lakes.with_relations(lakes.make_documents(split, count, world))
        for split, count in ((Split.TRAIN, 20), (Split.VAL, 8))
    }
    lake = lakes.write_lake(tmp_path / "lake", made, shards=2)
    alone = train_alone(lake, tmp_path / "alone", COHERENT)
    train_alone(lake, tmp_path / "cut", replace(COHERENT, training=replace(COHERENT.training, epochs=1)))
    run_workers(lake, 2, {tmp_path / "together": COHERENT, tmp_path / "cut": COHERENT})
    assert_same_run(tmp_path / "together", alone, 2)
    assert_same_run(tmp_path / "cut", alone, 2)
    assert LinkModel.load(alone.model).card.relations == ("action", "story")


@NEEDS_GPU
@pytest.mark.parametrize("config", [FROZEN, WORDS, NORMALISED, FUSED], ids=lambda config: config.recipe)
def test_a_gpu_trains_as_the_processor_does(tmp_path: Path, config: TrainConfig) -> None:
    lake = make_lake(tmp_path)
    undropped = without_dropout(config)
    alone = train_alone(lake, tmp_path / "alone", undropped)
    result = train_alone(lake, tmp_path / "gpu", undropped, GPU)
    assert_same_history(result.history, alone, GPU_TOLERANCE)
    assert_same_model(result.model, alone, GPU_TOLERANCE)


@NEEDS_GPU
def test_a_gpu_draws_dropout_by_the_batch(one_lake: Lake, tmp_path: Path) -> None:
    """A run that goes on draws what the uninterrupted one drew, whatever the GPU's generator has drawn meanwhile."""
    whole = train_alone(one_lake, tmp_path / "whole", NORMALISED, GPU)
    cut = replace(NORMALISED, training=replace(NORMALISED.training, epochs=1))
    train_alone(one_lake, tmp_path / "cut", cut, GPU)
    torch.rand(7, device=GPU)
    data = load_training_data(one_lake, "synthetic", NORMALISED.reading)
    context = Context(device=GPU, find_checkpoint=lambda: tmp_path / "cut" / "checkpoint")
    result = train(NORMALISED, data, context, run_directory=tmp_path / "cut")
    assert_same_history(result.history, whole, TOLERANCE)
    assert_same_model(result.model, whole, TOLERANCE)


@NEEDS_GPU
def test_a_gpu_solves_as_the_processor_does(one_lake: Lake, tmp_path: Path) -> None:
    documents = load_training_data(one_lake, "synthetic", SOLVED.reading).training
    runs = [train_alone(one_lake, tmp_path / device.type, SOLVED, device) for device in (CPU, GPU)]
    everyone = documents.documents(documents.index.usable)
    ours, theirs = (LinkModel.load(run.model).similarities(everyone) for run in runs)
    for found, expected in zip(theirs, ours, strict=True):
        assert np.allclose(found, expected, atol=GPU_TOLERANCE)


@NEEDS_GPU
def test_bfloat16_on_a_gpu_stays_near_float32(tmp_path: Path) -> None:
    lake = make_lake(tmp_path)
    words = without_dropout(WORDS)
    alone = train_alone(lake, tmp_path / "alone", words)
    mixed = replace(words, training=replace(words.training, precision=Precision.BFLOAT16))
    result = train_alone(lake, tmp_path / "mixed", mixed, GPU)
    losses = [[epoch["train_loss"] for epoch in run.history] for run in (result, alone)]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)
    assert losses[0] != losses[1]


@NEEDS_GPU
def test_nccl_workers_train_as_one_process_on_the_processor_does(tmp_path: Path) -> None:
    """NCCL refuses two workers on one GPU: where there is one, a group of one takes the same path."""
    lake, workers = make_lake(tmp_path), min(2, torch.cuda.device_count())
    config = without_dropout(steps_of(FROZEN, 2))
    alone = train_alone(lake, tmp_path / "alone", config)
    run_workers(lake, workers, {tmp_path / "together": config}, backend="nccl")
    assert_same_run(tmp_path / "together", alone, workers, GPU_TOLERANCE)


def test_a_worker_tells_no_warning_of_pytorch_that_nobody_can_heed(tmp_path: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        module = torch.nn.Linear(2, 1)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            wrapped = TorchDistributed().summed(module)
            wrapped(torch.ones(1, 2)).sum().backward()
    finally:
        dist.destroy_process_group()
    assert [str(each.message) for each in told] == []
    assert module.weight.grad is not None
