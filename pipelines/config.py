"""The recipes of builds: named complete builds, the first of a data set its default."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from pipelines.recipe import BuildConfig
from schemas.configs import pick
from schemas.messages import ConfigError
from schemas.plugins import SOURCES, load_plugin, origin, own_parts, plugins


def recipes(part: str) -> Mapping[str, Callable[[], BuildConfig]]:
    """Return the builds that a part registers, by name: `RECIPES` of its module.

    Raises:
        ConfigError: its package cannot be loaded, or has something else under the name.
    """
    own = own_parts(SOURCES).get(part)
    found: Any = load_plugin(SOURCES, part) if own is None else import_module(own).RECIPES
    if not isinstance(found, Mapping) or not all(isinstance(make(), BuildConfig) for make in found.values()):
        raise ConfigError(f"{origin(SOURCES, part)}: expected functions that return a BuildConfig, by name")
    return found


RECIPES = dict(sorted(pair for part in own_parts(SOURCES) for pair in recipes(part).items()))


def datasets() -> list[str]:
    """Return the names of the data sets that can be built, those of other packages among them."""
    return sorted({*(make().dataset for make in RECIPES.values()), *plugins(SOURCES)})


def recipe(dataset: str, name: str | None = None) -> BuildConfig:
    """Return a data set's named recipe, or its default one.

    Raises:
        ConfigError: there is no such data set, or no such recipe for it.
    """
    pick(dict.fromkeys(datasets()), dataset, what="data set")
    known = recipes(dataset) if dataset in plugins(SOURCES) else RECIPES
    fitting = {key: make for key, make in known.items() if make().dataset == dataset}
    return pick(fitting, name or dataset, what="recipe")()
