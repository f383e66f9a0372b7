"""The recipe `closed-form`: its passes against loops over documents, its paths, and what does not fit."""

import logging
from dataclasses import replace
from pathlib import Path

import lakes
import numpy as np
import pytest
import torch
from scipy.linalg import fractional_matrix_power

from schemas.documents import Split
from schemas.errors import ConfigError
from schemas.lake import Lake
from schemas.overrides import override
from training.closed_form import solver as passes
from training.config import TrainConfig
from training.data.documents import DocumentSet
from training.data.loading import TrainingData, load_training_data
from training.loop import trainer
from training.loop.context import Context
from training.loop.trainer import train
from training.model import LinkModel
from training.objectives.closed_form import ClosedForm
from training.recipes import recipe

CONFIG = override(
    recipe("closed-form"),
    ["dimensions=6", "objective.passes=3", "objective.regularisation=8,2", "training.epochs=6", "training.select=last"],
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> TrainingData:
    lake = lakes.write_lake(tmp_path_factory.mktemp("lake"), lakes.splits(train=60, val=20))
    return load_training_data(lake, "synthetic", CONFIG.reading)


def trained(data: TrainingData, folder: Path, *settings: str) -> LinkModel:
    return LinkModel.load(train(override(CONFIG, settings), data, Context(), run_directory=folder).model)


def plan_of(scores: np.ndarray) -> np.ndarray:
    """Return a document's plan, with a partner for what the longer side has left over."""
    n, m = scores.shape
    kernel, rows, columns = np.exp(np.pad(scores, ((0, int(m > n)), (0, int(n > m))))), np.ones(n), np.ones(m)
    rows, columns = np.append(rows, [m - n] * (m > n)), np.append(columns, [n - m] * (n > m))
    for _ in range(15):
        kernel *= (rows / kernel.sum(axis=1))[:, None]
        kernel *= (columns / kernel.sum(axis=0))[None, :]
    return kernel[:n, :m] / kernel[:n, :m].sum()


def half_whitened(rows: np.ndarray, components: int) -> np.ndarray:
    values, vectors = np.linalg.eigh(np.cov(rows.T, bias=True))
    kept = values[::-1][:components]
    found = (rows - rows.mean(axis=0)) @ vectors[:, ::-1][:, :components] / kept**0.25
    return found / np.sqrt((found**2).sum(axis=1).mean())


Parts = tuple[tuple[slice, float], ...]


def cosines_by_hand(
    documents: DocumentSet,
    epochs: int,
    term: ClosedForm,
    dimensions: int,
    *,
    parts: tuple[Parts, Parts] = (((slice(None), 1.0),), ((slice(None), 1.0),)),
    named: tuple[slice, slice] | None = None,
) -> list[np.ndarray]:
    """Return each document's cosines after some passes of the first path, worked out document by document.

    `parts` are the columns of sentences and of images with their weights, `named` those of class names.
    """
    given = [documents.sentence_vectors.astype(np.float64), documents.image_bank[documents.image_rows].astype(float)]
    counts = (term.sentence_components, term.image_components)
    x, v = (
        np.hstack([weight * half_whitened(vectors[:, part], count) for part, weight in own])
        for vectors, count, own in zip(given, counts, parts, strict=True)
    )
    pairs = list(zip(documents.sentences, documents.images, strict=True))
    plans = [np.full((len(x[rows]), len(v[columns])), 1.0) for rows, columns in pairs]
    plans = [plan / plan.size for plan in plans]
    if named is not None:
        chosen = [side[:, part] for side, part in zip(given, named, strict=True)]
        units = [side / np.linalg.norm(side, axis=1)[:, None] for side in chosen]
        names = [units[0][rows] @ units[1][columns].T for rows, columns in pairs]
        plans = [plan_of(each / np.concatenate([each.ravel() for each in names]).std()) for each in names]
    cosines: list[np.ndarray] = []
    for number in range(epochs):
        along = number / (term.passes - 1)
        if number:
            sharpness = term.sharpness * term.rise ** ((number - 1) / (term.passes - 1))
            plans = [plan_of(sharpness * each) for each in cosines]
        regularisation = term.regularisation[0] / term.fall**along
        roots = []
        for side in (x, v):
            covariance = np.cov(side.T, bias=True)
            added = regularisation * np.trace(covariance) / len(covariance) * np.eye(len(covariance))
            roots.append(fractional_matrix_power(covariance + added, -0.5))
        product = sum(x[rows].T @ plan @ v[columns] for (rows, columns), plan in zip(pairs, plans, strict=True))
        u, s, vt = np.linalg.svd(roots[0] @ product @ roots[1])
        strength = np.sqrt(s / s[0])[:dimensions]
        texts, images = x @ roots[0] @ u[:, :dimensions] * strength, v @ roots[1] @ vt.T[:, :dimensions] * strength
        texts, images = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (texts, images))
        cosines = [texts[rows] @ images[columns].T for rows, columns in pairs]
    return cosines


@pytest.mark.parametrize("epochs", [1, 2, 3])
def test_passes_by_hand(data: TrainingData, tmp_path: Path, epochs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "PAIRS_AT_ONCE", 40)
    model = trained(data, tmp_path, f"training.epochs={epochs}", "link.steps=")
    documents = data.training.documents(data.training.index.usable)
    term = CONFIG.objective[0]
    expected = cosines_by_hand(documents, epochs, term, CONFIG.dimensions)
    for found, wanted in zip(model.similarities(documents), expected, strict=True):
        assert found == pytest.approx(wanted, abs=2e-4)


@pytest.mark.parametrize("epochs", [1, 2])
def test_columns_are_whitened_by_themselves_and_class_names_are_the_first_plan(tmp_path: Path, epochs: int) -> None:
    lake: Lake = lakes.write_lake(tmp_path / "lake", lakes.splits(train=60), is_named=True)
    settings = [f"training.epochs={epochs}", "link.steps=", "objective.column_weights=image-*=0.5,*-encoder=7"]
    data = load_training_data(lake, "synthetic", override(CONFIG, settings).reading)
    assert (data.identity.image_features, data.identity.image_sizes) == ("image-test+noisy-names", (16, 8))
    model = trained(data, tmp_path / "run", *settings)
    documents = data.training.documents(data.training.index.usable)
    term = CONFIG.objective[0]
    texts, images = ((slice(12), 1.0), (slice(12, 20), 1.0)), ((slice(16), 0.5), (slice(16, 24), 1.0))
    named = (slice(12, 20), slice(16, 24))
    expected = cosines_by_hand(documents, epochs, term, CONFIG.dimensions, parts=(texts, images), named=named)
    for found, wanted in zip(model.similarities(documents), expected, strict=True):
        assert found == pytest.approx(wanted, abs=5e-4)


def test_a_column_of_weight_0_is_not_read(tmp_path: Path) -> None:
    lake: Lake = lakes.write_lake(tmp_path / "lake", lakes.splits(train=30), is_named=True)
    config = override(CONFIG, ["objective.column_weights=noisy-*=0", "training.epochs=1"])
    weights = trained(
        load_training_data(lake, "synthetic", config.reading), tmp_path / "run", *["objective.column_weights=noisy-*=0"]
    )
    assert not weights.image.state_dict()["affine.weight"][:, 16:].any()
    assert weights.image.state_dict()["affine.weight"][:, :16].any()


def test_each_path_begins_anew_and_its_last_pass_is_repeated() -> None:
    term = ClosedForm(passes=3, regularisation=(8.0, 2.0), fall=4.0, sharpness=4.0, rise=9.0)
    steps = [term.pass_of(epoch) for epoch in range(1, 8)]
    assert [step.regularisation for step in steps] == pytest.approx([8, 4, 2, 2, 1, 0.5, 0.5])
    assert [step.sharpness for step in steps] == [
        None,
        4.0,
        pytest.approx(12),
        None,
        4.0,
        pytest.approx(12),
        pytest.approx(12),
    ]
    assert ClosedForm(passes=1).pass_of(1).sharpness is None


def test_a_second_path_forgets_the_first(data: TrainingData, tmp_path: Path) -> None:
    both = trained(data, tmp_path / "both")
    alone = trained(data, tmp_path / "alone", "objective.regularisation=2", "training.epochs=3")
    for name, value in both.state_dict().items():
        assert torch.equal(value, alone.state_dict()[name]), name


def test_links_are_found_and_the_kept_pass_has_the_lowest_rank(data: TrainingData, tmp_path: Path) -> None:
    config = override(CONFIG, ["training.select=retrieval", "dimensions=16"])
    result = train(config, data, Context(), run_directory=tmp_path)
    ranks = [epoch["validation_rank"] for epoch in result.history]
    assert result.best_epoch == 1 + int(np.argmin(ranks))
    assert result.history[result.best_epoch - 1]["validation_auc"] > 85
    assert all(np.isfinite(list(epoch.values())).all() for epoch in result.history)
    assert {"regularisation", "sharpness", "documents_per_second"} <= result.history[1].keys()


def test_more_dimensions_than_directions_are_empty(data: TrainingData, tmp_path: Path) -> None:
    wide = trained(data, tmp_path / "wide", "dimensions=500")
    weights = wide.text.state_dict()["affine.weight"]
    assert weights.shape[0] == 500
    assert not weights[300:].any()


@pytest.mark.parametrize("order", ["off", "on"])
def test_a_resumed_run_has_the_same_bits(data: TrainingData, tmp_path: Path, order: str) -> None:
    """The order that one pass learns is read by later ones, after the run went on."""
    config = override(CONFIG, [f"link.order={order}", "objective.passes=5"])
    whole = trained(data, tmp_path / "whole", f"link.order={order}", "objective.passes=5")
    cut = override(config, ["training.epochs=4"])
    train(cut, data, Context(), run_directory=tmp_path / "cut")
    checkpoint = tmp_path / "cut/checkpoint"
    context = Context(find_checkpoint=lambda: checkpoint)
    again = LinkModel.load(train(config, data, context, run_directory=tmp_path / "cut").model)
    for name, value in whole.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            "text.name=gru",
            r"text.name = 'gru': closed-form solves for affine maps; set text.name=sentence",
        ),
        ("image.name=linear-bn", r"image.name = 'linear-bn': .* image.name=linear"),
        ("objective.name=closed-form+cross", "an objective that solves for maps cannot be summed with others"),
        ("training.max_rows=3", "training.max_rows = 3: .*reads whole documents"),
        ("training.start_from=other", "training.start_from = .*whole documents"),
        ("objective.regularisation=", "objective.regularisation = .*expected at least one"),
        ("objective.column_weights=a=b", r"objective.column_weights = 'a=b': expected COLUMN=WEIGHT"),
    ],
)
def test_what_does_not_fit_is_one_line(setting: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        override(CONFIG, [setting])


def test_without_validation_documents_the_last_pass_is_kept(data: TrainingData, tmp_path: Path) -> None:
    lines: list[str] = []
    config = override(CONFIG, ["training.select=retrieval"])
    context = Context(on_progress=lambda line: lines.append(str(line)))
    result = train(config, replace(data, validation=None), context, run_directory=tmp_path)
    assert result.best_epoch == config.training.epochs
    assert any("has no validation document" in line and "the last one is kept" in line for line in lines)


@pytest.mark.parametrize(("documents", "kept"), [(1, 6), (4, 6), (19, 6), (20, 3)])
def test_few_validation_documents_choose_no_pass(
    tmp_path: Path, documents: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All own images are first after one pass: below 20 documents the last pass is kept; with more, the latest best."""
    made = lakes.splits(train=60)
    made[Split.VAL] = lakes.make_documents(Split.VAL, documents, lakes.World())
    lake: Lake = lakes.write_lake(tmp_path / "lake", made)
    config = override(CONFIG, ["training.select=retrieval"])
    ranks = iter([2.0, 1.0, 1.0, 1.5, 1.5, 1.5])
    judged = trainer.validate
    monkeypatch.setattr(trainer, "validate", lambda *given, **named: replace(judged(*given, **named), rank=next(ranks)))
    lines: list[str] = []
    context = Context(on_progress=lambda line: lines.append(str(line)))
    result = train(
        config, load_training_data(lake, "synthetic", config.reading), context, run_directory=tmp_path / "run"
    )
    assert result.best_epoch == kept
    assert any(f"has {documents} validation document" in line for line in lines) == (documents < 20)


def test_passes_that_are_cut_are_pointed_out(
    data: TrainingData, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        trained(data, tmp_path / "whole")
        assert not caplog.text
        trained(data, tmp_path / "cut", "objective.regularisation=8,4,2")
    assert (
        "training.epochs = 6 cuts the 9 passes of objective.regularisation; use --set training.epochs=9" in caplog.text
    )


def test_links_are_never_read(tmp_path: Path) -> None:
    made = lakes.make_documents(Split.TRAIN, 12, lakes.World())
    models = []
    for number, documents in enumerate((made, lakes.without_links(made), lakes.with_other_links(made))):
        lake: Lake = lakes.write_lake(tmp_path / f"lake-{number}", {Split.TRAIN: documents})
        config: TrainConfig = replace(CONFIG, training=replace(CONFIG.training, epochs=3))
        models.append(trained(load_training_data(lake, "synthetic", config.reading), tmp_path / str(number)))
    for other in models[1:]:
        assert all(torch.equal(value, other.state_dict()[name]) for name, value in models[0].state_dict().items())
