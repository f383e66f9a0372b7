"""What the cache lacks is computed, once; a bad picture is told with its reason and costs the others nothing."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pixels

from pipelines import recipes
from pipelines.features.missing import ImageWork, SentenceWork, fill_images, fill_sentences
from pipelines.features.plan import FeaturePlan, plan_features
from pipelines.features.values import Compute, FeatureKind, Regions, Rejected
from pipelines.images.copies import encode_jpeg
from pipelines.images.packed import copy_packs
from pipelines.images.store import ImageStore
from pipelines.settings import FingerprintName, ImagesConfig
from schemas.configs import override
from schemas.documents import Document, Provenance, Sentence
from schemas.errors import BuildError, ConfigError, IntegrityError
from schemas.features import FeatureColumn, Storage
from schemas.images import KNOWN_COLUMNS, Image
from schemas.lake import Lake


def planned(tmp_path: Path, *settings: str) -> FeaturePlan:
    names = ["features.images=colours,cells", "features.sentences=lengths"]
    config = override(recipes.recipe("documents"), [*names, *settings])
    return plan_features(config, lake=Lake.at(str(tmp_path / "lake")), workers=1)


def work_of(plan: FeaturePlan, name: str) -> ImageWork:
    column = next(column for column in plan.images if column.name == name)
    return ImageWork(column, plan.image_extractor(column), plan.image_cache(column))


def stored(store: ImageStore, *colours: str) -> list[Image]:
    """Keep a picture of each colour, and return the images."""
    images = [Image(hashlib.sha256(colour.encode()).hexdigest(), source=f"{colour}.png") for colour in colours]
    writer = store.packs.writer()
    for image, colour in zip(images, colours, strict=True):
        row = {name: [getattr(image, name)] for name in KNOWN_COLUMNS}
        writer.add(row | {"jpeg": [encode_jpeg(Pixels.new("RGB", (40, 30), colour))]})
    writer.close()
    return images


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(copy_packs(Lake.at(str(tmp_path / "lake")), ImagesConfig(), FingerprintName.PHASH))


def test_only_what_is_missing_is_computed(tmp_path: Path, counts: Counter[str], store: ImageStore) -> None:
    images = stored(store, "red", "green", "blue")
    work = work_of(planned(tmp_path), "colours")
    assert fill_images(images[:2], work, store) == [None, None]
    assert counts == {"colours": 2}
    assert fill_images(images, work, store) == [None] * 3
    assert counts == {"colours": 3}
    assert fill_images(images, work_of(planned(tmp_path), "colours"), store) == [None] * 3
    assert counts == {"colours": 3}
    np.testing.assert_allclose(work.cache.read(images[0].hash), [1, 0, 0] * 4, atol=0.01)
    damaged = work.cache.folder.child(images[1].hash[:2]).local
    assert damaged is not None
    (damaged / images[1].hash).write_bytes(b"half an ent")
    assert fill_images(images, work, store) == [None] * 3
    assert counts == {"colours": 4}


def test_other_settings_have_entries_of_their_own(tmp_path: Path, counts: Counter[str], store: ImageStore) -> None:
    images = stored(store, "red")
    for settings in ((), ("images.jpeg_quality=80",), ("features.max_regions=3", "features.min_regions=3"), ()):
        for name in ("colours", "cells"):
            fill_images(images, work_of(planned(tmp_path, *settings), name), store)
    assert counts == {"colours": 2, "cells": 3}


def test_speed_and_storage_change_no_entry(tmp_path: Path, counts: Counter[str], store: ImageStore) -> None:
    images = stored(store, "red")
    for setting in ("features.threads=3", "features.batch_images=64", "features.device=cpu", "features.storage=int8"):
        fill_images(images, work_of(planned(tmp_path, setting), "colours"), store)
    assert counts == {"colours": 1}


def test_a_bad_picture_is_told_and_the_others_are_kept(tmp_path: Path, counts: Counter[str], store: ImageStore) -> None:
    images = stored(store, "red", "white", "blue")
    work = work_of(planned(tmp_path), "colours")
    for _ in range(2):  # the second time it is known, and not looked at again
        assert fill_images(images, work, store) == [None, Rejected("all white"), None]
    assert counts == {"colours": 3}


class Given:
    """An extractor that gives what it is told to."""

    kind = FeatureKind.VECTOR

    def __init__(self, value: Any) -> None:
        self.value = value

    def extract(self, images: list[bytes]) -> list[Any]:
        return [self.value for _ in images]


@pytest.mark.parametrize(
    ("value", "storage", "is_sound"),
    [
        ([1.0, 2.0], Storage.FLOAT16, True),
        ([1.0, 7e4], Storage.FLOAT16, False),
        ([1.0, 7e4], Storage.FLOAT32, True),
        ([1.0, 7e4], Storage.INT8, True),
        ([1.0, np.inf], Storage.INT8, False),
        ([np.nan, 0.0], Storage.FLOAT32, False),
    ],
)
def test_what_cannot_be_stored_is_rejected(
    tmp_path: Path, store: ImageStore, counts: Counter[str], value: list[float], storage: Storage, is_sound: bool
) -> None:
    column = FeatureColumn(name="given", dimensions=2, storage=storage)
    plan = planned(tmp_path)
    work = ImageWork(column, Given(np.array(value, np.float32)), plan.image_cache(column))  # type: ignore[arg-type]
    for _ in range(2):
        (problem,) = fill_images(stored(store, "red"), work, store)
        assert (problem is None) is is_sound


def test_regions_beyond_float16_are_rejected(tmp_path: Path, store: ImageStore, counts: Counter[str]) -> None:
    column = FeatureColumn(name="given", kind=FeatureKind.REGIONS, dimensions=2)
    boxes, scores = np.zeros((1, 4), np.float32), np.ones(1, np.float32)
    plan = planned(tmp_path)
    for large, is_sound in ((1e3, True), (1e5, False)):
        value = Regions(boxes, ("dog",), scores, np.full((1, 2), large, np.float32))
        cache = plan.image_cache(FeatureColumn(name=f"given-{large:.0f}", dimensions=2))
        work = ImageWork(column, Given(value), cache)  # type: ignore[arg-type]
        for _ in range(2):
            (problem,) = fill_images(stored(store, "red"), work, store)
            assert (problem is None) is is_sound


NO_REGIONS = Regions(np.zeros((0, 4), np.float32), (), np.zeros(0, np.float32), np.zeros((0, 2), np.float32))


@pytest.mark.parametrize("value", [np.zeros(3, np.float32), np.zeros((1, 2), np.float32), NO_REGIONS])
def test_a_value_of_another_shape_is_the_extractors_fault(
    tmp_path: Path, store: ImageStore, counts: Counter[str], value: Any
) -> None:
    column = FeatureColumn(name="given", dimensions=2)
    work = ImageWork(column, Given(value), planned(tmp_path).image_cache(column))  # type: ignore[arg-type]
    with pytest.raises(IntegrityError, match="extractor given: expected 2 float16 values"):
        fill_images(stored(store, "red"), work, store)


def document(*texts: str) -> Document:
    provenance = Provenance("test", "1")
    return Document("1", "test", tuple(Sentence(text) for text in texts), (), None, provenance)


def test_a_documents_sentences_are_read_once(tmp_path: Path, counts: Counter[str]) -> None:
    plan = planned(tmp_path)
    (column,) = plan.sentences
    work = SentenceWork(column, plan.sentence_extractor(column), plan.sentence_cache(column))
    for texts in (("one two", "three"), ("one two", "three"), ("one two",), ()):
        fill_sentences(document(*texts), work)
    assert counts == {"lengths": 3}


def test_a_worker_that_differs_from_the_plan_says_so(tmp_path: Path, counts: Counter[str]) -> None:
    plan = planned(tmp_path)
    other = FeatureColumn(name="colours", dimensions=12, fingerprint="0" * 64)
    with pytest.raises(BuildError, match="extractor colours: this worker's weights, libraries, device or precision"):
        plan.image_extractor(other)


def test_settings_are_checked(tmp_path: Path, counts: Counter[str]) -> None:
    for setting, words in (
        ("features.images=colours,colours", "a name may be given once"),
        ("features.images=../up", "expected names of letters"),
        ("features.max_regions=101", "must be in 1..100"),
        ("features.min_regions=37", r"must be in 0..features.max_regions"),
        ("features.batch_images=0", "must be at least 1"),
        ("features.storage=float8", "expected one of float16, float32, int8"),
        ("features.weights=densenet169", "expected NAME=URI"),
        ("features.images=unknown", "expected one of .*cells, colours"),
    ):
        with pytest.raises(ConfigError, match=words):
            planned(tmp_path, setting)
    assert planned(tmp_path, "features.threads=3", "features.batch_images=8").compute == Compute(threads=3, batch=8)
