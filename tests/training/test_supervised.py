"""The supervised upper bound: which links are shown, and that they teach."""

from dataclasses import replace
from pathlib import Path

import lakes
import pytest

from schemas.documents import Split
from schemas.errors import ConfigError, UsageError
from schemas.lake import Lake
from training.config import TrainConfig, objective
from training.data.loading import load_training_data
from training.data.split import is_labelled
from training.loop.context import Context
from training.loop.trainer import train

CONFIG = replace(lakes.TINY, objective=objective("nostruct"))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return lakes.write_lake(tmp_path_factory.mktemp("lake"), lakes.splits(train=60, val=8, test=20))


def supervised(share: float = 1.0, name: str = "supervised") -> TrainConfig:
    return replace(CONFIG, objective=objective(name, labelled_share=share))


def test_shares_are_nested_and_about_as_large_as_asked_for() -> None:
    ids = [f"d{number}" for number in range(2000)]
    sets = {share: {id_ for id_ in ids if is_labelled(id_, share=share, seed=3)} for share in (0.1, 0.4, 1.0)}
    assert sets[0.1] < sets[0.4] < sets[1.0] == set(ids)
    assert len(sets[0.1]) == pytest.approx(200, abs=45) and len(sets[0.4]) == pytest.approx(800, abs=80)


def test_links_are_shown_to_the_supervised_objective_alone(lake: Lake) -> None:
    for config in (CONFIG, replace(CONFIG, objective=objective("cross+intra+dropout"))):
        data = load_training_data(lake, "synthetic", config.reading)
        training = lakes.whole(data.training)
        assert training.links is None and data.training.links_shown(training) is None
        assert data.validation.links_shown(lakes.whole(data.validation)) is None
    data = load_training_data(lake, "synthetic", supervised(0.5, "cross+supervised").reading)
    for split in (data.training, data.validation):
        documents = lakes.whole(split)
        links = split.links_shown(documents)
        expected = [is_labelled(id_, share=0.5, seed=0) for id_ in documents.ids]
        assert [links is not None for links in links] == expected and 0 < sum(expected) < len(expected)


def test_wrong_links_teach_wrongly(lake: Lake, tmp_path: Path) -> None:
    wrong = lakes.splits(train=60, val=20)
    wrong[Split.TRAIN] = lakes.with_other_links(wrong[Split.TRAIN])
    misled = lakes.write_lake(tmp_path / "lake", wrong)
    auc = {}
    for name, place in (("right", lake), ("wrong", misled)):
        data = load_training_data(place, "synthetic", supervised().reading)
        auc[name] = train(supervised(), data, Context(), run_directory=tmp_path / name).history[-1]["validation_auc"]
    assert auc["right"] > 85
    assert auc["wrong"] < 65


def test_what_does_not_fit_is_said(lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"objective.labelled_share = 0.*expected `float` > 0"):
        supervised(0.0)
    bare = {
        split: lakes.without_links(lakes.make_documents(split, 8, lakes.World())) for split in (Split.TRAIN, Split.VAL)
    }
    with pytest.raises(UsageError, match="learns from links, but the training split has none"):
        load_training_data(lakes.write_lake(tmp_path / "lake", bare), "synthetic", supervised().reading)
    partial = replace(supervised(), training=replace(CONFIG.training, max_rows=2))
    with pytest.raises(UsageError, match=r"reads whole documents; use --set training\.max_rows=0"):
        load_training_data(lake, "synthetic", partial.reading)
