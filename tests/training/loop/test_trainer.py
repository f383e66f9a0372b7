import logging
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import lakes
import numpy as np
import pytest
import torch
from set_similarity import set_similarity

from benchmarks.held_split import HeldSplit
from schemas.documents import Split
from schemas.lake import Lake
from schemas.messages import BuildError, ConfigError, UsageError
from schemas.overrides import override
from training.config import LoopConfig, PlateauSchedule, Precision, Select, TrainConfig, objective
from training.data.loading import TrainingData, load_training_data
from training.data.split import TrainingSplit
from training.loop import epoch, state, trainer
from training.loop.context import Context
from training.loop.encoding import prepare_batch
from training.loop.epoch import Validation, own_set_ranks, validate
from training.loop.setup import new_model
from training.loop.step import Stepper
from training.loop.trainer import TrainResult, train
from training.model import LinkModel, label_matrix
from training.objectives.batch import DrawKey, EncodedBatch
from training.objectives.ranking import CrossDocument
from training.towers.inputs import image_input, text_input
from training.towers.recurrence import GruSettings
from training.towers.vectors import LinearSettings, SentenceSettings

FROZEN = TrainConfig(
    dimensions=24,
    text=SentenceSettings(dropout=0.2),
    image=LinearSettings(dropout=0.2, standardise=True),
    training=LoopConfig(epochs=4, learning_rate=5e-3, negative_documents=6),
)
WORDS = replace(
    FROZEN,
    text=GruSettings(dropout=0.2, word_dimensions=12, min_word_count=2),
    image=LinearSettings(dropout=0.2),
)

SUM = replace(FROZEN, objective=objective("cross+intra+dropout+nostruct", similarity="tk"))
PAIRS = replace(FROZEN, objective=objective("triplet-hardest", margin=0.3))
COHERENT = replace(FROZEN, objective=objective("coherence-aware", margin=0.3))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return lakes.write_lake(tmp_path_factory.mktemp("lake"), lakes.splits(train=60, val=20))


@pytest.fixture(scope="module")
def data(lake: Lake) -> TrainingData:
    return load_training_data(lake, "synthetic", FROZEN.reading)


def assert_equal_weights(one: TrainResult, other: TrainResult) -> None:
    assert lakes.weights_of(LinkModel.load(one.model)) == lakes.weights_of(LinkModel.load(other.model))


def latest(run: Path) -> Path | None:
    """The checkpoint in a run's folder."""
    return next(run.glob("checkpoint"), None)


def with_loop(config: TrainConfig, **changes: object) -> TrainConfig:
    return replace(config, training=replace(config.training, **changes))


@pytest.mark.parametrize("similarity", ["dc", "tk", "ap"])
def test_links_are_found_without_being_shown(data: TrainingData, tmp_path: Path, similarity: str) -> None:
    config = replace(with_loop(FROZEN, epochs=6), objective=objective("cross", similarity=similarity))
    result = train(config, data, Context(), run_directory=tmp_path)
    first, last = result.history[0], result.history[-1]
    assert last["train_loss"] < first["train_loss"] / 2
    assert last["validation_auc"] > 95
    assert last["validation_precision_at_1"] > 90
    assert last["validation_rank"] < 1.6
    assert last["documents_per_second"] > 0


@pytest.mark.parametrize("config", [FROZEN, WORDS, SUM], ids=["sentence", "gru", "sum"])
def test_ground_truth_is_never_visible(tmp_path: Path, config: TrainConfig) -> None:
    """Training with the links removed or permuted, in both splits, gives the same weights to the last bit.

    So does training where images stand beside their sentences or elsewhere in the layout.
    """
    config = with_loop(config, epochs=2)
    made = lakes.splits(train=24, val=24)
    shown = train_on(lakes.write_lake(tmp_path / "shown", made), config, tmp_path / "run-shown")
    changes: dict[str, Callable[[Any], Any]] = {
        "removed": lakes.without_links,
        "permuted": lakes.with_other_links,
        "placed": lakes.with_places,
        "misplaced": partial(lakes.with_places, shift=2),
    }
    for name, hide in changes.items():
        lake = lakes.write_lake(tmp_path / name, {split: hide(each) for split, each in made.items()})
        hidden = train_on(lake, config, tmp_path / f"run-{name}")
        assert_equal_weights(shown, hidden)
        assert [row["validation_loss"] for row in shown.history] == [row["validation_loss"] for row in hidden.history]
        assert ("validation_auc" in hidden.history[0]) == (name != "removed")


def pairs(root: Path, change: Callable[[Any], Any] | None = None) -> Lake:
    """Return a lake of pairs with relations; `change` is made to its training split."""
    world = lakes.World(sentences=(1, 1), images=(1, 1))
    made = {split: lakes.with_relations(lakes.make_documents(split, 30, world)) for split in (Split.TRAIN, Split.VAL)}
    if change is not None:
        made[Split.TRAIN] = change(made[Split.TRAIN])
    return lakes.write_lake(root, made)


def train_on(lake: Lake, config: TrainConfig, run: Path) -> TrainResult:
    return train(config, load_training_data(lake, "synthetic", config.reading), Context(), run_directory=run)


def test_relations_are_learnt_and_seen_by_the_coherence_objective_alone(tmp_path: Path) -> None:
    shown, hidden = pairs(tmp_path / "shown"), pairs(tmp_path / "hidden", lakes.without_links)
    assert_equal_weights(train_on(shown, PAIRS, tmp_path / "a"), train_on(hidden, PAIRS, tmp_path / "b"))
    config = with_loop(COHERENT, epochs=12)
    model = LinkModel.load(train_on(shown, config, tmp_path / "c").model)
    assert model.relations is not None and model.card.relations == ("action", "story")
    documents = lakes.whole(load_training_data(shown, "synthetic", config.reading).training)
    labels = label_matrix(documents.relations, model.card.relations)
    assert np.isnan(labels).sum() == 6
    assert model.relations.weights.tolist() == pytest.approx((1 / np.nanmean(labels, axis=0)).tolist())
    texts = torch.from_numpy(model.encode_sentences(text_input(documents)))
    images = torch.from_numpy(model.encode_images(image_input(documents)))[documents.image_rows]
    found = model.relations(texts, images).detach().numpy() > 0
    assert (found == (labels > 0))[~np.isnan(labels)].mean() > 0.8


def test_relations_of_validation_are_not_read(tmp_path: Path) -> None:
    data = load_training_data(pairs(tmp_path), "synthetic", COHERENT.reading)
    training, validation = lakes.whole(data.training), lakes.whole(data.validation)
    assert training.relations is not None and training.links is None
    assert validation.relations is None


def test_one_relation_can_be_chosen(tmp_path: Path) -> None:
    one = override(COHERENT, ["objective.relations=story"])
    lake = pairs(tmp_path / "lake")
    assert LinkModel.load(train_on(lake, with_loop(one, epochs=1), tmp_path / "run").model).card.relations == ("story",)
    missing = override(COHERENT, ["objective.relations=meta"])
    with pytest.raises(UsageError, match="no training document of synthetic@v1 has it; it has action, story"):
        train_on(lake, missing, tmp_path / "none")


def test_what_does_not_fit_is_said_before_training(lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"one text and one image, split 'train' has up to 5 images; use --set"):
        load_training_data(lake, "synthetic", PAIRS.reading)
    texts = lakes.World(sentences=(1, 3), images=(1, 1))
    made = {split: lakes.make_documents(split, 9, texts) for split in (Split.TRAIN, Split.VAL)}
    with pytest.raises(UsageError, match=r"\d have more \(document train-\d+: [23] and 1\); read one role"):
        train_on(lakes.write_lake(tmp_path / "texts", made), PAIRS, tmp_path / "run")
    with pytest.raises(UsageError, match="the training split has no link; train on a data set with relations"):
        load_training_data(pairs(tmp_path / "none", lakes.without_links), "synthetic", COHERENT.reading)
    bare = pairs(tmp_path / "bare", lakes.with_other_links)
    with pytest.raises(UsageError, match="has a relation; train on one that has"):
        train_on(bare, COHERENT, tmp_path / "run")


def test_progress_is_said(data: TrainingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(epoch, "SECONDS_BETWEEN_LINES", 0.0)
    train(with_loop(FROZEN, epochs=1), data, Context(on_progress=lines.append), run_directory=tmp_path)
    assert len(lines) == 8
    assert re.fullmatch(
        r"epoch 1/1, step 8/8: [\d.]+ documents/s, loss 0\.\d{4}, learning rate 0\.005, 0:00:00 left", lines[-1]
    )


def test_a_single_validation_document_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lake = lakes.write_lake(tmp_path / "lake", lakes.splits(train=8, val=1), shards=1)
    with caplog.at_level(logging.WARNING):
        train_on(lake, with_loop(FROZEN, epochs=1), tmp_path / "run")
    assert "synthetic@v1 has a single validation document" in caplog.text


@pytest.mark.parametrize("config", [FROZEN, WORDS], ids=["sentence", "gru"])
def test_a_resumed_run_is_the_uninterrupted_one(lake: Lake, tmp_path: Path, config: TrainConfig) -> None:
    given = load_training_data(lake, "synthetic", config.reading)
    whole = train(config, given, Context(), run_directory=tmp_path / "whole")
    run = tmp_path / "cut"
    resumed = Context(find_checkpoint=lambda: latest(run))
    for epochs in (1, 3, 4):
        torch.rand(epochs)  # the global random state is nobody's business
        last = train(with_loop(config, epochs=epochs), given, resumed, run_directory=run)
    assert_equal_weights(whole, last)
    assert last.best_epoch == whole.best_epoch
    assert last.best_validation_loss == whole.best_validation_loss
    for found, expected in zip(last.history, whole.history, strict=True):
        assert {**found, "documents_per_second": 0} == {**expected, "documents_per_second": 0}


def test_a_checkpoint_keeps_the_plateaus(data: TrainingData, tmp_path: Path) -> None:
    run = state.start(new_model(FROZEN, data, Context()))
    run.schedule = state.Plateaus(patience=3, best=0.1, waited=2, count=1)
    assert state.resume(state.save(run, tmp_path), run.model.card, Context()).schedule == run.schedule


@pytest.mark.parametrize("cut", [2, 3])
def test_a_resumed_run_keeps_the_best_epoch_it_had(
    data: TrainingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    monkeypatch.setattr(trainer, "_value", lambda select, judged, epoch: abs(epoch - 2))
    whole = train(FROZEN, data, Context(), run_directory=tmp_path / "whole")
    run = tmp_path / "cut"
    for epochs in (cut, 4):
        resumed = Context(find_checkpoint=lambda: latest(run))
        last = train(with_loop(FROZEN, epochs=epochs), data, resumed, run_directory=run)
    assert last.best_epoch == whole.best_epoch == 2
    assert LinkModel.load(last.model).card.epoch == 2
    assert_equal_weights(whole, last)


def test_resuming_a_finished_run_trains_nothing(data: TrainingData, tmp_path: Path) -> None:
    first = train(FROZEN, data, Context(), run_directory=tmp_path)
    again = train(FROZEN, data, Context(find_checkpoint=lambda: latest(tmp_path)), run_directory=tmp_path)
    assert again.history == first.history
    assert_equal_weights(first, again)


def test_another_configuration_does_not_resume(data: TrainingData, tmp_path: Path) -> None:
    train(with_loop(FROZEN, epochs=1), data, Context(), run_directory=tmp_path)
    config, context = with_loop(FROZEN, learning_rate=1e-3), Context(find_checkpoint=lambda: latest(tmp_path))
    with pytest.raises(ConfigError, match=r"training\.learning_rate = 0\.005, this run 0\.001"):
        train(config, data, context, run_directory=tmp_path)


def test_training_leaves_the_global_random_state_alone(data: TrainingData, tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    train(with_loop(FROZEN, epochs=1), data, Context(), run_directory=tmp_path)
    assert torch.equal(torch.rand(3), expected)


def test_a_checkpoint_is_reported_each_epoch(data: TrainingData, tmp_path: Path) -> None:
    reports: list[tuple[float, float, bool]] = []

    def report(metrics: Mapping[str, float], checkpoint: Path | None) -> None:
        assert checkpoint is not None
        epoch = torch.load(checkpoint / "state.pt", weights_only=True)["epoch"]
        reports.append((metrics["epoch"], epoch, (checkpoint / "best" / "weights.pt").exists()))

    result = train(with_loop(FROZEN, epochs=3), data, Context(on_report=report), run_directory=tmp_path)
    losses = [row["validation_loss"] for row in result.history]
    has_best = [int(np.argmin(losses[:epoch])) + 1 < epoch for epoch in (1, 2, 3)]
    assert reports == [(epoch, epoch, has_best[epoch - 1]) for epoch in (1, 2, 3)]


@pytest.mark.parametrize("select", list(Select))
def test_which_epoch_is_kept(data: TrainingData, tmp_path: Path, select: Select) -> None:
    result = train(with_loop(FROZEN, select=select, epochs=5), data, Context(), run_directory=tmp_path)
    metric = {
        Select.LOSS: "validation_loss",
        Select.RETRIEVAL: "validation_rank",
        Select.MEDIAN_RANK: "validation_median_rank",
        Select.LAST: "epoch",
    }[select]
    values = [row[metric] for row in result.history]
    expected = 5 if select is Select.LAST else 5 - int(np.argmin(values[::-1]))  # of equals the latest
    assert result.best_epoch == expected
    assert result.best_validation_loss == result.history[expected - 1]["validation_loss"]
    assert LinkModel.load(result.model).card.epoch == expected


def test_ranks_are_of_own_image_sets_among_documents_that_share_nothing(data: TrainingData) -> None:
    model, split = new_model(FROZEN, data, Context()), data.validation
    found = validate(model, split, Context(), epoch=1)
    documents = lakes.whole(split)
    vectors, texts = model.embed(documents), [set(documents.texts[rows]) for rows in documents.sentences]
    assert any(texts[0] & other for other in texts[1:])
    ranks = []
    for number, own in enumerate(vectors):
        values = [float(set_similarity(torch.from_numpy(own.texts @ other.images.T), "ap")) for other in vectors]
        others = [value for value, said in zip(values, texts, strict=True) if not said & texts[number]]
        ranks.append(sum(value > values[number] for value in others) + 1)
    assert len(set(ranks)) > 2 and found.median_rank == np.median(ranks)
    assert found.rank == pytest.approx(np.mean(ranks)) and found.rank != found.median_rank


def losses_of(monkeypatch: pytest.MonkeyPatch, *values: float) -> None:
    """Let the epochs have these validation losses."""
    waiting = iter(values)

    def judge(*parts: object, **more: object) -> Validation:
        return Validation(
            loss=next(waiting), rank=1.0, median_rank=1.0, auc=None, precision_at_1=None, precision_at_5=None
        )

    monkeypatch.setattr(trainer, "validate", judge)


def test_a_loss_that_is_no_number_is_never_the_best(
    data: TrainingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses_of(monkeypatch, math.nan, 0.9, 0.3, math.nan)
    found = train(with_loop(FROZEN, epochs=4), data, Context(), run_directory=tmp_path / "a")
    assert (found.best_epoch, found.best_validation_loss) == (3, 0.3)
    losses_of(monkeypatch, math.nan, math.nan)
    with pytest.raises(BuildError, match="no epoch had a validation loss or rank that is a number"):
        train(with_loop(FROZEN, epochs=2), data, Context(), run_directory=tmp_path / "b")


def test_rate_falls_after_more_than_so_many_epochs_without_improvement(data: TrainingData, tmp_path: Path) -> None:
    config = with_loop(FROZEN, learning_rate=1e-30, epochs=8, schedule=PlateauSchedule(epochs=2))
    result = train(config, data, Context(), run_directory=tmp_path)
    rates = [row["learning_rate"] / 1e-30 for row in result.history]
    # epoch 1 improves on nothing; 2, 3 and 4 do not improve: that is more than two
    assert rates == pytest.approx([1, 1, 1, 1, 0.2, 0.2, 0.2, 0.04])


def test_without_validation_only_last_can_be_selected(tmp_path: Path) -> None:
    lake = lakes.write_lake(tmp_path / "lake", lakes.splits(train=9))
    given = load_training_data(lake, "synthetic", FROZEN.reading)
    assert given.validation is None
    with pytest.raises(UsageError, match=r"--set training\.select=last"):
        train(FROZEN, given, Context(), run_directory=tmp_path / "run")
    result = train(with_loop(FROZEN, select=Select.LAST), given, Context(), run_directory=tmp_path / "run")
    assert (result.best_epoch, result.best_validation_loss) == (4, None)
    assert set(result.history[0]) == {"epoch", "train_loss", "learning_rate", "documents_per_second"}


class Broken(CrossDocument):
    """An objective that is not a number for one document."""

    def losses(self, batch: EncodedBatch) -> torch.Tensor:
        losses = CrossDocument.losses(self, batch)
        return losses * torch.where(torch.arange(len(losses)) == 1, torch.nan, 1.0)


def test_a_loss_that_is_not_finite_stops_before_anything_changes(data: TrainingData) -> None:
    run = state.start(new_model(replace(FROZEN, objective=(Broken(),)), data, Context()))
    before = {name: value.clone() for name, value in run.model.state_dict().items()}
    with pytest.raises(BuildError, match=r"epoch 2, batch 7: loss nan, .*: train-\d+, .*training\.learning_rate"):
        take_step(run, data.training, np.arange(5), DrawKey(split="training", epoch=2, step=7))
    assert all(torch.equal(value, before[name]) for name, value in run.model.state_dict().items())


def take_step(run: state.RunState, split: TrainingSplit, positions: np.ndarray, draw_key: DrawKey) -> None:
    """Take a step along the gradient of one batch."""
    batch = prepare_batch(run.model, split, positions, draw_key)
    Stepper(run.model, run.optimiser, Context()).step([batch], count=1)


def test_the_document_with_the_broken_vector_is_named(data: TrainingData) -> None:
    documents = lakes.whole(data.training)
    bank = documents.image_bank.copy()
    bank[documents.image_rows[documents.images.offsets[3]]] = np.nan
    documents = replace(documents, image_bank=bank)
    run = state.start(new_model(FROZEN, data, Context()))
    with pytest.raises(BuildError, match=rf"documents with such vectors: {documents.ids[3]}; check"):
        take_step(run, HeldSplit(documents), np.arange(6), DrawKey(split="training", epoch=1, step=0))


def test_a_collapsed_model_is_pointed_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    same = {
        split: replace(
            made,
            image_vectors={key: np.ones_like(row) for key, row in made.image_vectors.items()},
            sentence_vectors={key: np.ones_like(rows) for key, rows in made.sentence_vectors.items()},
        )
        for split, made in lakes.splits(train=8, val=8).items()
    }
    with caplog.at_level(logging.WARNING):
        train_on(lakes.write_lake(tmp_path / "lake", same), with_loop(FROZEN, epochs=1), tmp_path / "run")
    assert "all validation documents are equally similar" in caplog.text
    assert "all training pairs are equally similar" in caplog.text


def test_bfloat16_trains_too(lake: Lake, tmp_path: Path) -> None:
    for config in (FROZEN, WORDS):
        changed = with_loop(config, precision=Precision.BFLOAT16, epochs=3)
        given = load_training_data(lake, "synthetic", changed.reading)
        result = train(changed, given, Context(), run_directory=tmp_path / config.text.name)
        assert result.history[-1]["train_loss"] < result.history[0]["train_loss"]


def test_ranks_count_ties_half_and_skip_what_is_not_allowed() -> None:
    similarity = torch.tensor([[0.5, 0.9, 0.5], [0.1, 0.2, 0.0], [0.3, 0.9, 0.2]])
    allowed = ~torch.eye(3, dtype=torch.bool)
    assert own_set_ranks(similarity, allowed).tolist() == [2.5, 1.0, 3.0]
    allowed[2, 1] = False
    assert own_set_ranks(similarity, allowed).tolist() == [2.5, 1.0, 2.0]
