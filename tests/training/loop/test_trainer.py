import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from schemas.documents import Split
from schemas.errors import BuildError, ConfigError, UsageError
from schemas.lake import Lake
from training.config import (
    EncoderConfig,
    LoopConfig,
    ObjectiveConfig,
    ObjectiveName,
    Precision,
    Select,
    Similarity,
    TextEncoder,
    TrainConfig,
)
from training.data.loading import TrainingData, load_training_data
from training.loop import state
from training.loop.context import SingleProcess
from training.loop.encoding import prepare_split
from training.loop.setup import new_model
from training.loop.step import take_step
from training.loop.trainer import TrainResult, train
from training.loop.validation import own_set_ranks
from training.model import LinkModel
from training.objectives.batch import EncodedBatch, Moment
from training.objectives.cross_document import CrossDocument

FROZEN = TrainConfig(
    encoder=EncoderConfig(text=TextEncoder.SENTENCE, dimensions=24, dropout=0.2),
    training=LoopConfig(epochs=4, learning_rate=5e-3, negative_documents=6),
)
WORDS = replace(FROZEN, encoder=EncoderConfig(dimensions=24, dropout=0.2, word_dimensions=12, min_word_count=2))


@pytest.fixture(scope="module")
def lake(lakes: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    made = {
        split: lakes.make_documents(split, count, lakes.World()) for split, count in zip(Split, (60, 20), strict=False)
    }
    return lakes.write_lake(str(tmp_path_factory.mktemp("lake")), made)


@pytest.fixture(scope="module")
def data(lake: Lake) -> TrainingData:
    return load_training_data(lake, "synthetic", FROZEN)


def weights(result: TrainResult) -> Mapping[str, torch.Tensor]:
    return LinkModel.load(result.model).state_dict()


def assert_equal_weights(one: TrainResult, other: TrainResult) -> None:
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def with_loop(config: TrainConfig, **changes: object) -> TrainConfig:
    return replace(config, training=replace(config.training, **changes))


@pytest.mark.parametrize("similarity", [Similarity.DC, Similarity.TK, Similarity.AP])
def test_links_are_found_without_being_shown(data: TrainingData, tmp_path: Path, similarity: Similarity) -> None:
    config = replace(with_loop(FROZEN, epochs=6), objective=ObjectiveConfig(similarity=similarity))
    result = train(config, data, SingleProcess(), run_directory=tmp_path)
    first, last = result.history[0], result.history[-1]
    assert last["train_loss"] < first["train_loss"] / 2
    assert last["validation_auc"] > 95
    assert last["validation_precision_at_1"] > 90
    assert last["validation_rank"] < 1.6
    assert last["documents_per_second"] > 0


def test_words_are_learnt(lake: Lake, tmp_path: Path) -> None:
    config = with_loop(WORDS, epochs=8, learning_rate=1e-2)
    result = train(config, load_training_data(lake, "synthetic", config), SingleProcess(), run_directory=tmp_path)
    assert result.history[-1]["train_loss"] < result.history[0]["train_loss"] * 0.8
    model = LinkModel.load(result.model)
    assert model.vocabulary is not None and "thing3" in model.vocabulary.words


def test_nostruct_learns(data: TrainingData, tmp_path: Path) -> None:
    config = replace(with_loop(FROZEN, epochs=16), objective=ObjectiveConfig(name=ObjectiveName.NOSTRUCT))
    result = train(config, data, SingleProcess(), run_directory=tmp_path)
    assert result.history[-1]["validation_auc"] > 75


@pytest.mark.parametrize("config", [FROZEN, WORDS], ids=["sentence", "gru"])
@pytest.mark.parametrize("change", ["removed", "permuted"])
def test_ground_truth_is_never_visible(lakes: ModuleType, tmp_path: Path, config: TrainConfig, change: str) -> None:
    """Training with the links removed or permuted, in both splits, gives the same weights to the last bit."""
    config = with_loop(config, epochs=2)
    made = {split: lakes.make_documents(split, 24, lakes.World()) for split in (Split.TRAIN, Split.VAL)}
    hide = lakes.without_links if change == "removed" else lakes.with_other_links
    results = []
    for name, documents in (("shown", made), ("hidden", {split: hide(each) for split, each in made.items()})):
        lake = lakes.write_lake(str(tmp_path / name), documents)
        given = load_training_data(lake, "synthetic", config)
        results.append(train(config, given, SingleProcess(), run_directory=tmp_path / f"run-{name}"))
    assert_equal_weights(*results)
    assert [row["validation_loss"] for row in results[0].history] == [
        row["validation_loss"] for row in results[1].history
    ]
    assert ("validation_auc" in results[1].history[0]) == (change == "permuted")


@pytest.mark.parametrize("config", [FROZEN, WORDS], ids=["sentence", "gru"])
def test_a_resumed_run_is_the_uninterrupted_one(lake: Lake, tmp_path: Path, config: TrainConfig) -> None:
    given = load_training_data(lake, "synthetic", config)
    whole = train(config, given, SingleProcess(), run_directory=tmp_path / "whole")
    run = tmp_path / "cut"
    resumed = SingleProcess(find_checkpoint=lambda: state.latest(run))
    for epochs in (1, 3, 4):
        torch.rand(epochs)  # the global random state is nobody's business
        last = train(with_loop(config, epochs=epochs), given, resumed, run_directory=run)
    assert_equal_weights(whole, last)
    assert last.best_epoch == whole.best_epoch
    assert last.best_validation_loss == whole.best_validation_loss
    for found, expected in zip(last.history, whole.history, strict=True):
        assert {**found, "documents_per_second": 0} == {**expected, "documents_per_second": 0}


def test_resuming_a_finished_run_trains_nothing(data: TrainingData, tmp_path: Path) -> None:
    first = train(FROZEN, data, SingleProcess(), run_directory=tmp_path)
    again = train(FROZEN, data, SingleProcess(find_checkpoint=lambda: state.latest(tmp_path)), run_directory=tmp_path)
    assert again.history == first.history
    assert_equal_weights(first, again)


def test_another_configuration_does_not_resume(data: TrainingData, tmp_path: Path) -> None:
    train(with_loop(FROZEN, epochs=1), data, SingleProcess(), run_directory=tmp_path)
    context = SingleProcess(find_checkpoint=lambda: state.latest(tmp_path))
    with pytest.raises(ConfigError, match=r"training\.learning_rate = 0\.005, this run 0\.001"):
        train(with_loop(FROZEN, learning_rate=1e-3), data, context, run_directory=tmp_path)


def test_training_leaves_the_global_random_state_alone(data: TrainingData, tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    train(with_loop(FROZEN, epochs=1), data, SingleProcess(), run_directory=tmp_path)
    assert torch.equal(torch.rand(3), expected)


def test_one_checkpoint_is_kept_and_reported_each_epoch(data: TrainingData, tmp_path: Path) -> None:
    reports: list[tuple[float, str, bool]] = []

    def report(metrics: Mapping[str, float], checkpoint: Path | None) -> None:
        assert checkpoint is not None
        reports.append((metrics["epoch"], checkpoint.name, (checkpoint / "best" / "weights.pt").exists()))

    train(with_loop(FROZEN, epochs=3), data, SingleProcess(on_report=report), run_directory=tmp_path)
    assert reports == [(1.0, "epoch-0001", True), (2.0, "epoch-0002", True), (3.0, "epoch-0003", True)]
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["epoch-0003"]


@pytest.mark.parametrize("select", list(Select))
def test_which_epoch_is_kept(data: TrainingData, tmp_path: Path, select: Select) -> None:
    result = train(with_loop(FROZEN, select=select, epochs=5), data, SingleProcess(), run_directory=tmp_path)
    metric = {Select.LOSS: "validation_loss", Select.RETRIEVAL: "validation_rank", Select.LAST: "epoch"}[select]
    values = [row[metric] for row in result.history]
    expected = 5 if select is Select.LAST else int(np.argmin(values)) + 1
    assert result.best_epoch == expected
    assert result.best_validation_loss == result.history[expected - 1]["validation_loss"]
    assert LinkModel.load(result.model).card.epoch == expected


def test_of_equal_epochs_the_earliest_is_kept(data: TrainingData, tmp_path: Path) -> None:
    config = with_loop(FROZEN, learning_rate=1e-30)
    result = train(config, data, SingleProcess(), run_directory=tmp_path)
    assert len({row["validation_loss"] for row in result.history}) == 1
    assert result.best_epoch == 1


def test_rate_falls_after_more_than_so_many_epochs_without_improvement(data: TrainingData, tmp_path: Path) -> None:
    config = with_loop(FROZEN, learning_rate=1e-30, epochs=8, plateau_epochs=2)
    result = train(config, data, SingleProcess(), run_directory=tmp_path)
    rates = [row["learning_rate"] / 1e-30 for row in result.history]
    # epoch 1 improves on nothing; 2, 3 and 4 do not improve: that is more than two
    assert rates == pytest.approx([1, 1, 1, 1, 0.2, 0.2, 0.2, 0.04])


def test_without_validation_only_last_can_be_selected(lakes: ModuleType, tmp_path: Path) -> None:
    lake = lakes.write_lake(str(tmp_path / "lake"), {Split.TRAIN: lakes.make_documents(Split.TRAIN, 9, lakes.World())})
    given = load_training_data(lake, "synthetic", FROZEN)
    assert given.validation is None
    with pytest.raises(UsageError, match=r"--set training\.select=last"):
        train(FROZEN, given, SingleProcess(), run_directory=tmp_path / "run")
    result = train(with_loop(FROZEN, select=Select.LAST), given, SingleProcess(), run_directory=tmp_path / "run")
    assert (result.best_epoch, result.best_validation_loss) == (4, None)
    assert set(result.history[0]) == {"epoch", "train_loss", "learning_rate", "documents_per_second"}


class Broken(CrossDocument):
    """An objective that is not a number for one document."""

    def losses(self, batch: EncodedBatch) -> torch.Tensor:
        losses = super().losses(batch)
        return losses * torch.where(torch.arange(len(losses)) == 1, torch.nan, 1.0)


def test_a_loss_that_is_not_finite_stops_before_anything_changes(data: TrainingData) -> None:
    run = state.start(new_model(FROZEN, data, SingleProcess()))
    before = {name: value.clone() for name, value in run.model.state_dict().items()}
    with pytest.raises(BuildError, match=r"epoch 2, step 7: loss nan, .*: train-\d+, .*training\.learning_rate"):
        take_step(
            run.model,
            run.optimiser,
            objective=Broken(FROZEN.objective),
            split=prepare_split(run.model, data.training),
            positions=np.arange(5),
            moment=Moment(split="training", epoch=2, step=7),
            context=SingleProcess(),
        )
    assert all(torch.equal(value, before[name]) for name, value in run.model.state_dict().items())


def test_a_collapsed_model_is_pointed_out(lakes: ModuleType, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = lakes.World()
    made = {split: lakes.make_documents(split, 8, world) for split in (Split.TRAIN, Split.VAL)}
    same = {
        split: replace(each, image_vectors={key: np.ones(world.image_dimensions) for key in each.image_vectors})
        for split, each in made.items()
    }
    same = {
        split: replace(
            each,
            sentence_vectors={
                key: np.ones((len(rows), world.text_dimensions)) for key, rows in each.sentence_vectors.items()
            },
        )
        for split, each in same.items()
    }
    lake = lakes.write_lake(str(tmp_path / "lake"), same)
    with caplog.at_level(logging.WARNING):
        given = load_training_data(lake, "synthetic", FROZEN)
        train(with_loop(FROZEN, epochs=1), given, SingleProcess(), run_directory=tmp_path / "run")
    assert "collapsed" in caplog.text


def test_bfloat16_trains_too(lake: Lake, tmp_path: Path) -> None:
    for config in (FROZEN, WORDS):
        changed = with_loop(config, precision=Precision.BFLOAT16, epochs=3)
        given = load_training_data(lake, "synthetic", changed)
        result = train(changed, given, SingleProcess(), run_directory=tmp_path / config.encoder.text)
        assert result.history[-1]["train_loss"] < result.history[0]["train_loss"]


def test_ranks_count_ties_half_and_skip_what_is_not_allowed() -> None:
    similarity = torch.tensor([[0.5, 0.9, 0.5], [0.1, 0.2, 0.0], [0.3, 0.9, 0.2]])
    allowed = ~torch.eye(3, dtype=torch.bool)
    assert own_set_ranks(similarity, allowed).tolist() == [2.5, 1.0, 3.0]
    allowed[2, 1] = False
    assert own_set_ranks(similarity, allowed).tolist() == [2.5, 1.0, 2.0]
