"""Overrides and round trips of configurations."""

import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any

import pytest
from msgspec import Meta

from pipelines.config import RECIPES
from schemas.configs import Settings, require, resolve, restore
from schemas.manifest import FileEntry
from schemas.messages import ConfigError
from schemas.overrides import flatten, override
from training import recipes as train_recipes


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    rate: float = 0.5
    names: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    colour: Colour = Colour.RED
    share: Annotated[float, Meta(ge=0, lt=1), "a mark that is not msgspec's"] = 0.5
    code: Annotated[str, Meta(pattern=r"^[a-z]{2}\Z", description="expected two small letters")] = "en"

    def __post_init__(self) -> None:
        require(self.rate > 0, field="inner.rate", value=self.rate, rule="must be positive")


@dataclass(frozen=True, slots=True, kw_only=True)
class Made(Settings):
    share: Annotated[float, Meta(ge=0, lt=1)] = 0.5
    names: tuple[str, ...] = ()
    colour: Colour = Colour.RED


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    count: int = 1
    label: str = "a"
    is_on: bool = False
    limit: int | None = None
    inner: Inner = field(default_factory=Inner)


@pytest.mark.parametrize(
    ("assignment", "path", "value"),
    [
        ("count=12", ("count",), 12),
        ("label=ap", ("label",), "ap"),
        ("label=12", ("label",), "12"),
        ("label=a=b", ("label",), "a=b"),
        ("is_on=true", ("is_on",), True),
        ("limit=3", ("limit",), 3),
        ("limit=null", ("limit",), None),
        ("inner.rate=2", ("inner", "rate"), 2.0),
        ("inner.rate=1e-4", ("inner", "rate"), 1e-4),
        ("inner.colour=blue", ("inner", "colour"), Colour.BLUE),
        ('inner.names=["a:1", "b:2"]', ("inner", "names"), ("a:1", "b:2")),
        ("inner.names=a:1,b:2", ("inner", "names"), ("a:1", "b:2")),
        ("inner.names=", ("inner", "names"), ()),
        ("inner.sizes=3, 5", ("inner", "sizes"), (3, 5)),
        ("inner.sizes=3", ("inner", "sizes"), (3,)),
    ],
)
def test_an_override_sets_the_value_with_the_declared_type(
    assignment: str, path: tuple[str, ...], value: object
) -> None:
    changed: object = override(Outer(), [assignment])
    for name in path:
        changed = getattr(changed, name)
    assert changed == value
    assert type(changed) is type(value)


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("inner.rat=1", "unknown key 'inner.rat'; did you mean 'inner.rate'?"),
        ("colour=blue", "unknown key 'colour'; did you mean 'inner.colour'?"),
        ("zzzzzz=1", "unknown key 'zzzzzz'; valid keys: count, inner.code, inner.colour"),
        ("count", "expected key=value"),
        ("count=many", "count = 'many': expected `int`, got `str`"),
        ("count=1.5", "count = 1.5: expected `int`, got `float`"),
        ("is_on=1", "is_on = 1: expected `bool`, got `int`"),
        ("inner.colour=green", "expected one of red, blue"),
        ("inner.sizes=3,many", "inner.sizes = 'many': expected `int`, got `str`"),
        ("inner.rate=-1", "inner.rate = -1.0: must be positive"),
        ("inner.share=NaN", "inner.share = 'NaN': expected `float`, got `str`"),
        ("inner.share=1", "inner.share = 1: expected `float` < 1.0"),
        ("inner.code=EN", "inner.code = 'EN': expected two small letters"),
        ("limit=x", "limit = 'x': expected `int | null`, got `str`"),
    ],
)
def test_a_wrong_override_says_what_is_wrong(assignment: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        override(Outer(), [assignment])
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_later_overrides_win() -> None:
    assert override(Outer(), ["count=2", "count=3"]).count == 3


@pytest.mark.parametrize(
    "config",
    [make() for make in RECIPES.values()] + [make() for make in train_recipes.RECIPES.values()],
)
def test_every_recipe_survives_json_and_back(config: object) -> None:
    assert restore(type(config), resolve(config), like=config) == config


def test_a_saved_configuration_with_an_unknown_key_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"inner\.speed"):
        restore(Outer, {"inner": {"speed": 1}})


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"share": float("nan")}, "share"),
        ({"share": "0.5"}, "share"),
        ({"share": True}, "share"),
        ({"names": "a"}, "names"),
    ],
)
def test_a_configuration_that_is_made_directly_is_checked(values: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=f"^{key} = "):
        Made(**values)


def test_equal_settings_are_equal_however_they_are_made() -> None:
    made = Made(share=0, names=["a"], colour="blue")  # type: ignore[arg-type]
    assert json.dumps(resolve(made)) == json.dumps(resolve(override(Made(), ["share=0", "names=a", "colour=blue"])))
    assert made == restore(Made, resolve(made)) and hash(made)


def test_a_setting_without_a_default_is_named_where_it_is_missing() -> None:
    with pytest.raises(ConfigError, match=r"^files\.bytes: expected a value"):
        restore(FileEntry, {"path": "a"}, prefix="files.")


@pytest.mark.parametrize("name", RECIPES)
def test_an_override_keeps_the_class_of_a_source(name: str) -> None:
    """Sources with fields of the same names are told apart: RecipeQA's are all names of VIST's, too."""
    recipe = RECIPES[name]()
    assert override(recipe, ["http.contact=a@example.org"]).source == recipe.source


def test_flat_settings_have_the_terms_of_a_sum_under_their_names_and_plain_lists_as_they_are() -> None:
    nested: dict[str, object] = {
        "a": {"b": {"c": 1}, "sizes": [1, 2]},
        "one": [{"name": "ap", "margin": 0.2}],
        "several": [{"name": "ap", "margin": 0.2}, {"name": "dc", "inner": {"k": 3}}],
        "none": [],
        "rows": [{"margin": 1}],
    }
    assert list(flatten(nested).items()) == [  # type: ignore[arg-type]
        ("a.b.c", 1),
        ("a.sizes", [1, 2]),
        ("one.name", "ap"),
        ("one.margin", 0.2),
        ("several.name", "ap+dc"),
        ("several.ap.margin", 0.2),
        ("several.dc.inner.k", 3),
        ("none", []),
        ("rows", [{"margin": 1}]),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    pairs: tuple[tuple[float, int], ...] = ()


def test_a_tuple_of_several_types_keeps_each() -> None:
    assert repr(restore(Counted, {"pairs": [[0.5, 120], [1, 240]]}).pairs) == "((0.5, 120), (1.0, 240))"
    with pytest.raises(ConfigError, match="expected 2 values"):
        restore(Counted, {"pairs": [[0.5, 120, 7]]})
