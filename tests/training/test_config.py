"""Parts chosen by name: which settings there are, which are refused, and what a change of name keeps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schemas.configs import dotted_keys, override, resolve, restore
from schemas.errors import ConfigError
from training.config import (
    Combine,
    ConstantSchedule,
    FineTunedConfig,
    LoopConfig,
    Negatives,
    ObjectiveConfig,
    PlateauSchedule,
    Similarity,
    SubwordAttentionConfig,
    TrainConfig,
    TransformerConfig,
)
from training.data.requirements import told
from training.recipes import RECIPES, recipe


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("text.ngrams=2,6", "unknown key 'text.ngrams'; did you mean 'text."),
        ("image.cnn=resnet152", "unknown key 'image.cnn'; did you mean 'image."),
        ("objective.hal_alpha=3", "unknown key 'objective.hal_alpha'; did you mean 'objective."),
        ("objective.kept_share=0.1", "unknown key 'objective.kept_share'; did you mean 'objective."),
        ("training.step_factor=9", "unknown key 'training.step_factor'; did you mean 'training.schedule.factor'?"),
        ("encoder.dropout=0.1", "unknown key 'encoder.dropout'; did you mean 'text.dropout'?"),
        ("text.name=grus", "text.name = 'grus': expected one of gru, transformer, "),
        ("training.schedule.name=step", "expected one of plateau, steps, constant"),
        ("text.dropout=1", "text.dropout = 1.0: must be in [0, 1)"),
        ("image.dropout=-0.1", "image.dropout = -0.1: must be in [0, 1)"),
        ("text.max_words=-1", "text.max_words = -1: must be positive"),
        ("text.word_dimensions=0", "text.word_dimensions = 0: must be positive"),
        ("training.schedule.factor=0", "training.schedule.factor = 0.0: must be positive"),
    ],
)
def test_a_setting_of_something_else_is_an_unknown_key(assignment: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        override(recipe("hessel-2019"), [assignment])
    assert words in str(caught.value)


def test_a_name_chooses_the_settings_wherever_it_stands() -> None:
    config = override(TrainConfig(), ["text.heads=4", "text.name=transformer", "training.schedule.name=constant"])
    assert config.text == TransformerConfig(heads=4)
    assert config.training.schedule == ConstantSchedule()


def test_what_was_set_stays_where_the_new_part_has_it() -> None:
    base = override(recipe("tiny-li-2022"), ["text.max_words=20", "text.name=subword-attention"])
    expected = {"dropout": 0.1, "word_vectors": "glove-6b-50d", "heads": 4, "hidden_dimensions": 256, "max_words": 20}
    assert isinstance(base.text, SubwordAttentionConfig)
    assert {name: getattr(base.text, name) for name in expected} == expected
    assert (base.text.head_dimensions, base.text.buckets) == (64, 200_000)
    other = override(base, ["objective.name=nostruct", "objective.cosine_scale=2"]).objective
    assert other == ObjectiveConfig(name="nostruct", cosine_scale=2.0)
    steps = override(recipe("liu-2020"), ["training.schedule.name=plateau"]).training.schedule
    assert steps == PlateauSchedule()  # ten epochs are the default of steps; none was set


def test_a_sum_has_the_settings_of_its_terms() -> None:
    keys = {key for key in dotted_keys(recipe("alikhani-2022")) if key.startswith("objective.")}
    assert keys == {f"objective.{name}" for name in ("name", "margin", "relations", "relation_weight")}
    both = override(TrainConfig(), ["objective.name=hal+coherence"])
    assert {"objective.hal_alpha", "objective.relations"} <= dotted_keys(both).keys()
    assert "margin" not in resolve(both.objective)


def test_a_setting_of_another_objective_is_refused_in_python_and_in_files() -> None:
    with pytest.raises(ConfigError, match=r"objective\.similarity = .* is no setting of objective\.name = 'hal'"):
        ObjectiveConfig(name="hal", similarity=Similarity.TK)
    values = resolve(TrainConfig())
    assert restore(TrainConfig, values) == TrainConfig()
    for part, key, words in (
        ("objective", "hal_alpha", "no setting of"),
        ("text", "heads", "unknown key 'text.heads'"),
    ):
        changed = {**values, part: {**values[part], key: 3}}  # type: ignore[dict-item]
        with pytest.raises(ConfigError, match=words):
            restore(TrainConfig, changed)
    with pytest.raises(ConfigError, match=r"text\.name = None: expected one of gru"):
        restore(TrainConfig, {"text": {"dropout": 0.1}})


@pytest.mark.parametrize("name", RECIPES)
def test_heads_divide_the_dimensions_of_a_transformer(name: str) -> None:
    config = recipe(name)
    keys = {key for key in ("text.heads", "image.heads") if key in dotted_keys(config)}
    for key in keys if config.text.name == "transformer" else ():
        with pytest.raises(ConfigError, match=f"{key} = 3: a transformer's heads must divide dimensions"):
            override(config, [f"{key}=3"])


def test_nostruct_takes_the_mean_of_its_negatives_unless_told_otherwise() -> None:
    assert ObjectiveConfig(name="nostruct").negatives is Negatives.MEAN
    assert ObjectiveConfig().negatives is ObjectiveConfig(name="cross+nostruct").negatives is Negatives.HARDEST
    config = override(TrainConfig(), ["objective.name=nostruct"])
    assert config.objective.negatives is Negatives.MEAN
    assert resolve(config.objective)["negatives"] == "mean"
    hardest = override(config, ["objective.negatives=hardest"])
    assert hardest.objective.negatives is Negatives.HARDEST
    assert override(hardest, ["objective.name=cross-document"]).objective.negatives is Negatives.HARDEST


def test_plain_names_are_members_in_a_configuration() -> None:
    plain = ObjectiveConfig(similarity="tk", combine="mean")  # type: ignore[arg-type]
    assert plain == ObjectiveConfig(similarity=Similarity.TK, combine=Combine.MEAN)
    assert plain.similarity is Similarity.TK
    with pytest.raises(ConfigError, match="similarity = 'best': expected one of dc, tk, neg_tk, ap"):
        ObjectiveConfig(similarity="best")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="dc, tk or ap"):
        ObjectiveConfig(similarity="neg_tk")  # type: ignore[arg-type]


def test_recipes_have_the_papers_settings() -> None:
    assert recipe("li-2022").objective.combine is Combine.MEAN
    fine_tuned = recipe("alikhani-2022-fine-tuned")
    assert isinstance(fine_tuned.image, FineTunedConfig)
    assert (fine_tuned.image.cnn, fine_tuned.image.batch_norm) == ("resnet50", True)
    assert fine_tuned.objective == recipe("alikhani-2022").objective


def test_words_of_a_model_to_start_from_are_not_random() -> None:
    started = LoopConfig(start_from=("models:/m/1",))
    assert told(TrainConfig(training=started)) == {"word_vectors": "training.start_from", "negatives": "hardest"}
    fresh = replace(started, start_words=False)
    assert told(TrainConfig(training=fresh))["word_vectors"] == "random"
