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
from schemas.lake import Lake
from schemas.messages import BuildError, ConfigError, MultilinkError, UsageError
from schemas.overrides import override
from training.closed_form import solver as passes
from training.closed_form.solver import inverse_root
from training.config import TrainConfig
from training.data.documents import DocumentSet
from training.data.loading import TrainingData, load_training_data
from training.data.ragged import unit_rows
from training.loop import trainer
from training.loop.context import Context
from training.loop.trainer import train
from training.model import LinkModel
from training.objectives.closed_form import ClosedForm
from training.recipes import recipe
from training.towers.whitening import Column, sums_of, whitening_from

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
    expected = cosines_by_hand(documents, epochs, CONFIG.objective[0], CONFIG.dimensions)
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
    weights = LinkModel.load(lakes.learn(config, lake, tmp_path / "run")).image.state_dict()["affine.weight"]
    assert weights[:, :16].any() and not weights[:, 16:].any()


def test_each_path_begins_anew_and_its_last_pass_is_repeated() -> None:
    term = ClosedForm(passes=3, regularisation=(8.0, 2.0), fall=4.0, sharpness=4.0, rise=9.0)
    steps = [term.pass_of(epoch) for epoch in range(1, 8)]
    assert [step.regularisation for step in steps] == pytest.approx([8, 4, 2, 2, 1, 0.5, 0.5])
    assert [step.sharpness for step in steps] == pytest.approx([None, 4, 12, None, 4, 12, 12])
    assert ClosedForm(passes=1).pass_of(1).sharpness is None


def test_a_second_path_forgets_the_first(data: TrainingData, tmp_path: Path) -> None:
    both = trained(data, tmp_path / "both")
    alone = trained(data, tmp_path / "alone", "objective.regularisation=2", "training.epochs=3")
    assert lakes.weights_of(both) == lakes.weights_of(alone)


def test_links_are_found_and_the_kept_pass_has_the_lowest_rank(data: TrainingData, tmp_path: Path) -> None:
    config = override(CONFIG, ["training.select=retrieval", "dimensions=16"])
    result = train(config, data, Context(), run_directory=tmp_path)
    ranks = [epoch["validation_rank"] for epoch in result.history]
    assert result.best_epoch == 1 + int(np.argmin(ranks))
    assert result.history[result.best_epoch - 1]["validation_auc"] > 85
    assert all(np.isfinite(list(epoch.values())).all() for epoch in result.history)
    assert {"regularisation", "sharpness", "documents_per_second"} <= result.history[1].keys()


def test_more_dimensions_than_directions_are_empty(data: TrainingData, tmp_path: Path) -> None:
    weights = trained(data, tmp_path, "dimensions=500").text.state_dict()["affine.weight"]
    assert weights.shape[0] == 500 and not weights[300:].any()


@pytest.mark.parametrize("order", ["off", "on"])
def test_a_resumed_run_has_the_same_bits(data: TrainingData, tmp_path: Path, order: str) -> None:
    """The order that one pass learns is read by later ones, after the run went on."""
    config = override(CONFIG, [f"link.order={order}", "objective.passes=5"])
    whole = trained(data, tmp_path / "whole", f"link.order={order}", "objective.passes=5")
    train(override(config, ["training.epochs=4"]), data, Context(), run_directory=tmp_path / "cut")
    context = Context(find_checkpoint=lambda: tmp_path / "cut" / "checkpoint")
    again = LinkModel.load(train(config, data, context, run_directory=tmp_path / "cut").model)
    assert lakes.weights_of(again) == lakes.weights_of(whole)


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
    assert "training.epochs = 6 cuts the 9 passes of objective.regularisation" in caplog.text


def test_links_are_never_read(tmp_path: Path) -> None:
    made = lakes.make_documents(Split.TRAIN, 12, lakes.World())
    models = []
    for number, documents in enumerate((made, lakes.without_links(made), lakes.with_other_links(made))):
        lake: Lake = lakes.write_lake(tmp_path / f"lake-{number}", {Split.TRAIN: documents})
        config: TrainConfig = replace(CONFIG, training=replace(CONFIG.training, epochs=3))
        models.append(trained(load_training_data(lake, "synthetic", config.reading), tmp_path / str(number)))
    assert lakes.weights_of(models[0]) == lakes.weights_of(models[1]) == lakes.weights_of(models[2])


def joint_embeddings(folder: Path, sizes: tuple[int, int], *settings: str) -> tuple[LinkModel, DocumentSet]:
    """Return a model of two columns of these sizes, compared as they are, and its validation documents."""
    world = lakes.World(text_dimensions=sizes[0], image_dimensions=sizes[1])
    lake = lakes.write_lake(folder / "lake", lakes.splits(world, train=12, val=12), world=world)
    config = override(recipe("joint-embeddings"), settings)
    documents = lakes.whole(load_training_data(lake, "synthetic", config.reading).validation)
    return LinkModel.load(lakes.learn(config, lake, folder / "run")), documents


def test_joint_embeddings_are_compared_by_the_cosines_of_their_vectors(tmp_path: Path) -> None:
    model, documents = joint_embeddings(tmp_path, (8, 8), "link.steps=", "dimensions=10")
    texts, images = (unit_rows(each, np.float64) for each in (documents.sentence_vectors, documents.image_bank))
    for found, rows, places in zip(model.similarities(documents), documents.sentences, documents.images, strict=True):
        np.testing.assert_allclose(found, texts[rows] @ images[documents.image_rows[places]].T, atol=1e-5)


@pytest.mark.parametrize(
    ("sizes", "error", "found"),
    [((8, 6), UsageError, "8 numbers, image vectors 6"), ((12, 12), ConfigError, "set dimensions=12")],
)
def test_joint_embeddings_of_columns_that_do_not_fit_are_refused(
    tmp_path: Path, sizes: tuple[int, int], error: type[MultilinkError], found: str
) -> None:
    with pytest.raises(error, match=found):
        joint_embeddings(tmp_path, sizes, "dimensions=10")


def rows(count: int = 200, size: int = 9, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(count, size)) @ rng.normal(size=(size, size)) + 3).astype(np.float32)


def test_inputs_are_centred_components_over_the_root_of_their_deviation() -> None:
    given = rows()
    found = whitening_from(sums_of(torch.from_numpy(given)), [Column(size=9, components=4)], what="sentences")
    centred = given.astype(np.float64) - given.mean(axis=0, dtype=np.float64)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    components = (u * s)[:, :4]
    halved = components / np.sqrt(components.std(axis=0))
    halved /= np.sqrt((halved**2).sum(axis=1).mean())
    ours = found.of(torch.from_numpy(given)).numpy()
    assert np.abs(ours) == pytest.approx(np.abs(halved), abs=1e-5)
    assert (ours**2).sum(axis=1).mean() == pytest.approx(1, abs=1e-5)
    assert found.covariance.numpy() == pytest.approx(np.cov(ours.T, bias=True), abs=1e-5)


def test_columns_are_whitened_each_by_itself_and_weighted() -> None:
    first, second = rows(seed=1), rows(size=5, seed=2)
    both = np.hstack([first, second])
    columns = [Column(size=9, components=3), Column(size=5, components=9, weight=0.5)]
    found = whitening_from(sums_of(torch.from_numpy(both)), columns, what="images").of(torch.from_numpy(both)).numpy()
    alone = whitening_from(sums_of(torch.from_numpy(first)), columns[:1], what="images").of(torch.from_numpy(first))
    assert found.shape == (200, 3 + 5)
    assert np.abs(found[:, :3]) == pytest.approx(np.abs(alone.numpy()), abs=1e-5)
    assert (found[:, 3:] ** 2).sum(axis=1).mean() == pytest.approx(0.25, abs=1e-5)


def test_components_that_are_rounding_are_left_out() -> None:
    given = np.repeat(rows(size=3), 2, axis=1)
    assert whitening_from(
        sums_of(torch.from_numpy(given)), [Column(size=6, components=6)], what="images"
    ).components.shape == (6, 3)


def test_a_column_of_equal_vectors_is_left_out_and_one_that_hardly_varies_is_not() -> None:
    level = np.full((1000, 2), 300.7, np.float32)
    little = level + np.random.default_rng(0).normal(size=(1000, 2)).astype(np.float32) / 100
    for second, kept in ((level, 3), (little, 5)):
        both = torch.from_numpy(np.hstack([rows(count=1000, size=3), second]))
        columns = [Column(size=3, components=3), Column(size=2, components=2)]
        assert whitening_from(sums_of(both), columns, what="images").components.shape == (5, kept)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.full((4, 2), np.nan, np.float32), "training images: expected finite numbers"),
        (np.ones((4, 2), np.float32), "training images: expected different ones, found all equal"),
        (np.full((999, 2), 0.3, np.float32), "training images: expected different ones, found all equal"),
        (np.tile(rows(count=1, size=2), (1000, 1)), "training images: expected different ones, found all equal"),
    ],
)
def test_vectors_that_say_nothing_are_one_line(given: np.ndarray, message: str) -> None:
    with pytest.raises(BuildError, match=message):
        whitening_from(sums_of(torch.from_numpy(given)), [Column(size=2, components=2)], what="images")


def test_the_inverse_root_in_the_uncorrelated_basis_is_scipy_s_power() -> None:
    both = torch.from_numpy(np.hstack([rows(seed=1), rows(size=5, seed=2)]))
    columns = [Column(size=9, components=3), Column(size=5, components=5)]
    found = whitening_from(sums_of(both), columns, what="images")
    inputs = found.uncorrelated(Context())
    wanted = found.covariance + 2.0 * found.covariance.diagonal().mean() * torch.eye(8)
    power = torch.from_numpy(fractional_matrix_power(wanted.numpy(), -0.5))
    ours = inputs.components * inverse_root(inputs.covariance.diagonal(), 2.0) @ inputs.components.T
    assert ours.numpy() == pytest.approx((found.components @ power @ found.components.T).numpy(), rel=1e-8, abs=1e-10)
    covariance = np.cov(inputs.of(both).numpy().T, bias=True)
    assert covariance == pytest.approx(inputs.covariance.numpy(), abs=1e-5)
