"""Parts chosen by name: which settings there are, which are refused, and what a change of name keeps."""

from dataclasses import replace
from pathlib import Path

import pytest
from configurations import dotted_keys

from schemas.configs import resolve, restore
from schemas.messages import ConfigError, UsageError
from schemas.overrides import flatten, override
from training import config as config_module
from training.config import ConstantSchedule, LoopConfig, PlateauSchedule, TrainConfig, check_driver, objective
from training.objectives.ranking import CrossDocument, Negatives
from training.recipes import RECIPES, recipe
from training.similarity.similarity import Tk
from training.towers.recurrence import GruSettings
from training.towers.region_concept import TransformerSettings
from training.towers.vectors import SentenceSettings


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("text.ngrams=2,6", "unknown key 'text.ngrams'; did you mean 'text."),
        ("image.cnn=resnet152", "unknown key 'image.cnn'; did you mean 'image."),
        ("objective.alpha=3", "unknown key 'objective.alpha'; did you mean 'objective."),
        ("objective.kept_share=0.1", "unknown key 'objective.kept_share'; did you mean 'objective."),
        ("training.step_factor=9", "unknown key 'training.step_factor'; did you mean 'training.schedule.factor'?"),
        ("encoder.dropout=0.1", "unknown key 'encoder.dropout'; did you mean 'text.dropout'?"),
        ("text.name=grus", "text.name = 'grus': expected one of bilstm-attention, gru, "),
        ("training.schedule.name=step", "expected one of plateau, steps, constant"),
        ("text.dropout=1", "text.dropout = 1: expected `float` < 1.0"),
        ("image.dropout=-0.1", "image.dropout = -0.1: expected `float` >= 0.0"),
        ("text.max_words=-1", "text.max_words = -1: expected `int` >= 1"),
        ("text.word_dimensions=0", "text.word_dimensions = 0: expected `int` >= 1"),
        ("training.schedule.factor=0", "training.schedule.factor = 0: expected `float` > 0.0"),
    ],
)
def test_a_setting_of_something_else_is_an_unknown_key(assignment: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        override(recipe("hessel-2019"), [assignment])
    assert words in str(caught.value)


def test_a_name_chooses_the_settings_wherever_it_stands() -> None:
    config = override(TrainConfig(), ["text.heads=4", "text.name=transformer", "training.schedule.name=constant"])
    assert config.text == TransformerSettings(heads=4)
    assert config.training.schedule == ConstantSchedule()


def test_what_was_set_stays_where_the_new_part_has_it() -> None:
    base = override(
        recipe("tiny-li-2022"), ["text.max_words=20", "text.name=subword-attention", "image.concepts=false"]
    )
    expected = {"dropout": 0.1, "word_vectors": "glove-6b-50d", "heads": 4, "hidden_dimensions": 256, "max_words": 20}
    assert {name: getattr(base.text, name) for name in expected} == expected
    assert (base.text.head_dimensions, base.text.buckets) == (64, 200_000)
    other = override(base, ["objective.name=nostruct", "objective.cosine_scale=2"]).objective
    assert other == objective("nostruct", cosine_scale=2.0)
    steps = override(recipe("liu-2020"), ["training.schedule.name=plateau"]).training.schedule
    assert steps == PlateauSchedule()  # ten epochs are the default of steps; none was set


def test_a_sum_has_the_settings_of_its_terms() -> None:
    keys = {key for key in dotted_keys(recipe("alikhani-2022")) if key.startswith("objective.")}
    relations = {f"objective.coherence.{name}" for name in ("relations", "relation_weight")}
    assert keys == {"objective.name", "objective.triplet-hardest.margin"} | relations
    both = override(TrainConfig(), ["objective.name=hal+coherence", "objective.alpha=10", "objective.relations=story"])
    assert both.objective == objective("hal+coherence", alpha=10.0, relations="story")


def test_a_setting_goes_to_every_term_that_has_it_or_to_one() -> None:
    config = override(
        TrainConfig(),
        [
            *("objective.intra-document.margin=0.1", "objective.similarity.k=half", "objective.margin=0.4"),
            *("objective=cross+intra+dropout", "objective.similarity=tk", "objective.intra-document.margin=0.5"),
        ],
    )
    found = flatten(resolve(config))
    margins = {name: found[f"objective.{name}.margin"] for name in ("cross-document", "intra-document")}
    assert margins == {"cross-document": 0.4, "intra-document": 0.5}
    for name in ("cross-document", "dropout-subdocument"):
        of_it = {key: found[f"objective.{name}.similarity.{key}"] for key in ("name", "k", "combine")}
        assert of_it == {"name": "tk", "k": "half", "combine": "sum"}
    assert restore(TrainConfig, resolve(config)) == config


def test_a_setting_of_another_objective_is_refused_in_python() -> None:
    with pytest.raises(ConfigError, match=r"objective\.similarity = .* objective 'hal' has no such setting"):
        objective("hal", similarity="tk")
    with pytest.raises(ConfigError, match="these are the settings of 'gru'"):
        GruSettings(name="transformer")


VALUES = resolve(TrainConfig())


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"text": {**VALUES["text"], "heads": 3}}, r"unknown key 'text\.heads'"),
        ({"objective": [{"name": "cross-document", "alpha": 3}]}, r"unknown key 'objective\.alpha'"),
        ({"text": {"dropout": 0.1}}, r"text\.name = None: expected one of bilstm-attention, gru"),
    ],
)
def test_a_configuration_of_a_file_has_the_settings_of_its_parts_alone(changed: dict[str, object], words: str) -> None:
    assert restore(TrainConfig, VALUES) == TrainConfig()
    with pytest.raises(ConfigError, match=words):
        restore(TrainConfig, VALUES | changed)


@pytest.mark.parametrize("name", RECIPES)
def test_heads_divide_the_dimensions_of_a_transformer(name: str) -> None:
    config = recipe(name)
    keys = {key for key in ("text.heads", "image.heads") if key in dotted_keys(config)}
    for key in keys if config.text.name == "transformer" else ():
        with pytest.raises(ConfigError, match=f"{key} = 3: a transformer's heads must divide dimensions"):
            override(config, [f"{key}=3"])


def test_nostruct_takes_the_mean_of_its_negatives_unless_set_otherwise() -> None:
    def negatives(config: TrainConfig) -> list[str]:
        return [str(getattr(term, "negatives", "")) for term in config.objective]

    config = override(TrainConfig(), ["objective.name=nostruct"])
    assert negatives(TrainConfig()) == ["hardest"] and negatives(config) == ["mean"]
    assert negatives(override(config, ["objective.name=cross+nostruct"])) == ["hardest", "mean"]
    hardest = override(config, ["objective.negatives=hardest"])
    assert negatives(hardest) == ["hardest"]
    assert hardest.traits["negatives"] == "hardest"
    both = override(config, ["objective.name=cross+nostruct"]).traits
    assert both["negatives"] == "cross-document hardest, nostruct mean"


def test_plain_names_are_members_and_parts_in_a_configuration() -> None:
    plain = CrossDocument(similarity="tk", negatives="mean")  # type: ignore[arg-type]
    assert plain.negatives is Negatives.MEAN and plain.similarity == Tk()
    assert TrainConfig(text="sentence", objective="cross").text == SentenceSettings()  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"objective\.similarity\.name = 'best': expected one of ap, dc, tk"):
        objective("cross", similarity="best")


def test_words_of_a_model_to_start_from_are_not_random() -> None:
    started = LoopConfig(start_from=("models:/m/1",))
    assert TrainConfig(training=started).traits == {"word_vectors": "training.start_from", "negatives": "hardest"}
    fresh = replace(started, start_words=False)
    assert TrainConfig(training=fresh).traits["word_vectors"] == "random"


@pytest.mark.parametrize(
    ("recipe_", "batches", "workers", "refused"),
    [
        ("hessel-2019", 1, 1, None),
        ("hessel-2019", 4, 3, None),
        ("hessel-2019", 1, 2, "training.batches_per_step=2"),
        ("hessel-2019", 4, 8, "--workers 4"),
        ("hessel-2019", 4, 0, "at least 1"),
        ("closed-form", 1, 8, None),
        ("closed-form", 1, 0, "at least 1"),
    ],
)
def test_a_batch_is_computed_by_one_worker(recipe_: str, batches: int, workers: int, refused: str | None) -> None:
    config = override(recipe(recipe_), [f"training.batches_per_step={batches}"])
    if refused is None:
        config.check_workers(workers)
    else:
        with pytest.raises(UsageError, match=refused) as caught:
            config.check_workers(workers)
        assert "\n" not in str(caught.value)


def test_a_gpu_that_is_asked_for_has_a_driver_here_or_is_on_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_module, "Path", lambda _: tmp_path)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(ConfigError, match="this machine has no usable GPU"):
        check_driver()
    (tmp_path / "nvidia0").touch()
    check_driver()
    (tmp_path / "nvidia0").unlink()
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")
    check_driver()
