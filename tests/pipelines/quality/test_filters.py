"""Each filter measures what it says and leaves out what is beyond its threshold."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builds import PLAIN, build, documents_of, rows
from picture_files import file_of
from PIL import Image, ImageFilter
from scipy import ndimage

from pipelines.documents.rules import document_problem, image_problem, sharpness
from pipelines.settings import QualityConfig
from schemas.documents import Sentence
from schemas.failures import Failure
from schemas.messages import ConfigError


def test_sharpness_is_the_variance_of_the_laplacian(photographs: dict[str, bytes]) -> None:
    with Image.open(io.BytesIO(photographs["coffee"])) as picture:
        grey = np.asarray(picture.convert("L"), float)
        blurred = file_of(picture.filter(ImageFilter.GaussianBlur(4)), "JPEG", quality=95)
    assert sharpness(photographs["coffee"]) == pytest.approx(ndimage.laplace(grey)[1:-1, 1:-1].var(), abs=1e-5)
    assert sharpness(blurred) < 0.1 * sharpness(photographs["coffee"])


@pytest.mark.parametrize(("size", "expected"), [((2, 9), 0.0), ((9, 2), 0.0), ((4, 3), 406406.25)])
def test_a_picture_that_is_all_margin_is_not_sharp(size: tuple[int, int], expected: float) -> None:
    buffer = io.BytesIO()
    picture = Image.new("L", size)
    picture.putpixel((1, 1), 255)
    picture.save(buffer, "PNG")
    assert sharpness(buffer.getvalue()) == expected


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, None),
        ({"min_side_px": 300}, None),
        ({"min_side_px": 301}, "too-small"),
        ({"max_aspect": 2.0}, None),
        ({"max_aspect": 1.9}, "odd-aspect"),
        ({"min_sharpness": 1.0}, None),
        ({"min_sharpness": 1e6}, "blurred"),
    ],
)
def test_an_image_is_judged_by_its_original_and_its_copy(
    photographs: dict[str, bytes], settings: dict[str, Any], reason: str | None
) -> None:
    problem = image_problem(600, 300, photographs["cat"], QualityConfig(**settings))
    assert (problem and problem[0]) == reason
    assert image_problem(None, None, None, QualityConfig(**settings)) is None


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"min_images_per_word": 0.5, "max_images_per_word": 0.5}, None),
        ({"min_images_per_word": 0.51}, "image-text-ratio"),
        ({"max_images_per_word": 0.49}, "image-text-ratio"),
        ({"languages": ("de", "en")}, None),
        ({"languages": ("fr",)}, "other-language"),
    ],
)
def test_a_document_is_judged_by_images_a_word_and_language(settings: dict[str, Any], reason: str | None) -> None:
    problem = document_problem([Sentence("One two."), Sentence("Three four.")], 2, "en", QualityConfig(**settings))
    assert (problem and problem[0]) == reason


def test_a_document_without_words_has_more_images_a_word_than_any_limit() -> None:
    problem = document_problem([Sentence("")], 2, "en", QualityConfig(max_images_per_word=1e9))
    assert problem and problem[0] == "image-text-ratio"


def test_thresholds_that_cannot_be_are_refused() -> None:
    for name, value in (("max_aspect", 0.5), ("min_sharpness", -1)):
        with pytest.raises(ConfigError, match=rf"quality\.{name}"):
            QualityConfig(**{name: value})


def write_documents(folder: Path, photographs: dict[str, bytes]) -> Path:
    """Write a sound document, one with a blurred picture beside a sound one, one of a banner, one without words."""
    folder.mkdir()
    (folder / "cat.jpg").write_bytes(photographs["cat"])
    with Image.open(io.BytesIO(photographs["coffee"])) as picture:
        picture.save(folder / "coffee.png")
        picture.filter(ImageFilter.GaussianBlur(20)).save(folder / "blur.png")
        picture.crop((0, 0, picture.width, picture.width // 8)).save(folder / "banner.png")
    made = {
        "sound": ("A cat sits there and looks.", ["cat.jpg"]),
        "half": ("Coffee in a cup, and no cup.", ["blur.png", "coffee.png"]),
        "banner": ("A banner over a shop.", ["banner.png"]),
        "terse": ("Cat.", ["cat.jpg"]),
    }
    records = [
        {
            "id": name,
            "sentences": [text],
            "images": [{"path": image} for image in images],
            "links": [[0, len(images) - 1]],
        }
        for name, (text, images) in made.items()
    ]
    path = folder / "documents.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


SETTINGS = (
    "splits.val=0",
    "splits.test=0",
    "quality.min_sharpness=20",
    "quality.max_aspect=4",
    "quality.max_images_per_word=0.5",
)


def test_a_build_drops_what_is_beyond_its_thresholds(tmp_path: Path, photographs: dict[str, bytes]) -> None:
    summary = build(write_documents(tmp_path / "own", photographs), tmp_path / "lake", *PLAIN, *SETTINGS)
    kept = documents_of(summary)
    assert {name: [image["source"] for image in row["images"]] for name, row in kept.items()} == {
        "sound": ["cat.jpg"],
        "half": ["coffee.png"],
    }
    assert [link["image"] for link in kept["half"]["links"]] == [0]
    failures = {(row["stage"], Failure(**row).where, row["reason"]) for row in rows(summary, "failures")}
    assert failures == {
        ("quality", "image 0 of half", "blurred"),
        ("quality", "image 0 of banner", "odd-aspect"),
        ("quality", "banner", "too-few-images"),
        ("quality", "terse", "image-text-ratio"),
    }
