from pathlib import Path

import numpy as np
import pytest

from schemas.errors import IntegrityError, NotFoundError, UsageError
from training.config import EncoderConfig, TextEncoder, TrainConfig
from training.data.loading import DatasetIdentity
from training.model import DocumentInput, LinkModel, ModelCard
from training.text.vocabulary import Vocabulary

VOCABULARY = Vocabulary(("<pad>", "<unk>", "a", "cat", "dog"))


def model_of(text: TextEncoder) -> LinkModel:
    frozen = text is TextEncoder.SENTENCE
    data = DatasetIdentity(
        dataset="d",
        version="v",
        manifest_digest="0" * 64,
        image_features="cnn",
        image_dimensions=6,
        sentence_features="use" if frozen else None,
        sentence_dimensions=5 if frozen else None,
    )
    config = TrainConfig(encoder=EncoderConfig(text=text, dimensions=8, word_dimensions=4))
    return LinkModel(ModelCard(config=config, data=data, epoch=3), None if frozen else VOCABULARY)


def documents() -> list[DocumentInput]:
    rng = np.random.default_rng(0)
    texts = [["a cat", "", "a dog a dog"], [], ["dog"], ["cat"]]
    images = [2, 3, 0, 1]
    return [
        DocumentInput(
            texts=sentences,
            sentence_vectors=rng.normal(size=(len(sentences), 5)),
            image_vectors=rng.normal(size=(count, 6)),
        )
        for sentences, count in zip(texts, images, strict=True)
    ]


@pytest.mark.parametrize("text", list(TextEncoder))
def test_similarities_are_cosines_of_each_document(text: TextEncoder) -> None:
    model = model_of(text)
    found = model.similarities(documents())
    assert [matrix.shape for matrix in found] == [(3, 2), (0, 3), (1, 0), (1, 1)]
    assert all(matrix.dtype == np.float32 for matrix in found)
    for document, matrix in zip(documents(), found, strict=True):
        assert np.allclose(model.similarities([document])[0], matrix, atol=1e-6)
        assert (np.abs(matrix) <= 1 + 1e-6).all()
    assert model.similarities([]) == []


@pytest.mark.parametrize("text", list(TextEncoder))
def test_saving_and_loading_is_the_same_model(text: TextEncoder, tmp_path: Path) -> None:
    model = model_of(text)
    model.save(tmp_path / "model")
    again = LinkModel.load(tmp_path / "model")
    assert again.card == model.card
    assert again.vocabulary == model.vocabulary
    assert not again.training
    for mine, theirs in zip(model.similarities(documents()), again.similarities(documents()), strict=True):
        assert np.array_equal(mine, theirs)
    has_words = (tmp_path / "model" / "vocabulary.txt").exists()
    assert has_words == (text is TextEncoder.GRU)


def test_a_document_that_does_not_fit_is_refused() -> None:
    model = model_of(TextEncoder.SENTENCE)
    with pytest.raises(UsageError, match="have none"):
        model.similarities([DocumentInput(texts=["a"], sentence_vectors=None, image_vectors=np.zeros((1, 6)))])
    with pytest.raises(UsageError, match="vectors of 6 numbers"):
        model.similarities(
            [DocumentInput(texts=["a"], sentence_vectors=np.ones((1, 5)), image_vectors=np.ones((1, 7)))]
        )


def test_documents_whose_vectors_differ_in_size_are_refused() -> None:
    given = [DocumentInput(texts=["a"], sentence_vectors=None, image_vectors=np.ones((1, size))) for size in (6, 7)]
    with pytest.raises(UsageError, match="found 6, 7 numbers"):
        model_of(TextEncoder.GRU).similarities(given)


def test_what_is_no_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"found no model\.json"):
        LinkModel.load(tmp_path)
    model_of(TextEncoder.GRU).save(tmp_path)
    card = tmp_path / "model.json"
    card.write_text(card.read_text().replace('"format": 1', '"format": 99'))
    with pytest.raises(IntegrityError, match="format 1"):
        LinkModel.load(tmp_path)
