"""Towers of several whitened columns: what they whiten by, and that a model keeps it."""

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from schemas.documents import Split
from schemas.errors import ConfigError
from schemas.overrides import override
from training.data.loading import load_training_data
from training.loop.context import Context
from training.loop.trainer import train
from training.model import LinkModel
from training.recipes import recipe

SETTINGS = (
    "dimensions=8",
    "data.image_features=all",
    "data.sentence_features=all",
    "text.components=5",
    "image.components=9",
    "image.column_weights=noisy-*=0.5",
    "training.epochs=1",
    "training.select=last",
)


def whitened(rows: np.ndarray, components: int) -> np.ndarray:
    """Return the principal components of rows over the root of their deviation, of norm 1 on average."""
    centred = rows.astype(np.float64) - rows.mean(axis=0, dtype=np.float64)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    found = (u * s)[:, :components]
    found /= np.sqrt(found.std(axis=0))
    return found / np.sqrt((found**2).sum(axis=1).mean())


def test_columns_of_the_training_split_are_whitened_each_by_itself(lakes: ModuleType, tmp_path: Path) -> None:
    made = {Split.TRAIN: lakes.make_documents(Split.TRAIN, 60, lakes.World())}
    lake = lakes.write_lake(str(tmp_path / "lake"), made, is_named=True, shards=3)
    config = override(recipe("tiny"), SETTINGS)
    data = load_training_data(lake, "synthetic", config)
    stored = train(config, data, Context(), run_directory=tmp_path / "run").model
    model = LinkModel.load(stored)
    documents = data.training.documents(data.training.index.usable)
    assert documents.sentence_vectors is not None
    texts = np.asarray(documents.sentence_vectors, np.float32)
    images = np.asarray(documents.image_bank[documents.image_rows], np.float32)
    cases = (
        (model.text, texts, [(whitened(texts[:, :12], 5), 1.0), (whitened(texts[:, 12:], 5), 1.0)]),
        (model.image, images, [(whitened(images[:, :16], 9), 1.0), (whitened(images[:, 16:], 9), 0.5)]),
    )
    for tower, rows, parts in cases:
        wanted = np.hstack([part * weight for part, weight in parts])
        wanted *= np.sqrt(wanted.shape[1] / (wanted**2).sum(axis=1).mean())
        found = tower.standardise(torch.from_numpy(rows)).numpy()
        assert np.abs(found) == pytest.approx(np.abs(wanted), abs=2e-3)
        assert (found**2).mean() == pytest.approx(1.0, abs=1e-4)
    again = LinkModel.load(stored)
    for first, second in zip(model.similarities(documents), again.similarities(documents), strict=True):
        assert (first == second).all()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("image.column_weights=half", r"image.column_weights = 'half': expected COLUMN=WEIGHT"),
        ("text.column_weights=a=b", r"text.column_weights = 'a=b': expected COLUMN=WEIGHT"),
        ("text.components=-1", r"text.components = -1"),
    ],
)
def test_a_wrong_setting_is_named(setting: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        override(recipe("tiny"), [setting])


def test_whitened_vectors_are_not_standardised_too() -> None:
    with pytest.raises(ConfigError, match=r"image\.standardise = True: image\.components whitens"):
        override(recipe("tiny"), ["image.components=4", "image.standardise=true"])
    with pytest.raises(ConfigError, match="components=0 of both"):
        override(recipe("closed-form"), ["text.components=4"])
