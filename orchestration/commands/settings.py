"""What can be set: `multilink settings` lists the recipes, and `multilink settings NAME` every setting of one.

The meaning of a setting is read from the docstring of the dataclass that holds it, the one place where it is written.
"""

import enum
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

import pipelines.config
import training.recipes
from orchestration.commands import options
from schemas.configs import pick, resolve
from schemas.overrides import override, places
from schemas.plugins import SOURCES, origin, plugins

WIDTH = 100
INDENT = "    "

Makers = Mapping[str, Callable[[], Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting of a recipe.

    Attributes:
        key: as `--set` takes it.
        value: that the recipe has, JSON-ready.
        choices: all values, where there is a closed list of them.
        meaning: one sentence or more; empty where the docstring has none.
    """

    key: str
    value: Any
    choices: tuple[str, ...]
    meaning: str


def settings_command(
    name: Annotated[str, typer.Argument(help="A data set, or a recipe of a build or of training.")] = "",
    set_: Annotated[list[str] | None, typer.Option("--set", help="Show the settings with KEY=VALUE changed.")] = None,
) -> options.Summaries:
    """List the recipes, or the settings of one.

    A setting is changed by `--set KEY=VALUE` of `multilink build` or `multilink train`. A name (`--set
    text.name=transformer`) determines which other settings exist.
    """
    builds, trainings = pipelines.config.RECIPES, training.recipes.RECIPES
    builds = {each: partial(pipelines.config.recipe, each) for each in plugins(SOURCES)} | {**builds}
    if not name:
        rows = {"build": summaries(pipelines.config.RECIPES), "train": summaries(trainings)}
        rows["build"] |= {each: origin(SOURCES, each) for each in plugins(SOURCES)}
        yield list_recipes(rows), rows
        return
    make: Callable[[], Any] = pick({**trainings, **builds}, name, what="recipe")
    found = list(settings_of(override(make(), set_ or [])))
    yield describe(found), {"settings": found}


def summaries(recipes: Makers) -> dict[str, str]:
    """Return what each recipe is, in a line."""
    return {name: _first_line(make) for name, make in recipes.items()}


def settings_of(config: Any) -> Iterator[Setting]:
    """Yield every setting of a configuration dataclass, in field order, with its dotted key."""
    for place in places(config, resolve(config)):
        is_part = place.choice is not None and not place.choice.is_sum
        meaning = _first_line(place.kind) if is_part else _meanings(place.kind).get(place.leaf, "")
        yield Setting(key=place.key, value=place.value, choices=_choices(place.hint), meaning=meaning)


def describe(found: list[Setting]) -> Iterator[str]:
    """Yield each setting in its own lines: key, value and choices, then what it means."""
    for setting in found:
        choices = f"   ({' | '.join(setting.choices)})" if setting.choices else ""
        yield f"{setting.key} = {_as_typed(setting.value)}{choices}".rstrip()
        yield from textwrap.wrap(
            setting.meaning, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT, break_on_hyphens=False
        )


def list_recipes(rows: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Yield the recipes of each command in a line each."""
    usage = {"build": "multilink build DATASET [--recipe NAME]", "train": "multilink train --recipe NAME"}
    for name_, recipes in rows.items():
        yield usage[name_]
        yield from (f"  {name:27}{summary}" for name, summary in recipes.items())


def _first_line(documented: object) -> str:
    return (inspect.getdoc(documented) or "").partition("\n")[0]


@cache
def _meanings(kind: Any) -> dict[str, str]:
    from docstring_parser import DocstringStyle, parse

    meanings: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        parsed = parse(inspect.cleandoc(each.__doc__ or ""), style=DocstringStyle.GOOGLE)
        meanings |= {entry.arg_name: " ".join((entry.description or "").split()) for entry in parsed.params}
    return meanings


def _choices(hint: Any) -> tuple[str, ...]:
    if get_origin(hint) is Literal:
        return get_args(hint)
    is_closed = isinstance(hint, type) and issubclass(hint, enum.Enum)
    return tuple(str(member.value) for member in hint) if is_closed else ()


def _as_typed(value: Any) -> str:
    """Return a value the way `--set` takes it."""
    if isinstance(value, list):
        return ",".join(str(item) for item in value)
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)
