"""A model of any towers: what it reads, saves and answers; a folder that was changed is refused in one line."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import lakes
import numpy as np
import pytest
import torch
from configurations import shrunk

from schemas.messages import IntegrityError, NotFoundError, UsageError
from schemas.overrides import override
from training.config import TrainConfig
from training.data.documents import GivenDocument, RegionBank
from training.data.loading import DatasetIdentity
from training.data.ragged import Ragged
from training.linking.links import Linker
from training.linking.rows import answers, documents_of, example
from training.model import SUMS, LinkModel, ModelCard, check_files, folder_digest, seal
from training.text.vocabulary import Vocabulary
from training.towers.inputs import TextInput
from training.towers.region_concept import RegionConceptSettings
from training.towers.vectors import LinearBnSettings, LinearSettings, SentenceSettings
from training.towers.words import WordsSettings

WORDS = ("<pad>", "<unk>", "a", "cat", "dog")
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
    config = shrunk(override(TrainConfig(), TOWERS[towers]))
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
def test_every_model_answers_its_own_example(towers: str) -> None:
    model = model_of(towers).eval()
    [answer] = answers(Linker(model=model, uri="models:/m/1"), documents_of(model, [example(model)]))
    assert np.shape(answer["similarities"]) == (1 if towers == "multi-source" else 2, 1)


@pytest.mark.parametrize("picture", ["no base64", "bm8gcGljdHVyZQ=="])
def test_a_picture_that_is_none_is_refused(picture: str) -> None:
    model = model_of("fine-tuned")
    with pytest.raises(UsageError, match=r"row 0.*: expected"):
        answers(Linker(model=model, uri="m"), documents_of(model, [example(model) | {"pictures": [picture]}]))


@pytest.mark.parametrize(("settings", "words"), [((), 50), (("text.max_words=20",), 20)])
def test_how_many_words_are_read_is_a_setting(settings: tuple[str, ...], words: int) -> None:
    """A copy of a data set under another name reads as many words."""
    card = model_of("transformer + region-concept").card
    for dataset in ("mscoco", "mscoco-2017"):
        text = LinkModel(
            replace(card, config=override(card.config, settings), data=replace(card.data, dataset=dataset)),
            Vocabulary(WORDS),
        ).text
        rows = text.prepare(TextInput(texts=["a cat " * 40, "dog"]))
        assert rows.sentences.counts.tolist() == [words, 1] and len(text.position.weight) == words


Damage = Callable[[Path], object]
CONFIG = TrainConfig(dimensions=8, text=SentenceSettings(), image=LinearSettings(standardise=True))
DATA = DatasetIdentity(
    dataset="d", version="v", manifest_digest="0", image_features="i", sentence_features="t", image_dimensions=4,
    sentence_dimensions=3,
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    LinkModel(ModelCard(config=CONFIG, data=DATA), None).save(tmp_path / "model")
    return tmp_path / "model"


def _put_nan(path: Path) -> None:
    weights = torch.load(path, weights_only=True)
    next(iter(weights.values())).view(-1)[0] = float("nan")
    torch.save(weights, path)


def _change_card(path: Path) -> None:
    values = json.loads(path.read_text())
    path.write_text(json.dumps(values | {"epoch": 7}))


CHANGES: dict[str, Damage] = {
    "a flipped byte": lambda folder: lakes.flip_a_byte(folder / "weights.pt"),
    "NaN in a tensor": lambda folder: _put_nan(folder / "weights.pt"),
    "another epoch": lambda folder: _change_card(folder / "model.json"),
    "no weights": lambda folder: (folder / "weights.pt").unlink(),
    "half the weights": lambda folder: (folder / "weights.pt").write_bytes(b"PK\3\4"),
    "one file more": lambda folder: (folder / "vocabulary.txt").write_text("a\n"),
    "no digests": lambda folder: (folder / SUMS).unlink(),
    "digests that are none": lambda folder: (folder / SUMS).write_bytes(b"\xff\n\n"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_folder_that_was_changed_is_refused(folder: Path, change: str) -> None:
    CHANGES[change](folder)
    _is_refused_in_one_line(folder)


def _is_refused_in_one_line(folder: Path) -> None:
    with pytest.raises(IntegrityError) as caught:
        LinkModel.load(folder)
    assert "\n" not in str(caught.value) and str(folder) in str(caught.value)


def test_what_changed_is_named(folder: Path) -> None:
    lakes.flip_a_byte(folder / "weights.pt")
    with pytest.raises(IntegrityError, match=r"expected the files that were saved, found others: weights\.pt$"):
        check_files(folder)


UNREADABLE: dict[str, Damage] = {
    "NaN": lambda folder: _put_nan(folder / "weights.pt"),
    "a pickle": lambda folder: (folder / "weights.pt").write_bytes(b"cos\nsystem\n(S'true'\ntR."),
    "nothing": lambda folder: (folder / "weights.pt").write_bytes(b""),
    "a list": lambda folder: torch.save([1, 2], folder / "weights.pt"),
    "other tensors": lambda folder: torch.save({"a": torch.ones(1)}, folder / "weights.pt"),
    "no weights": lambda folder: (folder / "weights.pt").unlink(),
    "no JSON": lambda folder: (folder / "model.json").write_text("{"),
    "a JSON list": lambda folder: (folder / "model.json").write_text("[1]"),
    "no text": lambda folder: (folder / "model.json").write_bytes(b"\xff\xfe"),
    "another format": lambda folder: (folder / "model.json").write_text('{"format": 99}'),
    "deep JSON": lambda folder: (folder / "model.json").write_text("[" * 100_000),
    "half a card": lambda folder: (folder / "model.json").write_text('{"format": 1}'),
}


@pytest.mark.parametrize("damage", UNREADABLE)
def test_a_sealed_folder_that_is_no_model_is_refused_in_one_line(folder: Path, damage: str) -> None:
    UNREADABLE[damage](folder)
    seal(folder)
    _is_refused_in_one_line(folder)


def test_a_recorded_digest_must_be_met(folder: Path) -> None:
    digest = folder_digest(folder)
    check_files(folder, digest)
    _change_card(folder / "model.json")
    seal(folder)
    check_files(folder)
    with pytest.raises(IntegrityError, match=f"expected the model that was recorded, digest {digest}"):
        check_files(folder, digest)


def test_the_digests_are_those_of_sha256sum(folder: Path) -> None:
    subprocess.run(["sha256sum", "-c", "--quiet", SUMS], cwd=folder, check=True)
