"""The model `class-names` and the baseline: cosines of sentence vectors and of vectors of class names, as they are."""

import dataclasses
from pathlib import Path

import lakes
import numpy as np
import pytest

from schemas.documents import Split
from schemas.errors import ConfigError, NotFoundError, UsageError
from schemas.lake import Lake
from schemas.manifest import read_manifest
from training.data.documents import GivenDocument
from training.data.lake import Columns
from training.evaluation.baselines import Baseline, evaluate_baseline
from training.evaluation.evaluate import STANDARD_CONFIG
from training.evaluation.models import CLASS_NAMES, class_names_model, named_columns
from training.linking.links import LinkedDocument, Linker
from training.mlflow.loading import open_model


def test_its_similarities_are_plain_cosines() -> None:
    rng = np.random.default_rng(0)
    texts, images = rng.normal(size=(4, 512)).astype(np.float32), rng.normal(size=(3, 512)).astype(np.float32)
    model = class_names_model()
    given = GivenDocument(id="a", texts=["x"] * 4, image_vectors=images, sentence_vectors=texts)
    found = next(Linker(model=model, uri=CLASS_NAMES).link_given([given]))
    assert isinstance(found, LinkedDocument)
    unit_texts, unit_images = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (texts, images))
    assert found.similarities == pytest.approx(unit_texts @ unit_images.T, abs=1e-6)
    assert (model.card.data.image_features, model.card.data.sentence_features) == (
        "efficientnet-lite0-names",
        "use-multilingual",
    )


def test_it_is_opened_by_its_name_without_a_store(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'none.db'}"
    loaded = open_model(CLASS_NAMES, store)
    assert (loaded.uri, loaded.calibration) == (CLASS_NAMES, None)
    assert not (tmp_path / "none.db").exists()
    with pytest.raises(NotFoundError):
        open_model("class-name", store)


def test_a_data_set_without_the_columns_says_how_to_build_it(tmp_path: Path) -> None:
    made = lakes.make_documents(Split.TEST, 4, lakes.World())
    lake: Lake = lakes.write_lake(tmp_path, {Split.TEST: made})
    with pytest.raises(UsageError, match=r"no vectors of class names; build it with .*efficientnet-lite0-names"):
        evaluate_baseline(Baseline.CLASS_NAMES, lake, "synthetic", Split.TEST, config=STANDARD_CONFIG)


def test_auto_is_the_only_column_but_for_those_of_class_names(tmp_path: Path) -> None:
    lake: Lake = lakes.write_lake(tmp_path, lakes.splits(test=4))
    manifest, _ = read_manifest(lake, "synthetic")
    own = next(each for each in manifest.columns("images") if each.name in manifest.extractors("images"))
    assert Columns(images="auto").resolved(manifest).images == own.name
    names = dataclasses.replace(own, name="net-names")

    class Named:
        """A manifest with a column of class names beside the other."""

        extractors = staticmethod(lambda *_: {own.name: 1, names.name: 1})

    assert Columns(images="auto").resolved(Named()).images == own.name  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        Columns(images="other").resolved(Named())  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        named_columns(manifest)
