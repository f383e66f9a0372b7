from dataclasses import replace
from pathlib import Path

import lakes
import numpy as np
import pytest
import torch
from configurations import dotted_keys

from schemas.errors import IntegrityError, NotFoundError, UsageError
from schemas.overrides import override
from training.config import TrainConfig
from training.data.documents import GivenDocument, RegionBank
from training.data.loading import DatasetIdentity
from training.data.ragged import Ragged
from training.model import LinkModel, ModelCard, seal
from training.text.vocabulary import Vocabulary
from training.towers.inputs import TextInput
from training.towers.region_concept import RegionConceptSettings
from training.towers.transformer import TransformerTower
from training.towers.vectors import LinearBnSettings, LinearSettings, SentenceSettings
from training.towers.words import WordsSettings

WORDS = ("<pad>", "<unk>", "a", "cat", "dog")
SIZES = {"word_dimensions": 4, "layers": 1, "heads": 2, "head_dimensions": 3, "hidden_dimensions": 10, "buckets": 20}
TEXTS = (["a cat", "", "a dog a dog"], [], ["dog"], ["cat"])
IMAGES = (2, 3, 0, 1)
ROLES = (["headline", "caption", "body"], [], ["lead"], ["caption"])
TOWERS = {
    "gru": (),
    "transformer + region-concept": ("text.name=transformer", "image.name=region-concept"),
    "gru + region-concept": ("image.name=region-concept", "image.transformer=false"),
    "no concepts": ("text.name=sentence", "image.name=region-concept", "image.concepts=false"),
    "bilstm-attention + linear-bn": ("text.name=bilstm-attention", "image.name=linear-bn"),
    "subword-attention": ("text.name=subword-attention",),
    "multi-source": ("text.name=multi-source",),
    "one for all": ("text.aligned_vectors=de=wiki.de.vec,fr=wiki.fr.vec", "text.train_words=false"),
    "sentence": ("text.name=sentence", "image.standardise=true"),
    "fine-tuned": ("image.name=fine-tuned",),
}


def model_of(towers: str = "gru") -> LinkModel:
    config = override(TrainConfig(), TOWERS[towers])
    keys = dotted_keys(config)
    sizes = [f"{part}.{name}={size}" for part in ("text", "image") for name, size in SIZES.items()]
    config = override(config, ["dimensions=8", *(each for each in sizes if each.partition("=")[0] in keys)])
    frozen = isinstance(config.text, SentenceSettings)
    vectors = isinstance(config.image, LinearSettings | LinearBnSettings)
    regions = isinstance(config.image, RegionConceptSettings)
    data = DatasetIdentity(
        dataset="d",
        version="v",
        manifest_digest="0" * 64,
        image_features="cnn" if vectors else None,
        image_dimensions=6 if vectors else None,
        sentence_features="use" if frozen else None,
        sentence_dimensions=5 if frozen else None,
        region_features="rcnn" if regions else None,
        region_dimensions=7 if regions else None,
    )
    words = (*WORDS, "de:a", "de:cat") if towers == "one for all" else WORDS
    card = ModelCard(config=config, data=data, epoch=3)
    torch.manual_seed(0)
    return LinkModel(card, None if frozen else Vocabulary(words))


def regions_of(images: int, seed: int) -> RegionBank:
    counts = [(place + seed) % 3 for place in range(images)]
    rng = np.random.default_rng(seed)
    return RegionBank(
        images=Ragged.of(counts),
        labels=("cat",) * sum(counts),
        vectors=rng.normal(size=(sum(counts), 7)).astype(np.float16),
        boxes=np.zeros((sum(counts), 4), np.float32),
        scores=rng.random(sum(counts)).astype(np.float32),
    )


def similarities(model: LinkModel, given: list[GivenDocument]) -> list[np.ndarray]:
    return model.similarities(model.read(given))


def documents() -> list[GivenDocument]:
    """Four documents with all that any tower reads."""
    rng = np.random.default_rng(0)
    return [
        GivenDocument(
            texts=texts,
            sentence_vectors=rng.normal(size=(len(texts), 5)),
            image_vectors=rng.normal(size=(images, 6)),
            roles=roles,
            language="de",
            regions=regions_of(images, number),
            jpegs=[lakes.jpeg(10 * number + place) for place in range(images)],
        )
        for number, (texts, images, roles) in enumerate(zip(TEXTS, IMAGES, ROLES, strict=True))
    ]


@pytest.mark.parametrize("towers", TOWERS)
def test_similarities_are_cosines_of_each_document(towers: str) -> None:
    model = model_of(towers)
    found = similarities(model, documents())
    rows = [1, 0, 1, 1] if towers == "multi-source" else [3, 0, 1, 1]
    assert [matrix.shape for matrix in found] == list(zip(rows, IMAGES, strict=True))
    assert all(matrix.dtype == np.float32 for matrix in found)
    for document, matrix in zip(documents(), found, strict=True):
        assert np.allclose(similarities(model, [document])[0], matrix, atol=1e-5)
        assert (np.abs(matrix) <= 1 + 1e-6).all()
    assert len({float(value) for matrix in found for value in matrix.flatten()}) > 2
    assert similarities(model, []) == []


@pytest.mark.parametrize("towers", TOWERS)
def test_saving_and_loading_is_the_same_model(towers: str, tmp_path: Path) -> None:
    model = model_of(towers)
    model.save(tmp_path / "model")
    again = LinkModel.load(tmp_path / "model")
    assert again.card == model.card
    assert again.vocabulary == model.vocabulary
    assert not again.training
    for mine, theirs in zip(similarities(model, documents()), similarities(again, documents()), strict=True):
        assert np.array_equal(mine, theirs)
    has_words = (tmp_path / "model" / "vocabulary.txt").exists()
    assert has_words == isinstance(model.card.config.text, WordsSettings)


@pytest.mark.parametrize(
    ("towers", "change", "words"),
    [
        ("sentence", {"sentence_vectors": None}, "have none"),
        ("sentence", {"image_vectors": np.ones((2, 7))}, "vectors of 6 numbers"),
        ("gru + region-concept", {"regions": None}, "regions of a detector"),
        ("gru + region-concept", {"regions": regions_of(3, 0)}, "expected regions of 2 images, found 3"),
        ("fine-tuned", {"jpegs": None}, "the images have none"),
        ("multi-source", {"roles": None}, "texts have no roles"),
        ("one for all", {"language": None}, "language of each document"),
    ],
)
def test_a_document_that_does_not_fit_is_refused(towers: str, change: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        similarities(model_of(towers), [replace(documents()[0], **change)])


def test_a_models_words_are_those_of_the_documents_language() -> None:
    model = model_of("one for all")
    one = replace(documents()[0], texts=["cat", "dog"], roles=None, sentence_vectors=None)
    german, french = similarities(model, [one, replace(one, language="fr")])
    assert not np.allclose(german[0], german[1], atol=1e-4)
    assert np.allclose(french, german[1], atol=1e-6)  # neither French word is known, nor the German dog


def test_documents_whose_vectors_differ_in_size_are_refused() -> None:
    given = [GivenDocument(texts=["a"], sentence_vectors=None, image_vectors=np.ones((1, size))) for size in (6, 7)]
    with pytest.raises(UsageError, match="found 6, 7 numbers"):
        similarities(model_of(), given)


def test_what_is_no_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"found no model\.json"):
        LinkModel.load(tmp_path)
    model_of().save(tmp_path)
    card = tmp_path / "model.json"
    card.write_text(card.read_text().replace('"format": 3', '"format": 99'))
    seal(tmp_path)
    with pytest.raises(IntegrityError, match="model format 3, found 99"):
        LinkModel.load(tmp_path)


@pytest.mark.parametrize("towers", TOWERS)
def test_every_model_answers_its_own_example_over_http(towers: str) -> None:
    from fastapi.testclient import TestClient

    from training.linking.links import Linker
    from training.mlflow.serving import make_app

    model = model_of(towers).eval()
    with TestClient(make_app(Linker(model=model, uri="models:/m/1"))) as client:
        example = client.get("/example").json()
        (answer,) = client.post("/invocations", json=example).json()["predictions"]
        rows = 1 if towers == "multi-source" else 2
        assert (len(answer["similarities"]), len(answer["similarities"][0])) == (rows, 1)
        assert answer["model"] == "models:/m/1"
        if towers == "fine-tuned":
            for wrong in ("no base64", "bm8gcGljdHVyZQ=="):
                row = example["dataframe_records"][0] | {"pictures": [wrong]}
                refused = client.post("/invocations", json={"dataframe_records": [row]})
                assert refused.status_code == 400 and "expected" in refused.json()["message"]


@pytest.mark.parametrize(("settings", "words"), [((), 50), (("text.max_words=20",), 20)])
def test_how_many_words_are_read_is_a_setting(settings: tuple[str, ...], words: int) -> None:
    """A copy of a data set under another name reads as many words."""
    card = model_of("transformer + region-concept").card
    for dataset in ("mscoco", "mscoco-2017"):
        text = LinkModel(
            replace(card, config=override(card.config, settings), data=replace(card.data, dataset=dataset)),
            Vocabulary(WORDS),
        ).text
        assert isinstance(text, TransformerTower)
        rows = text.prepare(TextInput(texts=["a cat " * 40, "dog"]))
        assert rows.sentences.counts.tolist() == [words, 1] and len(text.position.weight) == words
