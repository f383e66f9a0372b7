"""Steps at link time against loops; every caller of a model has the same numbers; without a step nothing changes."""

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from schemas.configs import override
from schemas.documents import Split
from schemas.lake import Lake
from training.config import TrainConfig
from training.data.loading import load_training_data
from training.evaluation.evaluate import evaluate_model, read_documents
from training.link_steps import LinkSteps, half_sinkhorn
from training.linking.links import LinkedDocument, Linker
from training.loop.context import Context
from training.loop.trainer import train
from training.model import LinkModel
from training.recipes import recipe
from training.settings import LinkSettings, LinkStep

CONFIG = override(
    recipe("closed-form"),
    ["dimensions=8", "training.epochs=2", "training.select=last", "link.bank=30", "link.neighbours=4"],
)


def unit(rng: np.random.Generator, count: int) -> np.ndarray:
    rows = rng.normal(size=(count, 6)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def lake(lakes: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    made = {split: lakes.make_documents(split, 20, lakes.World()) for split in Split}
    written: Lake = lakes.write_lake(str(tmp_path_factory.mktemp("lake")), made)
    return written


def model_of(lake: Lake, config: TrainConfig, folder: Path) -> LinkModel:
    data = load_training_data(lake, "synthetic", config)
    return LinkModel.load(train(config, data, Context(), run_directory=folder).model)


def test_csls_by_hand() -> None:
    rng = np.random.default_rng(0)
    texts, images, text_bank, image_bank = (unit(rng, count) for count in (4, 3, 9, 7))
    steps = LinkSteps(LinkSettings(steps=(LinkStep.CSLS,), bank=20, neighbours=5), 6)
    assert steps.similarities(texts, images) == pytest.approx(texts @ images.T)  # nothing to compare with yet
    steps.fill(torch.from_numpy(text_bank), torch.from_numpy(image_bank))

    def near(row: np.ndarray, bank: np.ndarray) -> float:
        return float(np.mean(sorted((float(row @ other) for other in bank), reverse=True)[:5]))

    level = np.mean([near(row, image_bank) for row in text_bank]) / 2
    level += np.mean([near(row, text_bank) for row in image_bank]) / 2
    found = steps.similarities(texts, images)
    for i, text in enumerate(texts):
        for j, image in enumerate(images):
            expected = text @ image - near(text, image_bank) / 2 - near(image, text_bank) / 2 + level
            assert found[i, j] == pytest.approx(expected, abs=1e-6)


def test_a_bank_is_never_larger_than_its_setting() -> None:
    rng = np.random.default_rng(1)
    steps = LinkSteps(LinkSettings(steps=(LinkStep.CSLS,), bank=4), 6)
    steps.fill(torch.from_numpy(unit(rng, 9)), torch.from_numpy(unit(rng, 2)))
    assert steps.counts.tolist() == [4, 2]


def test_half_sinkhorn_by_hand() -> None:
    scores = np.random.default_rng(2).normal(size=(4, 2)) / 5
    kernel = np.hstack([np.exp(10 * scores), np.ones((4, 1))])
    for _ in range(15):
        kernel /= kernel.sum(axis=1, keepdims=True)
        kernel *= np.array([1, 1, 2]) / kernel.sum(axis=0)
    assert half_sinkhorn(scores) == pytest.approx(scores / 2 + (np.log(kernel[:, :2]) + np.log(4)) / 20)


@pytest.mark.parametrize(("n", "m"), [(3, 3), (5, 2), (1, 4)])
def test_half_sinkhorn_keeps_equal_pairs_as_they_are(n: int, m: int) -> None:
    assert half_sinkhorn(np.zeros((n, m))) == pytest.approx(np.zeros((n, m)), abs=1e-9)


def test_every_caller_has_the_same_numbers_and_search_the_cosines(lake: Lake, tmp_path: Path) -> None:
    model = model_of(lake, CONFIG, tmp_path)
    documents = read_documents(model, lake, "synthetic", Split.TEST)
    evaluated = evaluate_model(model, lake, "synthetic").matrices
    linked = [each for each in Linker(model=model, uri="x").link_set(documents) if isinstance(each, LinkedDocument)]
    for matrix, link, own in zip(evaluated, linked, model.similarities(documents), strict=True):
        assert np.array_equal(matrix, own)
        assert np.array_equal(link.similarities, own)
    texts, images = (rows.numpy() for rows in model.encode(documents))
    assert np.linalg.norm(texts, axis=1) == pytest.approx(np.ones(len(texts)), abs=1e-5)
    plain = texts[documents.sentences.rows(0)] @ images[documents.image_rows[documents.images.rows(0)]].T
    assert not np.allclose(plain, evaluated[0], atol=1e-3)
    assert model.steps is not None
    assert model.steps.counts.tolist() == [30, 30]


def test_a_model_without_steps_has_no_bank(lake: Lake, tmp_path: Path) -> None:
    config = replace(CONFIG, link=LinkSettings())
    model = model_of(lake, config, tmp_path)
    assert not [name for name in model.state_dict() if name.startswith("steps.")]


def test_a_run_starts_from_a_model_with_a_bank(lake: Lake, tmp_path: Path) -> None:
    model_of(lake, CONFIG, tmp_path / "first")
    start = f"training.start_from={tmp_path / 'first' / 'model'}"
    model = model_of(lake, override(CONFIG, ["objective.name=cross-document", start]), tmp_path / "next")
    assert model.steps is not None
    assert model.steps.counts.tolist() == [30, 30]
