"""The recipes of builds: named complete builds, the first of a data set its default; and what of one changes bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module

from pipelines.recipe import BuildConfig
from pipelines.sources.inputs import path_settings
from pipelines.sources.takedowns import Takedowns
from schemas.configs import Json, pick, resolve
from schemas.errors import ConfigError
from schemas.plugins import SOURCES, load_plugin, origin, own_parts, plugins

# Settings of `http` that say which wishes of hosts and authors are honoured.
HONOURED = ("obey_ai_txt", "obey_content_usage", "obey_robots", "obey_robots_tags", "obey_tdm")
# Settings of features that change the speed, or that the extractors' fingerprints stand for.
_COMPUTING = frozenset({"weights", "device", "threads"})


def content_config(config: BuildConfig) -> dict[str, Json]:
    """Return the settings that change what is built: all but budgets, computing, paths of files, and most of `http`.

    Of that there is what is honoured of the wishes of hosts and authors. Weights are in the fingerprints of the
    extractors.
    """
    values = resolve(config)
    del values["max_failure_share"], values["takedown_list"]
    values["http"] = {name: getattr(config.http, name) for name in HONOURED}
    values["takedowns"] = Takedowns(config.takedowns).fingerprint  # not the entries: they would name what must go
    source, features = values["source"], values["features"]
    if isinstance(source, dict) and isinstance(features, dict):
        paths = path_settings(config.source)  # their content is fingerprinted instead
        values["source"] = {name: value for name, value in source.items() if name not in paths}
        values["features"] = {name: value for name, value in features.items() if name not in _COMPUTING}
    return values


def _of_plugin(name: str) -> BuildConfig:
    """Return the build of a data set of another package.

    Raises:
        ConfigError: its package cannot be loaded, or gives no build of that name.
    """
    make = load_plugin(SOURCES, name)
    found = make() if callable(make) else make
    if not (isinstance(found, BuildConfig) and found.dataset == name):
        raise ConfigError(f"{origin(SOURCES, name)}: expected a function that returns a BuildConfig of '{name}'")
    return found


def _own_recipes() -> Mapping[str, Callable[[], BuildConfig]]:
    found = (import_module(module).RECIPES for module in own_parts(SOURCES).values())
    return dict(sorted(pair for recipes in found for pair in recipes.items()))


RECIPES = _own_recipes()


def datasets() -> list[str]:
    """Return the names of the data sets that can be built, those of other packages among them."""
    return sorted({*(recipe().dataset for recipe in RECIPES.values()), *plugins(SOURCES)})


def recipe(dataset: str, name: str | None = None) -> BuildConfig:
    """Return a data set's named recipe, or its default one.

    Raises:
        ConfigError: there is no such data set, or no such recipe for it.
    """
    pick(dict.fromkeys(datasets()), dataset, what="data set")
    fitting = {key: make for key, make in RECIPES.items() if make().dataset == dataset}
    if not fitting:
        fitting[dataset] = partial(_of_plugin, dataset)
    return pick(fitting, name or dataset, what="recipe")()
