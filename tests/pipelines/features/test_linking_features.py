"""What `multilink link` extracts: vectors, and regions for a model that reads them; a bad picture leaves."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from newsroom.search.reader import DocumentReader, Extraction, read_vectors
from pipelines.config import recipe
from pipelines.features.extraction import plan_features
from pipelines.sources.datasets.documents import DocumentsSource
from schemas.failures import Failure
from schemas.lake import Folder, Lake
from schemas.messages import UsageError
from schemas.overrides import override
from training.config import TrainConfig
from training.data.documents import GivenDocument
from training.data.loading import DatasetIdentity
from training.model import ModelCard

COLOURS = ("red", "green", "white", "blue")


@pytest.fixture
def own_documents(tmp_path: Path) -> Path:
    """Write a document of four pictures, one of them white, and one of a white picture alone."""
    for colour in COLOURS:
        Image.new("RGB", (90, 70), colour).save(tmp_path / f"{colour}.png")
    every = {"id": "every", "sentences": ["One.", "Two."], "images": [{"path": f"{colour}.png"} for colour in COLOURS]}
    white = {"id": "white", "sentences": ["Three."], "images": [{"path": "white.png"}]}
    path = tmp_path / "own.jsonl"
    path.write_text(f"{json.dumps(every)}\n{json.dumps(white)}\n", encoding="utf-8")
    return path


def extraction_of(scratch: Folder, images: str, sentences: str, **names: str) -> Extraction:
    config = override(recipe("documents"), [f"features.images={images}", f"features.sentences={sentences}"])
    plan = plan_features(config.features, config.images, config.http, given=None, lake=Lake(scratch), workers=1)
    return Extraction(plan=plan, **names)


def vectors_of(path: Path, scratch: Folder, extraction: Extraction) -> Iterator[GivenDocument | Failure]:
    found = DocumentsSource(documents=str(path)).read()
    return read_vectors(found, recipe("documents"), files=str(path.parent), scratch=scratch, extraction=extraction)


def test_vectors_and_regions_of_raw_documents(own_documents: Path, tmp_path: Path, counts: Counter[str]) -> None:
    scratch = Folder(str(tmp_path / "scratch"))
    extraction = extraction_of(scratch, "colours,cells", "lengths", vectors="colours", regions="cells")
    found = list(vectors_of(own_documents, scratch, extraction))
    assert counts == {"colours": 4, "cells": 4, "lengths": 2, "sentences": 3}  # the two documents share a picture
    told = [(item.where, str(item.reason), item.message) for item in found if isinstance(item, Failure)]
    assert told == [
        ("image 2 of every", "feature-missing", "colours: all white"),
        ("image 0 of white", "feature-missing", "colours: all white"),
        ("white", "too-few-images", "expected at least 1 images, found 0"),
    ]
    (given,) = [item for item in found if isinstance(item, GivenDocument)]
    expected = np.array([[1, 0, 0] * 4, [0, 128 / 255, 0] * 4, [0, 0, 1] * 4])
    np.testing.assert_allclose(given.image_vectors, expected, atol=0.02)
    assert given.image_vectors.dtype == np.float16
    assert given.sources == ["red.png", "green.png", "blue.png"]
    assert given.regions.images.offsets.tolist() == [0, 4, 8, 12]
    assert given.regions.labels == ("red",) * 4 + ("green",) * 4 + ("blue",) * 4
    assert given.regions.vectors.dtype == np.float16
    np.testing.assert_allclose(given.regions.vectors[8:], np.tile([0, 0, 1], (4, 1)), atol=0.02)


def test_a_model_of_regions_alone_needs_no_vectors(own_documents: Path, tmp_path: Path, counts: Counter[str]) -> None:
    scratch = Folder(str(tmp_path / "scratch"))
    found = list(vectors_of(own_documents, scratch, extraction_of(scratch, "cells", "", regions="cells")))
    assert counts == {"cells": 4}
    assert [(item.image_vectors.shape, item.sentence_vectors) for item in found] == [((4, 0), None), ((1, 0), None)]


def card(images: str, regions: str | None) -> ModelCard:
    data = DatasetIdentity(
        dataset="x",
        version="1",
        manifest_digest="",
        image_features=images,
        image_dimensions=12,
        sentence_features=None,
        sentence_dimensions=None,
        region_features=regions,
    )
    return ModelCard(config=TrainConfig(), data=data)


@pytest.mark.parametrize("with_pictures", [False, True])
def test_the_extractors_are_those_the_model_was_trained_on(
    own_documents: Path, tmp_path: Path, counts: Counter[str], with_pictures: bool
) -> None:
    reader = DocumentReader(
        card("colours", "cells"),
        override(recipe("documents"), ["features.threads=1"]),
        Folder(str(tmp_path / "scratch")),
        with_pictures=with_pictures,
    )
    found = list(reader.read(DocumentsSource(documents=str(own_documents)).read(), files=str(own_documents.parent)))
    failures = [(item.record_id, item.image) for item in found if isinstance(item, Failure)]
    assert failures == [("every", 2), ("white", 0), ("white", None)]
    (given,) = [item for item in found if isinstance(item, GivenDocument)]
    assert counts == {"colours": 4, "cells": 4}
    assert given.image_vectors.shape == (3, 12) and given.sentence_vectors is None and given.regions is not None
    assert (given.jpegs is not None) == with_pictures
    words = "the model reads features that cannot be made from raw documents here: features.images = 'released'"
    with pytest.raises(UsageError, match=words):
        DocumentReader(card("released", None), recipe("documents"), Folder(str(tmp_path / "other")))


def test_several_columns_stand_one_after_the_other(own_documents: Path, tmp_path: Path, counts: Counter[str]) -> None:
    """`colour-shape` looks at every picture, `colours` refuses the white one, which both then lack."""
    read: dict[str, GivenDocument] = {}
    for name in ("colours", "colour-shape", "colour-shape+colours"):
        config, scratch = override(recipe("documents"), ["features.threads=1"]), Folder(str(tmp_path / name))
        documents = DocumentsSource(documents=str(own_documents)).read()
        found = DocumentReader(card(name, None), config, scratch).read(documents, files=str(tmp_path))
        read[name] = next(item for item in found if isinstance(item, GivenDocument))
    shape, colours = read["colour-shape"].image_vectors[[0, 1, 3]], read["colours"].image_vectors
    assert read["colour-shape+colours"].image_vectors.tolist() == np.hstack([shape, colours]).tolist()
    assert counts["colours"] == 8
